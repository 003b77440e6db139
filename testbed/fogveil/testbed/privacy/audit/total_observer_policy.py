"""A policy for audits at level `total`: it receives every total, and places without using it."""

from __future__ import annotations

from fogveil.agent.policy import Level, Observation, Policy


class TotalObserver(Policy):
    """Round robin that requires the total."""

    needs = Level.TOTAL

    def reset(self) -> None:
        """Start with the first node."""
        self._next = 0

    def place(self, seen: Observation) -> int:
        """Return the next node in turn."""
        assert seen.total is not None
        node, self._next = self._next, (self._next + 1) % len(self.view.nodes)
        return node
