"""The power of two choices."""

from __future__ import annotations

from fogveil.agent.policy import AgentView, Level, Observation, Policy
from fogveil.core.randomness import KeyedUniform


class PowerOfTwoChoices(Policy):
    """Draw two different nodes at random and join the shorter queue."""

    needs = Level.COUNT

    def __init__(self, view: AgentView) -> None:
        self._first = KeyedUniform(view.seed, "first choice")
        self._second = KeyedUniform(view.seed, "second choice")
        super().__init__(view)

    def place(self, observation: Observation) -> int:
        """Return the node with the smaller count of two, the nearer one on a tie."""
        assert observation.counts is not None
        available = observation.available
        nodes = len(observation.counts if available is None else available)
        one = int(self._first(observation.job) * nodes)
        other = one
        if nodes > 1:
            other = (one + 1 + int(self._second(observation.job) * (nodes - 1))) % nodes
        if available is not None:
            one, other = available[one], available[other]
        latency = self.view.up[observation.cluster][observation.category]
        return min(one, other, key=lambda node: (observation.counts[node], latency[node]))  # type: ignore[index]
