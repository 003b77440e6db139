"""Figures from results: one look, one colour per method everywhere, readable in grey."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.compare import Row
from testbed.records import writing
from testbed.summary import DELAYS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette tells apart in every kind of colour vision; markers tell apart in grey.
STYLES = {
    "random": ("#999999", "x"),
    "round-robin": ("#666666", "+"),
    "nearest": ("#E69F00", "v"),
    "fastest": ("#D55E00", "^"),
    "electre": ("#CC79A7", "s"),
    "electre-queue": ("#8C510A", "D"),
    "p2c": ("#56B4E9", "<"),
    "jsq": ("#0072B2", ">"),
    "lwl": ("#B2ABD2", "p"),
    "sed": ("#5E3C99", "h"),
    "setr": ("#000000", "*"),
    "ci-setr": ("#009E73", "o"),
    "parl": ("#B2182B", "o"),
    "plrl-ed": ("#F4A582", "s"),
    "plrl-ql": ("#92C5DE", "D"),
    "plrl-edql": ("#2166AC", "P"),
    "veil": ("#1B7837", "X"),
}
LEARNED = ("parl", "plrl-ed", "plrl-ql", "plrl-edql", "veil")
OTHERS = ("#B8860B", "#7F0000", "#004D40", "#4A148C")


def style(method: str) -> dict[str, Any]:
    """Return colour and marker of a method, the same in every figure."""
    fallback = (OTHERS[sum(method.encode()) % len(OTHERS)], "P")
    colour, marker = STYLES.get(_family(method), fallback)
    return {"color": colour, "marker": marker}


def line(method: str) -> str:
    """Learned methods are drawn solid, traditional ones dashed, the two inferring rules dotted."""
    if _family(method) in LEARNED:
        return "-"
    return ":" if method in ("setr", "ci-setr") else "--"


def _family(method: str) -> str:
    """The agent that a trained one, named by its folder, is of."""
    found = [name for name in LEARNED if method == name or method.startswith(f"{name}-")]
    return max(found, key=len) if found else method


@contextmanager
def figure(path: Path, width: float, height: float) -> Iterator[Figure]:
    """Make a figure and save it as PNG and SVG under the same name."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    look: dict[Any, Any] = {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#DDDDDD",
        "grid.linewidth": 0.6,
        "axes.axisbelow": True,
        "svg.hashsalt": "fogveil",
    }
    with mpl.rc_context(look):
        made = Figure(figsize=(width, height), layout="constrained")
        yield made
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            made.savefig(f"{path}.png", dpi=150)
            made.savefig(f"{path}.svg", metadata={"Date": None})


def plot_loops(rows: list[Row], path: Path) -> None:
    """Draw the mean delay of both loops over the rate, one panel per horizon."""
    loops = {"fog_loop": "Fog loop", "cloud_loop": "Cloud loop"}
    horizons = list(dict.fromkeys(row.horizon for row in rows))
    methods = list(dict.fromkeys(row.policy for row in rows))
    rates = sorted({row.rate or 0.0 for row in rows})
    with figure(path, 1.6 + 3.4 * len(horizons), 6.6) as made:
        axes = made.subplots(2, len(horizons), squeeze=False, sharey="row")
        for (loop, title), panels in zip(loops.items(), axes, strict=True):
            for horizon, axis in zip(horizons, panels, strict=True):
                for method in methods:
                    _draw_method(axis, [r for r in rows if r.policy == method], horizon, loop)
                _logarithmic(axis, "y")
                axis.set_xticks(rates, [f"{rate:g}" for rate in rates])
                axis.set_title(f"{title}, horizon {horizon:,.0f}")
                axis.set_xlabel("β: mean time between workloads (busier →)")
                axis.invert_xaxis()
            panels[0].set_ylabel("mean delay (simulated time units)")
        handles, labels = axes[0][0].get_legend_handles_labels()
        made.legend(handles, labels, loc="outside right upper", frameon=False)


def _logarithmic(axes: Any, which: str) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set(**{f"{which}scale": "log"})
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axis.set_minor_formatter(NullFormatter())


def _draw_method(axis: Any, rows: list[Row], horizon: float, loop: str) -> None:
    points = [r for r in rows if r.horizon == horizon and loop in r.measures]
    if not points:
        return
    means = [row.measures[loop].mean for row in points]
    # Where few seeds leave the lower end below zero, the bar ends just above it.
    spreads = [
        min(row.measures[loop].half_width or 0.0, 0.9 * row.measures[loop].mean) for row in points
    ]
    rates = [row.rate or 0.0 for row in points]
    axis.errorbar(
        rates,
        means,
        yerr=spreads,
        linestyle=line(points[0].policy),
        capsize=2,
        linewidth=1.2,
        markersize=5,
        label=f"{points[0].policy} ({points[0].level})",
        **style(points[0].policy),
    )


def plot_delays(rows: list[Row], path: Path) -> None:
    """Draw the paper's five delays as bars, at the highest rate and the longest horizon."""
    horizon = max(row.horizon for row in rows)
    rates = [row.rate for row in rows if row.rate is not None]
    rate = min(rates) if rates else None
    shown = [row for row in rows if row.horizon == horizon and row.rate == rate]
    with figure(path, 11, 1.1 + 0.28 * len(shown)) as made:
        axes = made.subplots(1, len(DELAYS), sharey=True)
        for axis, delay in zip(axes, DELAYS, strict=True):
            names = [row.policy for row in shown]
            means = [max(row.measures[delay].mean, 0.1) for row in shown]
            colours = [style(name)["color"] for name in names]
            axis.barh(names, means, color=colours, edgecolor="black", linewidth=0.4)
            axis.set_title(delay.replace("_", " "))
            axis.grid(visible=False, axis="y")
            if delay not in ("latency", "service"):
                _logarithmic(axis, "x")
                axis.tick_params(axis="x", labelrotation=45)
        axes[0].invert_yaxis()
        rate_text = "" if rate is None else f"β = {rate:g}, "
        made.supxlabel(f"mean delay (simulated time units), {rate_text}horizon {horizon:,.0f}")


def plot_training(logs: dict[str, list[list[dict[str, Any]]]], path: Path) -> None:
    """Draw the mean return of the last ten episodes; the dotted line marks 75 % of the training.

    `logs` holds, by label, the episodes of one or more trainings that differ in their seeds.
    """
    with figure(path, 7, 4.2) as made:
        axis = made.subplots()
        greys = ("#000000", "#B2182B", "#2166AC", "#1B7837", "#E69F00")
        for (label, trainings), colour in zip(logs.items(), greys * 4, strict=False):
            for number, episodes in enumerate(trainings):
                trained = [e for e in episodes if e["phase"] != "buffer population"]
                if not trained:
                    continue
                last = trained[-1]["training_steps"] or 1
                steps = [e["training_steps"] / last * 100 for e in trained]
                returns = [e["last_returns"] for e in trained]
                shown = label if number == 0 else None
                axis.plot(steps, returns, color=colour, linewidth=0.9, alpha=0.8, label=shown)
        axis.axvline(75, color="black", linestyle=":", linewidth=1)
        axis.set_xlabel("training steps (%)")
        axis.set_ylabel("mean return of the last 10 episodes")
        if axis.get_legend_handles_labels()[0]:  # none has begun to train yet
            axis.legend(frameon=False)


def plot_distribution(
    placed: dict[str, Any], nodes: Sequence[str], categories: Sequence[str], path: Path
) -> None:
    """Draw where each method sends the workloads of each cluster: [cluster, category, node]."""
    panels = list(placed)
    columns = 2
    height = 1.0 + 2.6 * -(-len(panels) // columns)
    tones = ("#DDDDDD", "#888888", "#222222", "#BBAA66", "#66AABB")
    with figure(path, 11, height) as made:
        axes = made.subplots(-(-len(panels) // columns), columns, sharey=True, squeeze=False)
        for axis, method in zip(axes.flat, panels, strict=False):
            table = np.asarray(placed[method], float)
            table *= 100 / table.sum()
            clusters, kinds, _ = table.shape
            width = 0.8 / clusters
            for cluster in range(clusters):
                at = np.arange(len(nodes)) + (cluster - (clusters - 1) / 2) * width
                bottom = np.zeros(len(nodes))
                for kind in range(kinds):
                    axis.bar(at, table[cluster, kind], width * 0.9, bottom, color=tones[kind % 5])
                    bottom += table[cluster, kind]
            axis.set_title(method)
            axis.set_xticks(range(len(nodes)), nodes, rotation=45, ha="right")
        for axis in list(axes.flat)[len(panels) :]:
            axis.set_visible(False)
        for row in axes:
            row[0].set_ylabel("share of workloads (%)")
        from matplotlib.patches import Patch

        patches = [Patch(color=tones[k % 5], label=name) for k, name in enumerate(categories)]
        made.legend(handles=patches, loc="outside lower center", ncols=5, frameon=False)
        made.suptitle("per Fog node, one bar per IoT cluster (cluster-1 leftmost)", fontsize=9)
