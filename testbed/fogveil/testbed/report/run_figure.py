"""A figure of one run: the delay of its jobs over simulated time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from fogveil.testbed.report.figures import figure

POINTS = 300
"""Points of a line, at most."""
FEWEST = 20
"""Jobs of a point, where the run has so many."""
SHARE = 40
"""A point is over this part of all jobs."""


def plot_over_time(jobs: pa.Table, horizon: float, path: Path) -> None:
    """Draw the Fog loop of jobs by their emission: a rolling median, and a band of 90 %."""
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
    with figure(path, 8, 3.4) as drawing:
        axis = drawing.subplots()
        axis.fill_between(at, low, high, color="#0072B2", alpha=0.2, linewidth=0, label="90 %")
        axis.plot(at, middle, color="#0072B2", linewidth=1.4, label="median")
        axis.set_xlim(0, horizon)
        axis.set_ylim(bottom=0)
        axis.set_xlabel(f"simulated time of emission; each point over {width} workloads")
        axis.set_ylabel("Fog loop (simulated time units)")
        axis.legend(frameon=False, loc="best")
