"""Queueing disciplines: in which order the jobs that wait are served."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Protocol

Waiting = tuple[float, int, int, float]
"""A job that waits: (arrival, job, category, service time)."""


class Discipline(Protocol):
    """The line in front of the servers of one node."""

    def push(self, job: Waiting) -> None:
        """Take a job into the line. Jobs come in order of (arrival, job)."""

    def pop(self) -> Waiting:
        """Give up the job to be served next."""

    def __len__(self) -> int:
        """How many jobs wait."""

    def __iter__(self) -> Iterator[Waiting]:
        """Yield the jobs that wait, in any order."""


class FirstComeFirstServed(deque[Waiting]):
    """Jobs start in the order in which they arrived."""

    push = deque.append
    pop = deque.popleft  # the line gives up its head, not its tail


class ShortestJobFirst:
    """The shortest job that waits starts next; none is interrupted."""

    def __init__(self) -> None:
        self._line: list[tuple[float, Waiting]] = []

    def push(self, job: Waiting) -> None:
        """Take a job into the line."""
        heappush(self._line, (job[3], job))

    def pop(self) -> Waiting:
        """Give up the shortest job, the earlier of two equal ones."""
        return heappop(self._line)[1]

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[Waiting]:
        return (job for _, job in self._line)

    def __copy__(self) -> ShortestJobFirst:
        twin = ShortestJobFirst()
        twin._line = self._line[:]
        return twin


FIFO = "fifo"
DISCIPLINES: dict[str, type[FirstComeFirstServed | ShortestJobFirst]] = {
    FIFO: FirstComeFirstServed,
    "sjf": ShortestJobFirst,
}
