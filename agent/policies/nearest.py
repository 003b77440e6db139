"""The node nearest to the source."""

from __future__ import annotations

from agent.policy import Observation, Policy


class Nearest(Policy):
    """Send each workload where it arrives first: the Fog node its cluster hangs on."""

    def reset(self) -> None:
        """Look the nearest nodes up once."""
        self._nearest = [
            [latencies.index(min(latencies)) for latencies in by_category]
            for by_category in self.view.up
        ]

    def place(self, seen: Observation) -> int:
        """Return the node of least latency."""
        return self._nearest[seen.cluster][seen.category]
