"""The agent's own record: one line per decision, with what its policy was shown."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HEADER = "job,cluster,category,node,emitted,arrival,seen"
UNSEEN = -1
"""Stands for a count that the policy was not given."""


class Decision(NamedTuple):
    """A decision as it was taken."""

    job: int
    cluster: int
    category: int
    node: int
    emitted: float
    arrival: float
    seen: tuple[int, ...]
    """The counts as the policy was given them; empty where it was given none."""


def record_path(folder: Path, episode: int) -> Path:
    """Return where the record of an episode lies."""
    return folder / f"decisions-{episode:04}.csv"


class Record:
    """Appends decisions; numbers are written so that they read back exactly."""

    def __init__(self, folder: Path, episode: int) -> None:
        path = record_path(folder, episode)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._file = os.fdopen(descriptor, "w", encoding="ascii")
        self._file.write(HEADER + "\n")
        self._file.flush()

    def add(self, decision: Decision) -> None:
        """Note a decision."""
        *numbers, emitted, arrival, seen = decision
        first = ",".join(map(str, numbers))
        self._file.write(f"{first},{emitted!r},{arrival!r},{' '.join(map(str, seen))}\n")

    def flush(self) -> None:
        """Hand what was noted to the operating system: it outlives the agent."""
        self._file.flush()

    def close(self) -> None:
        """Write the rest."""
        self._file.close()


def read_record(path: Path) -> Iterator[Decision]:
    """Read a record back."""
    with path.open(encoding="ascii") as file:
        if file.readline().rstrip("\n") != HEADER:
            raise ValueError(f"{path} is not an agent's record")
        for line in file:
            job, cluster, category, node, emitted, arrival, seen = line.rstrip("\n").split(",")
            numbers = int(job), int(cluster), int(category), int(node)
            yield Decision(*numbers, float(emitted), float(arrival), tuple(map(int, seen.split())))
