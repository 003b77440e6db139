"""The figures of changes: delay over time in the oracle's, a panel for each kind of change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fogveil.testbed.report.figures import figure

COLUMNS = 3
TICKS = (1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0)
LOWEST = 0.93
"""Where panels end: the oracle's bad luck with one job is of no interest."""


class Look(NamedTuple):
    """How a method is drawn."""

    colour: str
    dashes: str = "-"
    width: float = 1.5


class Panel(NamedTuple):
    """One kind of change."""

    title: str
    lines: Mapping[str, Sequence[float]]
    """The ratio of each method at the times of the figure."""
    marks: Sequence[float] = ()
    """When something happens beside the change, from it on."""


def plot_changes(
    times: Sequence[float],
    panels: Sequence[Panel],
    looks: Mapping[str, Look],
    tolerance: float,
    path: Path,
) -> None:
    """Draw the panels; times are from the change on."""
    rows = -(-len(panels) // COLUMNS)
    highest = max(max(line) for panel in panels for line in panel.lines.values())
    with figure(path, 11.0, 0.7 + 2.5 * rows) as drawing:
        axes = drawing.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False)
        for axis, panel in zip(axes.flat, panels, strict=False):
            axis.axhspan(1 / tolerance, tolerance, color="#009E73", alpha=0.12, linewidth=0)
            axis.axvline(0.0, color="#D55E00", linestyle="--", linewidth=1.0)
            for mark in panel.marks:
                axis.axvline(mark, color="#D55E00", linestyle=":", linewidth=1.0)
            for method, line in panel.lines.items():
                colour, dashes, width = looks[method]
                axis.plot(
                    times, line, color=colour, linestyle=dashes, linewidth=width, label=method
                )
            axis.set_title(panel.title)
            axis.set_yscale("log")
            axis.set_ylim(LOWEST, highest * 1.05)
            shown = [tick for tick in TICKS if tick <= highest]
            axis.set_yticks(shown, [f"{tick:g}" for tick in shown])
            axis.minorticks_off()
        for axis in axes.flat[len(panels) :]:
            axis.set_visible(False)
        for axis in axes[:, 0]:
            axis.set_ylabel("delay, in the oracle's")
        for axis in axes[-1]:
            axis.set_xlabel("simulated time since the change")
        lines = {
            label: handle
            for axis in axes.flat[: len(panels)]
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        drawing.legend(
            [lines[method] for method in looks if method in lines],
            [method for method in looks if method in lines],
            loc="outside lower center",
            ncols=len(lines),
            frameon=False,
        )
