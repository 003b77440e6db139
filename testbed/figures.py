"""Figures from results: one look, one colour per method everywhere, readable in grey."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
}
OTHERS = ("#B8860B", "#7F0000", "#004D40", "#4A148C")
LEVEL_LINES = {"none": ":", "total": "-", "count": "-", "full": "--"}
"""Dashed: needs what providers would not tell. Dotted: looks at nothing."""


def style(policy: str) -> dict[str, Any]:
    """Return colour and marker of a method, the same in every figure."""
    fallback = (OTHERS[sum(policy.encode()) % len(OTHERS)], "P")
    colour, marker = STYLES.get(policy, fallback)
    return {"color": colour, "marker": marker}


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
            made.savefig(path.with_suffix(".png"), dpi=150)
            made.savefig(path.with_suffix(".svg"), metadata={"Date": None})


def plot_loops(rows: list[Row], path: Path) -> None:
    """Draw the mean delay of both loops over the rate, one panel per horizon."""
    from matplotlib.ticker import ScalarFormatter

    loops = {"fog_loop": "Fog loop", "cloud_loop": "Cloud loop"}
    horizons = list(dict.fromkeys(row.horizon for row in rows))
    policies = list(dict.fromkeys(row.policy for row in rows))
    with figure(path, 1.2 + 3.4 * len(horizons), 6.6) as made:
        axes = made.subplots(2, len(horizons), squeeze=False, sharey="row")
        for (loop, title), line in zip(loops.items(), axes, strict=True):
            for horizon, axis in zip(horizons, line, strict=True):
                for policy in policies:
                    _draw_policy(axis, [r for r in rows if r[0] == policy], horizon, loop)
                axis.set_yscale("log")
                axis.yaxis.set_major_formatter(ScalarFormatter())
                axis.set_title(f"{title}, horizon {horizon:,.0f}")
                axis.set_xlabel("β, mean time between a source's workloads (busier →)")
                axis.invert_xaxis()
            line[0].set_ylabel("mean delay (simulated time units)")
        handles, labels = axes[0][0].get_legend_handles_labels()
        made.legend(handles, labels, loc="outside right upper", frameon=False)


def _draw_policy(axis: Any, rows: list[Row], horizon: float, loop: str) -> None:
    points = [r for r in rows if r.horizon == horizon and loop in r.measures]
    if not points:
        return
    means = [row.measures[loop].mean for row in points]
    spreads = [row.measures[loop].half_width or 0.0 for row in points]
    rates = [row.rate or 0.0 for row in points]
    axis.errorbar(
        rates,
        means,
        yerr=spreads,
        linestyle=LEVEL_LINES[points[0].level],
        capsize=2,
        linewidth=1.2,
        markersize=5,
        label=f"{points[0].policy} ({points[0].level})",
        **style(points[0].policy),
    )
    axis.set_xticks(sorted(set(rates)), [f"{rate:g}" for rate in sorted(set(rates))])


def plot_delays(rows: list[Row], path: Path) -> None:
    """Draw the paper's five delays as bars, at the highest rate and the longest horizon."""
    horizon = max(row.horizon for row in rows)
    rates = [row.rate for row in rows if row.rate is not None]
    rate = min(rates) if rates else None
    shown = [row for row in rows if row.horizon == horizon and row.rate == rate]
    with figure(path, 11, 0.9 + 0.28 * len(shown)) as made:
        axes = made.subplots(1, len(DELAYS), sharey=True)
        for axis, delay in zip(axes, DELAYS, strict=True):
            names = [row.policy for row in shown]
            means = [row.measures[delay].mean for row in shown]
            colours = [style(name)["color"] for name in names]
            axis.barh(names, means, color=colours, edgecolor="black", linewidth=0.4)
            axis.set_title(delay.replace("_", " "))
            axis.grid(visible=False, axis="y")
            if delay not in ("latency", "service"):
                axis.set_xscale("log")
        axes[0].invert_yaxis()
        rate_text = "" if rate is None else f"β = {rate:g}, "
        made.supxlabel(f"mean delay (simulated time units), {rate_text}horizon {horizon:,.0f}")
