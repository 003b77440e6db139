"""Pictures of the environment: the jobs queued at each node, as text and as pixels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

LONGEST_BAR = 40
"""Characters."""
FEWEST = 5
"""Jobs up to which the axis of a picture reaches at least."""


class Frame(NamedTuple):
    """What a picture shows: the experimenter's view, at every disclosure level."""

    title: str
    at_hand: dict[str, Any] | None
    """The workload to be placed; None after the last."""
    node: str | None
    """Where the last workload was placed."""
    reward: float | None
    counts: dict[str, int]

    @property
    def caption(self) -> str:
        """The workload at hand, in words."""
        if self.at_hand is None:
            return "all workloads are placed"
        return "time {time:.1f}: {category} from {cluster}".format(**self.at_hand)

    @property
    def last(self) -> str:
        """The last placement, in words."""
        if self.node is None or self.reward is None:
            return "nothing is placed yet"
        return f"last on {self.node}, reward {self.reward:.4g}"


def draw_text(frame: Frame) -> str:
    """Return the queues as lines of text."""
    width = max(map(len, frame.counts))
    lines = [f"{frame.title}, {frame.caption}", frame.last]
    for name, count in frame.counts.items():
        bar = "█" * min(count, LONGEST_BAR) + ("…" if count > LONGEST_BAR else "")
        marker = "▸" if name == frame.node else " "
        lines.append(f"{marker} {name:{width}} {count:4d} {bar}".rstrip())
    return "\n".join(lines) + "\n"


def draw_rgb(frame: Frame) -> npt.NDArray[np.uint8]:
    """Return the queues as a picture, [row, column, colour]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.8, 0.9 + 0.22 * len(frame.counts)), dpi=100, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    names, counts = list(frame.counts), list(frame.counts.values())
    colours = ["tab:orange" if name == frame.node else "tab:blue" for name in names]
    bars = axes.barh(names, counts, color=colours)
    axes.bar_label(bars, padding=2, fontsize=7)
    axes.set_xlim(0, max(FEWEST, *counts) * 1.1)
    axes.invert_yaxis()
    axes.tick_params(labelsize=7)
    for label, colour in zip(axes.get_yticklabels(), colours, strict=True):
        label.set_color("black" if colour == "tab:blue" else colour)
    axes.set_xlabel(f"queued jobs ({frame.last})", fontsize=7)
    axes.set_title(f"{frame.title}, {frame.caption}", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    canvas.draw()  # type: ignore[no-untyped-call]  # matplotlib's
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]  # likewise
    return pixels[:, :, :3].copy()
