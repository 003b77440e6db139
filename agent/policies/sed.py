"""Shortest expected delay: true mean speeds and counts, but no service factors."""

from __future__ import annotations

from agent.policy import CountKind, Level, Observation, Policy


class ShortestExpectedDelay(Policy):
    """Weigh each queue by the node's true mean service time, and add the way there and back."""

    needs = Level.FULL

    def place(self, seen: Observation) -> int:
        """Return the node of the smallest expected delay."""
        assert seen.counts is not None
        assert seen.load is not None
        expected = seen.load.expected
        up = self.view.up[seen.cluster][seen.category]
        down = self.view.down[seen.cluster][seen.category]
        # A waiting count leaves the job in service out: a node with work has half of one left.
        in_service = 0.5 if self.view.count is CountKind.WAITING else 0.0
        delays = []
        for node, queued in enumerate(seen.counts):
            mean = sum(service[node] for service in expected) / len(expected)
            ahead = queued + (in_service if seen.load.backlog[node] > 0 else 0.0)
            delays.append(up[node] + ahead * mean + expected[seen.category][node] + down[node])
        return delays.index(min(delays))
