"""The nodes in turn."""

from __future__ import annotations

from fogveil.agent.policy import Observation, Policy


class RoundRobin(Policy):
    """Cycle through the nodes, whatever the workload."""

    def reset(self) -> None:
        """Restart at the first node."""
        self._last = -1
        self._nodes = len(self.view.nodes)

    def place(self, observation: Observation) -> int:
        """Return the node whose turn it is; one that takes no jobs misses its turn."""
        self._last = (self._last + 1) % self._nodes
        while observation.available is not None and self._last not in observation.available:
            self._last = (self._last + 1) % self._nodes
        return self._last
