"""Shortest expected total response: the greedy oracle that knows everything."""

from __future__ import annotations

from bisect import insort
from math import inf

from agent.policy import Level, Observation, Policy


class ShortestTotalResponse(Policy):
    """Know the queues, the jobs underway and every service factor; minimise this job's delay.

    Greedy and clairvoyant. It mirrors each node's jobs underway, which it placed itself, so that
    the delay it predicts is the delay that a FIFO node with one server gives.
    """

    needs = Level.FULL

    def reset(self) -> None:
        """Forget the jobs underway."""
        self._underway: list[list[tuple[float, int, float]]] = [[] for _ in self.view.nodes]

    def place(self, seen: Observation) -> int:
        """Return the node from which this very job would be back first."""
        assert seen.load is not None
        up = self.view.up[seen.cluster][seen.category]
        down = self.view.down[seen.cluster][seen.category]
        best, shortest = 0, inf
        for node, underway in enumerate(self._underway):
            while underway and underway[0][0] <= seen.time:
                del underway[0]
            arrival = seen.time + up[node]
            free = seen.time + seen.load.backlog[node]
            for other_arrival, job, service in underway:
                if (other_arrival, job) > (arrival, seen.job):
                    break
                free = max(other_arrival, free) + service
            back = max(arrival, free) + seen.load.service[node] + down[node]
            if back < shortest:
                best, shortest = node, back
        insort(self._underway[best], (seen.time + up[best], seen.job, seen.load.service[best]))
        return best
