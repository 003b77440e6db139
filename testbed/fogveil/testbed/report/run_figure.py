"""A figure of one run: the delay of its jobs over simulated time, and the events on the way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fogveil.testbed.report.figures import figure
from fogveil.testbed.scenario.event_text import EventText, event_texts
from fogveil.testbed.scenario.events import AnyEvent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 300
"""Points of a line, at most."""
FEWEST = 20
"""Jobs of a point, where the run has so many."""
SHARE = 40
"""A point is over this part of all jobs."""
IN_ONE_COLUMN = 4
"""Instants that the key of events lists one below the other; more take two columns."""


def plot_over_time(
    jobs: pa.Table, horizon: float, path: Path, events: Sequence[AnyEvent] = ()
) -> None:
    """Draw the Fog loop of jobs by their emission: a rolling median, and a band of 90 %.

    Events are marked where they happen.
    """
    emitted = jobs["emitted"].to_numpy()
    order = np.argsort(emitted, kind="stable")
    emitted = emitted[order]
    delay = (jobs["returned"].to_numpy() - jobs["emitted"].to_numpy())[order]
    width = min(max(len(delay) // SHARE, FEWEST), len(delay))
    last = len(delay) - width
    begins = sorted(set(np.linspace(0, last, POINTS).astype(int).tolist())) if width else []
    at = [emitted[begin : begin + width].mean() for begin in begins]
    bands = [np.percentile(delay[begin : begin + width], (5, 50, 95)) for begin in begins]
    low, middle, high = np.array(bands).T if bands else ([], [], [])
    marks = [mark for mark in event_texts(events) if mark.at <= horizon]
    instants = len({mark.at for mark in marks})
    rows = -(-instants // 2) if instants > IN_ONE_COLUMN else instants
    with figure(path, 8, 3.4 + 0.17 * rows) as drawing:
        axis = drawing.subplots()
        axis.fill_between(at, low, high, color="#0072B2", alpha=0.2, linewidth=0, label="90 %")
        axis.plot(at, middle, color="#0072B2", linewidth=1.4, label="median")
        axis.set_xlim(0, horizon)
        axis.set_ylim(bottom=0)
        axis.set_xlabel(f"simulated time of emission; each point over {width} workloads")
        axis.set_ylabel("Fog loop (simulated time units)")
        axis.legend(frameon=False, loc="best")
        mark_events(drawing, axis, marks)


def mark_events(drawing: Figure, axis: Axes, marks: Sequence[EventText]) -> None:
    """Draw a numbered line for each instant at which something happens; a key says what."""
    at_once: dict[float, list[str]] = {}
    for mark in marks:
        at_once.setdefault(mark.at, []).append(mark.what)
    lines, texts = [], []
    for number, (at, happening) in enumerate(at_once.items(), 1):
        lines.append(axis.axvline(at, color="#D55E00", linestyle="--", linewidth=0.9))
        texts.append(f"{number}  at {at:,g}: {'; '.join(happening)}")
        axis.annotate(
            str(number),
            (at, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color="#8C3D00",
        )
    if texts:
        columns = 2 if len(texts) > IN_ONE_COLUMN else 1
        style: dict[str, Any] = {"fontsize": 7.5, "frameon": False, "handlelength": 0}
        style |= {"handletextpad": 0, "labelcolor": "#8C3D00", "ncols": columns}
        drawing.legend(lines, texts, loc="outside lower center", **style)
