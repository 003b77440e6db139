"""The figure of the map: a panel per method, a square per environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fogveil.testbed.report.figures import figure

LARGEST = 100.0
"""Ratio from which on the colour does not change."""
DARK_BELOW = 8.0


class Cell(NamedTuple):
    """A method in one environment."""

    ratio: float
    """Delay in the oracle's."""
    text: str
    stable: bool


def plot_map(
    columns: Sequence[float],
    rows: Sequence[float],
    panels: Mapping[str, Mapping[tuple[float, float], Cell]],
    path: Path,
) -> None:
    """Draw each method's cells by (column, row), coloured by the ratio, crossed where unstable."""
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    norm, colours = LogNorm(1.0, LARGEST), colormaps["cividis"]
    with figure(path, 11.0, 3.4) as drawing:
        axes = drawing.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, (title, cells) in zip(axes, panels.items(), strict=True):
            for (column, row), cell in cells.items():
                x, y = columns.index(column), rows.index(row)
                shade = colours(norm(min(max(cell.ratio, 1.0), LARGEST)))
                axis.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, color=shade, ec="white"))
                ink = "white" if cell.ratio < DARK_BELOW else "black"
                axis.text(x, y, cell.text, ha="center", va="center", color=ink, fontsize=7)
                if not cell.stable:
                    corner = [x - 0.46, x + 0.46], [y + 0.44, y + 0.44]
                    axis.plot(*corner, color="#D55E00", linewidth=3, solid_capstyle="butt")
            axis.set_xlim(-0.5, len(columns) - 0.5)
            axis.set_ylim(-0.5, len(rows) - 0.5)
            axis.set_xticks(range(len(columns)), [f"{column:g}" for column in columns])
            axis.set_yticks(range(len(rows)), [f"{row:.0%}" for row in rows])
            axis.grid(visible=False)
            axis.set_title(title)
            axis.set_xlabel("κ: latency in decisions")
        axes[0].set_ylabel("load of the Fog")
        from matplotlib.cm import ScalarMappable

        bar = drawing.colorbar(ScalarMappable(norm, colours), ax=list(axes), extend="max")
        bar.set_label("delay, in the oracle's")
        bar.ax.grid(visible=False)
