"""The agent's record: one line per decision, with the counts that its policy observed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fogveil.agent.policy import Observation
from fogveil.core.files import LARGEST_RECORD, open_private, read_record_lines

HEADER = "job,cluster,category,node,emitted,arrival,demand,seen"
UNSEEN = -1
"""Stands for a count that the policy did not observe."""


class Decision(NamedTuple):
    """A decision as it was taken."""

    job: int
    cluster: int
    category: int
    node: int
    emitted: float
    arrival: float
    counts: tuple[int, ...]
    """What `observed_counts` returned for it."""
    demand: float | None = None
    """What the job demands, where it brings its own."""


def observed_counts(observation: Observation) -> tuple[int, ...]:
    """Return the counts of an observation as records keep them.

    The total alone, or each Fog node's count and the Cloud's; empty where nothing was disclosed.

    >>> observed_counts(Observation(1.5, 7, 0, 1, counts=(2, 0, 4)))
    (2, 0, 4, -1)
    """
    counts, cloud_count, total = observation[4:7]
    if counts is not None:
        return (*counts, UNSEEN if cloud_count is None else cloud_count)
    return () if total is None else (total,)


def record_path(folder: Path, episode: int) -> Path:
    """Return the file of an episode's record."""
    return folder / f"decisions-{episode:04}.csv"


class DecisionRecord:
    """Appends decisions to a private file; numbers are written so that they read back exactly."""

    def __init__(self, folder: Path, episode: int) -> None:
        self._file = open_private(record_path(folder, episode), encoding="ascii")
        self._file.write(HEADER + "\n")
        self._file.flush()

    def add(self, decision: Decision) -> None:
        """Append a decision."""
        *numbers, emitted, arrival, counts, demand = decision
        first, seen = ",".join(map(str, numbers)), " ".join(map(str, counts))
        own = "" if demand is None else repr(demand)
        self._file.write(f"{first},{emitted!r},{arrival!r},{own},{seen}\n")

    def flush(self) -> None:
        """Hand all decisions to the operating system, so that they survive this process."""
        self._file.flush()

    def close(self) -> None:
        """Write the rest and close the file."""
        self._file.close()


def read_record(path: Path, limit: int = LARGEST_RECORD) -> Iterator[Decision]:
    """Yield the decisions of a record, which the agent may have replaced by anything."""
    for line in read_record_lines(path, HEADER, limit):
        job, cluster, category, node, emitted, arrival, demand, seen = line.split(",")
        numbers = int(job), int(cluster), int(category), int(node)
        counts = tuple(map(int, seen.split()))
        own = float(demand) if demand else None
        yield Decision(*numbers, float(emitted), float(arrival), counts, own)
