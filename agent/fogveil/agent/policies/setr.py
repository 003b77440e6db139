"""Shortest expected total response: the greedy oracle with full knowledge."""

from __future__ import annotations

from bisect import insort
from math import inf

from fogveil.agent.policy import Level, Observation, Policy


class ShortestTotalResponse(Policy):
    """Know the queues, the jobs in transit and every service factor; minimise this job's delay.

    Greedy and clairvoyant. It mirrors the jobs in transit to each node, which it placed itself, so
    that the delay it predicts is the delay that a FIFO node with one server gives.
    """

    needs = Level.FULL

    def reset(self) -> None:
        """Drop the jobs in transit."""
        self._in_transit: list[list[tuple[float, int, float]]] = [[] for _ in self.view.nodes]

    def place(self, observation: Observation) -> int:
        """Return the node from which this very job would return first."""
        now, job, load = observation.time, observation.job, observation.load
        assert load is not None
        up = self.view.up[observation.cluster][observation.category]
        down = self.view.down[observation.cluster][observation.category]
        best, earliest = 0, inf
        for node, in_transit in enumerate(self._in_transit):
            while in_transit and in_transit[0][0] <= now:
                del in_transit[0]
            arrival = now + up[node]
            free = now + load.backlog[node]
            for other_arrival, other_job, service in in_transit:
                if (other_arrival, other_job) > (arrival, job):
                    break
                free = max(other_arrival, free) + service
            returned = max(arrival, free) + load.service[node] + down[node]
            if returned < earliest:
                best, earliest = node, returned
        insort(self._in_transit[best], (now + up[best], job, load.service[best]))
        return best
