"""The node nearest to the source."""

from __future__ import annotations

from fogveil.agent.policy import Observation, Policy


class Nearest(Policy):
    """Send each workload where it arrives first: to the Fog node its cluster is attached to."""

    def reset(self) -> None:
        """Compute the nearest node of each (cluster, category)."""
        self._nearest = [
            [latencies.index(min(latencies)) for latencies in by_category]
            for by_category in self.view.up
        ]

    def place(self, observation: Observation) -> int:
        """Return the node with the least latency."""
        return self._nearest[observation.cluster][observation.category]
