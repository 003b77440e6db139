"""Shortest expected total response: the greedy oracle with full knowledge."""

from __future__ import annotations

from bisect import insort
from math import inf
from typing import NamedTuple

from fogveil.agent.policy import Level, Observation, PerNode, Policy


class _InTransit(NamedTuple):
    """A job on its way to a node."""

    arrival: float
    job: int
    category: int
    service: float


class ShortestTotalResponse(Policy):
    """Know the queues, the jobs in transit and every service factor; minimise this job's delay.

    Greedy and clairvoyant. It mirrors the jobs in transit to each node, which it placed itself, so
    that the delay it predicts is the delay that a FIFO node with one server gives. It is told
    every change: of a speed or of a demand, which jobs in transit will meet, and of a job that is
    lost.
    """

    needs = Level.FULL

    def reset(self) -> None:
        """Drop the jobs in transit."""
        self._in_transit: list[list[_InTransit]] = [[] for _ in self.view.nodes]
        self._shown: tuple[PerNode, ...] = ()
        """The expected service times at the last decision."""
        self._expected: list[list[float]] = []
        """Those by which the services of the jobs in transit were computed."""

    def place(self, observation: Observation) -> int:
        """Return the node from which this very job would return first."""
        now, job, load = observation.time, observation.job, observation.load
        category = observation.category
        assert load is not None
        for in_transit in self._in_transit:
            while in_transit and in_transit[0].arrival <= now:
                del in_transit[0]
        if load.expected != self._shown:
            self._follow(load.expected)
        if observation.attempt > 1:
            self._forget(job)
        available = observation.available
        up = self.view.up[observation.cluster][category]
        down = self.view.down[observation.cluster][category]
        best, earliest = -1, inf
        for node in range(len(up)) if available is None else available:
            arrival = now + up[node]
            free = now + load.backlog[node]
            for other_arrival, other_job, _, service in self._in_transit[node]:
                if (other_arrival, other_job) > (arrival, job):
                    break
                free = max(other_arrival, free) + service
            returned = max(arrival, free) + load.service[node] + down[node]
            if returned < earliest:
                best, earliest = node, returned
        placed = _InTransit(now + up[best], job, category, load.service[best])
        insort(self._in_transit[best], placed)
        return best

    def _follow(self, expected: tuple[PerNode, ...]) -> None:
        """Adjust the jobs in transit to other speeds or demands, which they will meet."""
        before, self._shown = self._expected or expected, expected
        # A node that has crashed tells an infinite time: what it told before still holds then.
        self._expected = [
            [old if new == inf else new for old, new in zip(*rows, strict=True)]
            for rows in zip(before, expected, strict=True)
        ]
        for node, in_transit in enumerate(self._in_transit):
            for place, job in enumerate(in_transit):
                old, new = before[job.category][node], self._expected[job.category][node]
                if new != old:
                    in_transit[place] = job._replace(service=job.service * (new / old))

    def _forget(self, job: int) -> None:
        """Drop the mirror of a job that was lost."""
        for in_transit in self._in_transit:
            in_transit[:] = [other for other in in_transit if other.job != job]
