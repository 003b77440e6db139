"""The node nearest to the source."""

from __future__ import annotations

from fogveil.agent.availability import least
from fogveil.agent.policy import AgentView, Observation, Policy


class Nearest(Policy):
    """Send each workload where it arrives first: to the Fog node its cluster is attached to."""

    def reset(self) -> None:
        """Compute the nearest node of each (cluster, category)."""
        self._nearest = [
            [latencies.index(min(latencies)) for latencies in by_category]
            for by_category in self.view.up
        ]

    def update(self, view: AgentView) -> None:
        """Compute the nearest nodes by other latencies."""
        super().update(view)
        self.reset()

    def place(self, observation: Observation) -> int:
        """Return the node with the least latency."""
        if observation.available is not None:
            latencies = self.view.up[observation.cluster][observation.category]
            return least(latencies, observation.available)
        return self._nearest[observation.cluster][observation.category]
