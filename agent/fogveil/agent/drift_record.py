"""The agent's record of drifts: when it began to learn at work, and why (`--adapt=auto`).

It follows from what the agent was told and from nothing else, as its decisions do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import isfinite
from pathlib import Path

from fogveil.agent.learning.adapting import Firing
from fogveil.core.files import read_record_lines, write_private

HEADER = ",".join(Firing._fields)
SIGNAL = re.compile(r"[a-z ]{1,100}")
"""What may stand for a signal: the record's reader shows it to a person."""
LONGEST_LINE = 256
"""Bytes of a line at most."""


def drifts_path(folder: Path, episode: int) -> Path:
    """Return the file of an episode's record."""
    return folder / f"drifts-{episode:04}.csv"


def agent_path(folder: Path, episode: int) -> Path:
    """Return the file of the weights that an agent has at the end of an episode."""
    return folder / f"agent-{episode:04}.npz"


def checkpoint_path(folder: Path, episode: int) -> Path:
    """Return the file of the complete state that an agent has at the end of an episode."""
    return folder / f"checkpoint-{episode:04}.npz"


def describe_firing(firing: Firing) -> str:
    """Return one line for a person.

    >>> describe_firing(Firing(1240, 5013.2, "the sum of queued jobs rises", 13.25, 12.0))
    'drift at time 5,013 (decision 1,240): the sum of queued jobs rises (13.2 > 12); it learns'
    """
    until = "" if firing.until is None else f" until decision {firing.until:,}"
    return (
        f"drift at time {firing.time:,.0f} (decision {firing.decision:,}): {firing.signal} "
        f"({firing.statistic:.1f} > {firing.threshold:g}); it learns{until}"
    )


def write_drifts(folder: Path, episode: int, firings: Iterable[Firing]) -> None:
    """Write an episode's record; numbers read back exactly."""
    lines = [HEADER]
    for decision, time, signal, statistic, threshold, until in firings:
        off = "" if until is None else str(until)
        lines.append(f"{decision},{time!r},{signal},{statistic!r},{threshold!r},{off}")
    write_private(drifts_path(folder, episode), "\n".join(lines) + "\n")


def read_drifts(path: Path, limit: int) -> list[Firing]:
    """Return a record's content, which the agent may have replaced by anything; or ValueError."""
    firings = []
    for line in read_record_lines(path, HEADER, limit):
        decision, time, signal, statistic, threshold, until = line.split(",")
        firing = Firing(
            *(int(decision), float(time), signal, float(statistic), float(threshold)),
            int(until) if until else None,
        )
        if not SIGNAL.fullmatch(signal) or not all(map(isfinite, (firing.time, *firing[3:5]))):
            raise ValueError(f"{path.name} holds no drift: {line[:LONGEST_LINE]!r}")
        firings.append(firing)
    return firings
