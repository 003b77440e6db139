"""Shortest expected delay: true mean speeds and counts, but no service factors."""

from __future__ import annotations

from fogveil.agent.availability import least
from fogveil.agent.policy import CountKind, Level, Observation, Policy


class ShortestExpectedDelay(Policy):
    """Weigh each queue by the node's true mean service time, and add the latencies."""

    needs = Level.FULL

    def place(self, observation: Observation) -> int:
        """Return the node of the smallest expected delay."""
        assert observation.counts is not None
        assert observation.load is not None
        expected = observation.load.expected
        up = self.view.up[observation.cluster][observation.category]
        down = self.view.down[observation.cluster][observation.category]
        # A waiting count excludes the job in service: on average half of it is left.
        in_service = 0.5 if self.view.count is CountKind.WAITING else 0.0
        delays = []
        for node, queued in enumerate(observation.counts):
            mean = sum(service[node] for service in expected) / len(expected)
            ahead = queued + (in_service if observation.load.backlog[node] > 0 else 0.0)
            delays.append(
                up[node] + ahead * mean + expected[observation.category][node] + down[node]
            )
        return least(delays, observation.available)
