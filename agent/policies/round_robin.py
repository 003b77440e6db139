"""One node after the other."""

from __future__ import annotations

from agent.policy import Observation, Policy


class RoundRobin(Policy):
    """Go through the nodes in turn, whatever the workload."""

    def reset(self) -> None:
        """Start again before the first node."""
        self._last = -1
        self._nodes = len(self.view.nodes)

    def place(self, seen: Observation) -> int:  # noqa: ARG002 (the turn decides, not the workload)
        """Return the node whose turn it is."""
        self._last = (self._last + 1) % self._nodes
        return self._last
