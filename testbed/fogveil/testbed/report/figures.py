"""Figures of results, in one style: a colour per method everywhere, readable in grey."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fogveil.testbed.records.output import reporting_write_errors
from fogveil.testbed.records.summary import DELAYS
from fogveil.testbed.report.averages import PolicyAverage
from fogveil.testbed.report.methods import line, style
from fogveil.testbed.report.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INTERVAL: dict[str, Any] = {"capsize": 2, "elinewidth": 1.2, "markersize": 5}
"""How a mean and its interval are drawn."""
TRAINING_LOOKS = (
    ("#0072B2", "-"),
    ("#D55E00", "--"),
    ("#000000", "-."),
    ("#009E73", ":"),
    ("#CC79A7", "-"),
)
"""Colour and dashes of training curves: distinct in every kind of colour vision, and in grey."""
MOST_IN_TWO_COLUMNS = 6
"""Panels of a figure; of more, three stand side by side."""
LOOP_TITLES = {"fog_loop": "Fog loop", "cloud_loop": "Cloud loop"}
LINEAR_UP_TO = 5
"""Largest ratio of two values on a linear axis."""


FORMATS: dict[str, dict[str, Any]] = {
    "png": {"dpi": 150},
    "svg": {"metadata": {"Date": None}},
    "pdf": {"metadata": {"CreationDate": None}},
}
"""The files of a figure, and how each is saved: without a date, so that it can be compared."""
_without_pdf = ContextVar("_without_pdf", default=False)


@contextmanager
def figures_for_pages() -> Iterator[None]:
    """Save figures as PNG and SVG alone meanwhile: the pages of the documentation need no PDF."""
    token = _without_pdf.set(True)
    try:
        yield
    finally:
        _without_pdf.reset(token)


@contextmanager
def figure(path: Path, width: float, height: float) -> Iterator[Figure]:
    """Yield a figure and save it as PNG, SVG and PDF under the same name."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    parameters: dict[Any, Any] = {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#DDDDDD",
        "grid.linewidth": 0.6,
        "axes.axisbelow": True,
        "svg.hashsalt": "fogveil",
        "pdf.fonttype": 42,  # as text that can be searched, which publishers ask for
    }
    with mpl.rc_context(parameters):
        drawing = Figure(figsize=(width, height), layout="constrained")
        yield drawing
        with reporting_write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            for kind, options in FORMATS.items():
                if kind != "pdf" or not _without_pdf.get():
                    drawing.savefig(f"{path}.{kind}", **options)


def plot_loops(averages: Sequence[PolicyAverage], path: Path) -> None:
    """Draw the mean delay of both loops over the rate, with intervals, one panel per horizon.

    Without rates to draw over, as of a trace, the policies are drawn below each other.
    """
    if all(average.rate is None for average in averages):
        _plot_loops_by_policy(averages, path)
        return
    averages = [average for average in averages if average.rate is not None]
    horizons = list(dict.fromkeys(average.horizon for average in averages))
    methods = list(dict.fromkeys(average.policy for average in averages))
    rates = sorted({average.rate for average in averages if average.rate is not None})
    spacing = float(min(np.diff(rates), default=1.0))
    with figure(path, 1.6 + 3.4 * len(horizons), 6.6) as drawing:
        axes = drawing.subplots(2, len(horizons), squeeze=False, sharey="row")
        for (loop, title), panels in zip(LOOP_TITLES.items(), axes, strict=True):
            for horizon, panel in zip(horizons, panels, strict=True):
                here = [a for a in averages if a.horizon == horizon and loop in a.measures]
                for place, method in enumerate(methods):
                    points = [average for average in here if average.policy == method]
                    shift = (place - (len(methods) - 1) / 2) * spacing / 5 / len(methods)
                    _draw_over_rates(panel, points, loop, shift)
                panel.set_xticks(rates, [f"{rate:g}" for rate in rates])
                panel.set_xlim(rates[-1] + spacing / 3, rates[0] - spacing / 3)
                panel.set_title(f"{title}, horizon {horizon:,.0f}")
                panel.set_xlabel("β: mean time between workloads (busier →)")
            shown = [a.measures[loop] for a in averages if loop in a.measures]
            scale_axis(panels[0], "y", shown)
            panels[0].set_ylabel(f"{_measured(averages)}\n(simulated time units)")
        handles, labels = axes[0][0].get_legend_handles_labels()
        drawing.legend(handles, labels, loc="outside right upper", frameon=False)


def _plot_loops_by_policy(averages: Sequence[PolicyAverage], path: Path) -> None:
    horizons = list(dict.fromkeys(average.horizon for average in averages))
    methods = list(dict.fromkeys(average.policy for average in averages))
    with figure(path, 8, 0.8 + (0.7 + 0.28 * len(methods)) * len(horizons)) as drawing:
        axes = drawing.subplots(len(horizons), 2, squeeze=False, sharey=True)
        for (loop, title), panels in zip(LOOP_TITLES.items(), axes.T, strict=True):
            for horizon, panel in zip(horizons, panels, strict=True):
                here = [a for a in averages if a.horizon == horizon and loop in a.measures]
                for average in here:
                    means, intervals = points_with_intervals([average.measures[loop]])
                    place = [methods.index(average.policy)]
                    panel.errorbar(
                        means, place, xerr=intervals, **INTERVAL, **style(average.policy)
                    )
                logarithmic = scale_axis(panel, "x", [average.measures[loop] for average in here])
                scale = " (log scale)" if logarithmic else ""
                panel.set_title(f"{title}, horizon {horizon:,.0f}{scale}")
                panel.set_yticks(range(len(methods)), methods)
                panel.set_ylim(len(methods) - 0.5, -0.5)
        drawing.supxlabel(f"{_measured(averages)} (simulated time units)")


def _measured(averages: Sequence[PolicyAverage]) -> str:
    """Say what the dots and the lines of a figure are."""
    kinds = {average.interval for average in averages}
    if kinds == {"none"}:
        return "mean delay, one sample"
    over = " by a block bootstrap over the trace" if "blocks" in kinds else ""
    return f"mean delay with 95 % interval{over}"


def _draw_over_rates(
    panel: Axes, averages: Sequence[PolicyAverage], loop: str, shift: float
) -> None:
    """Draw one method; a small shift keeps the intervals of different methods apart."""
    if not averages:
        return
    means, intervals = points_with_intervals([average.measures[loop] for average in averages])
    panel.errorbar(
        [average.rate + shift for average in averages if average.rate is not None],
        means,
        yerr=intervals,
        linestyle=line(averages[0].policy),
        linewidth=1.2,
        label=f"{averages[0].policy} ({averages[0].level})",
        **INTERVAL,
        **style(averages[0].policy),
    )


def points_with_intervals(estimates: Sequence[Estimate]) -> tuple[list[float], list[list[float]]]:
    """Return means and the lengths of their intervals to both sides; NaN draws none.

    An interval that reaches zero runs off a logarithmic axis: it ends at a millionth of the mean.
    """
    means = [mean for mean, _ in estimates]
    widths = [nan if half_width is None else half_width for _, half_width in estimates]
    longest = [mean * (1 - 1e-6) for mean in means]
    return means, [np.minimum(widths, longest).tolist(), widths]


def scale_axis(axes: Axes, which: str, shown: Sequence[Estimate]) -> bool:
    """Scale an axis to what is shown: linear from zero, or logarithmic where values differ much.

    Returns whether it is logarithmic.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ends = [(mean, half_width or 0.0) for mean, half_width in shown]
    low = min((mean - width if width < mean else mean for mean, width in ends), default=0.0)
    high = max((mean + width for mean, width in ends), default=0.0) or 1.0
    if low * LINEAR_UP_TO >= high or low <= 0:
        axes.set(**{f"{which}lim": (0, high * 1.08)})
        return False
    axes.set(**{f"{which}scale": "log", f"{which}lim": (low / 1.25, high * 1.25)})
    axis = getattr(axes, f"{which}axis")
    decades = high > 1000 * low
    axis.set_major_locator(LogLocator(subs=(1,) if decades else (1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())
    return True


def busiest(averages: Sequence[PolicyAverage]) -> tuple[float, float | None]:
    """Return the longest horizon, and the highest rate of workloads there (the least β)."""
    horizon = max(average.horizon for average in averages)
    rates = [a.rate for a in averages if a.horizon == horizon and a.rate is not None]
    return horizon, min(rates) if rates else None


def plot_delays(averages: Sequence[PolicyAverage], path: Path) -> None:
    """Draw the paper's five delays, dots with intervals, at the highest rate and longest horizon.

    Dots, because a bar's length means nothing on a logarithmic axis, which has no zero.
    """
    horizon, rate = busiest(averages)
    chosen = [a for a in averages if a.horizon == horizon and a.rate == rate]
    with figure(path, 11, 1.3 + 0.28 * len(chosen)) as drawing:
        axes = drawing.subplots(1, len(DELAYS), sharey=True)
        for axis, delay in zip(axes, DELAYS, strict=True):
            for place, average in enumerate(chosen):
                means, intervals = points_with_intervals([average.measures[delay]])
                axis.errorbar(means, [place], xerr=intervals, **INTERVAL, **style(average.policy))
            logarithmic = scale_axis(axis, "x", [average.measures[delay] for average in chosen])
            axis.set_title(delay.replace("_", " ") + (" (log scale)" if logarithmic else ""))
            axis.tick_params(axis="x", labelrotation=45)
        axes[0].set_yticks(range(len(chosen)), [average.policy for average in chosen])
        axes[0].set_ylim(len(chosen) - 0.5, -0.5)
        rate_text = "" if rate is None else f"β = {rate:g}, "
        drawing.supxlabel(
            f"{_measured(chosen)} (simulated time units), {rate_text}horizon {horizon:,.0f}"
        )


def plot_training(logs: dict[str, list[list[dict[str, Any]]]], path: Path) -> None:
    """Draw the mean return of the last ten episodes; the dotted line marks 75 % of the training.

    `logs` maps a label to the episodes of one or more trainings that differ in their seeds: their
    mean is a line, their spread from the lowest to the highest a band.
    """
    with figure(path, 7, 4.2) as drawing:
        axis = drawing.subplots()
        at = np.linspace(0, 100, 201)
        for (label, trainings), look in zip(logs.items(), TRAINING_LOOKS * 4, strict=False):
            curves = [curve for episodes in trainings if (curve := _returns(episodes, at))]
            if not curves:
                continue
            colour, dashes = look
            seeds = "" if len(curves) == 1 else f" ({len(curves)} trainings)"
            mean = np.mean(curves, axis=0)
            axis.plot(at, mean, label=label + seeds, color=colour, linestyle=dashes, linewidth=1.4)
            if len(curves) > 1:
                low, high = np.min(curves, axis=0), np.max(curves, axis=0)
                axis.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
        axis.axvline(75, color="black", linestyle=":", linewidth=1)
        axis.set_xlabel("training steps (%); exploration falls until the dotted line, 75 %")
        axis.set_ylabel("mean return of the last 10 episodes")
        if axis.get_legend_handles_labels()[0]:  # none if no training got beyond population
            axis.legend(frameon=False, loc="lower right")


def _returns(episodes: Sequence[dict[str, Any]], at: Any) -> list[float]:
    """Return the returns of a training at these percentages of its steps; [] before the first."""
    trained = [e for e in episodes if e["phase"] != "buffer population"]
    if not trained:
        return []
    last = trained[-1]["training_steps"] or 1
    steps = [e["training_steps"] / last * 100 for e in trained]
    returned = [e["last_returns"] for e in trained]
    returns: list[float] = np.interp(at, steps, returned, left=nan).tolist()
    return returns


def plot_distribution(
    placed: dict[str, Any], nodes: Sequence[str], categories: Sequence[str], path: Path
) -> None:
    """Draw where each method sends the workloads of each cluster: [cluster, category, node]."""
    from matplotlib.patches import Patch

    methods = list(placed)
    columns = 2 if len(methods) <= MOST_IN_TWO_COLUMNS else 3
    rows = -(-len(methods) // columns)
    tones = ("#DDDDDD", "#888888", "#222222", "#BBAA66", "#66AABB")
    with figure(path, 11, 1.0 + 2.6 * rows) as drawing:
        axes = drawing.subplots(rows, columns, sharey=True, squeeze=False)
        for axis, method in zip(axes.flat, methods, strict=False):
            shares = np.asarray(placed[method], float)
            shares *= 100 / shares.sum()
            clusters, kinds, _ = shares.shape
            width = 0.8 / clusters
            for cluster in range(clusters):
                at = np.arange(len(nodes)) + (cluster - (clusters - 1) / 2) * width
                bottom = np.zeros(len(nodes))
                for kind in range(kinds):
                    axis.bar(at, shares[cluster, kind], width * 0.9, bottom, color=tones[kind % 5])
                    bottom += shares[cluster, kind]
            axis.set_title(method)
            shown = range(0, len(nodes), -(-len(nodes) // (40 // columns)))  # names that fit
            axis.set_xticks(shown, [nodes[n] for n in shown], rotation=45, ha="right")
        for axis in list(axes.flat)[len(methods) :]:
            axis.set_visible(False)
        for row in axes:
            row[0].set_ylabel("share of workloads (%)")
        patches = [Patch(color=tones[k % 5], label=name) for k, name in enumerate(categories)]
        drawing.legend(handles=patches, loc="outside lower center", ncols=5, frameon=False)
        drawing.suptitle("per Fog node, one bar per IoT cluster (cluster-1 leftmost)", fontsize=9)
