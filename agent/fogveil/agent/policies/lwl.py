"""Least work left."""

from __future__ import annotations

from fogveil.agent.availability import least
from fogveil.agent.policy import Level, Observation, Policy


class LeastWorkLeft(Policy):
    """Choose by the work that has arrived at each node; jobs still in transit are not counted."""

    needs = Level.FULL

    def place(self, observation: Observation) -> int:
        """Return the node with the shortest total response if nothing else were in transit."""
        assert observation.load is not None
        parts = zip(
            self.view.up[observation.cluster][observation.category],
            observation.load.backlog,
            observation.load.expected[observation.category],
            self.view.down[observation.cluster][observation.category],
            strict=True,
        )
        delays = [max(up, backlog) + service + down for up, backlog, service, down in parts]
        return least(delays, observation.available)
