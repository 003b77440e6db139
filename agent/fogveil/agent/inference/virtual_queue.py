"""A node's queue as the agent computes it, from its own placements and estimated service times."""

from __future__ import annotations

from bisect import bisect, insort
from collections import deque
from collections.abc import Sequence

from fogveil.agent.inference.node_belief import Finished
from fogveil.agent.inference.own_job import OwnJob


class VirtualQueue:
    """First come, first served, one server; all arrivals are the agent's own.

    >>> queue = VirtualQueue([3.0])
    >>> queue.place(1.0, 7, 0), queue.place(2.0, 8, 0)
    (None, None)
    >>> [job.finished for job in queue.advance(5.0)], queue.waiting, queue.in_system
    ([4.0], 0, 1)
    >>> queue.finish(arrival=5.0, job=9, category=0)
    10.0
    """

    def __init__(self, service: Sequence[float]) -> None:
        self.service = service
        """By category."""
        self._now = 0.0
        self._free = 0.0
        """When all that has arrived is served."""
        self._in_transit: list[OwnJob] = []
        self._arrived: deque[Finished] = deque()
        """Jobs that have not finished."""
        self._held: list[Finished] | None = None
        """The unfinished jobs of a node that has crashed."""

    def place(self, arrival: float, job: int, category: int) -> None:
        """Add a job that will arrive."""
        insort(self._in_transit, OwnJob(arrival, job, category))

    def advance(self, now: float) -> list[Finished]:
        """Continue to an instant, and return the jobs that have finished by it."""
        in_transit, self._now = self._in_transit, now
        if self._held is not None:
            return []
        # Jobs placed from now on arrive later: the order of those that have arrived is final.
        arrived = 0
        while arrived < len(in_transit) and in_transit[arrived].arrival <= now:
            job = in_transit[arrived]
            start = max(self._free, job.arrival)
            self._free = start + self.service[job.category]
            self._arrived.append(Finished(job.job, job.arrival, start, self._free))
            arrived += 1
        del in_transit[:arrived]
        finished = []
        while self._arrived and self._arrived[0].finished <= now:
            finished.append(self._arrived.popleft())
        return finished

    def hold(self) -> None:
        """Stop: the node has crashed with what it holds."""
        self._held = list(self._arrived)
        self._arrived.clear()
        self._free = self._now

    def release(self, now: float) -> None:
        """Go on: the node is back and serves all it held, each job from its beginning."""
        held, self._held, self._free = self._held or [], None, now
        for job in held:
            start, self._free = self._free, self._free + job.finished - job.started
            self._arrived.append(Finished(job.job, job.arrival, start, self._free))

    @property
    def in_system(self) -> int:
        """Jobs that have arrived and not finished."""
        return len(self._arrived)

    @property
    def waiting(self) -> int:
        """Jobs that have arrived and not started."""
        return sum(job.started > self._now for job in self._arrived)

    @property
    def in_transit(self) -> int:
        """Jobs that have not arrived."""
        return len(self._in_transit)

    @property
    def backlog(self) -> float:
        """The time until all that has arrived is served."""
        return max(self._free - self._now, 0.0)

    def finish(self, arrival: float, job: int, category: int) -> float:
        """Return when a job would be served that arrives then."""
        free = self._free
        for other in self._in_transit:
            if other.arrival > arrival or (other.arrival == arrival and other.job > job):
                break
            free = max(free, other.arrival) + self.service[other.category]
        return max(free, arrival) + self.service[category]

    def overtaken_by(self, arrival: float, job: int) -> int:
        """Return how many jobs in transit would arrive after a job placed now."""
        return len(self._in_transit) - bisect(self._in_transit, OwnJob(arrival, job, 0))
