"""The power of two choices."""

from __future__ import annotations

from agent.policy import AgentView, Level, Observation, Policy
from fogveil.randomness import KeyedUniform


class PowerOfTwoChoices(Policy):
    """Look at two different nodes drawn at random and join the shorter queue."""

    needs = Level.COUNT

    def __init__(self, view: AgentView) -> None:
        self._first = KeyedUniform(view.seed, "first choice")
        self._second = KeyedUniform(view.seed, "second choice")
        super().__init__(view)

    def place(self, seen: Observation) -> int:
        """Return the one of two nodes with the smaller count, the nearer on a tie."""
        assert seen.counts is not None
        nodes = len(seen.counts)
        one = int(self._first(seen.job) * nodes)
        if nodes == 1:
            return one
        other = (one + 1 + int(self._second(seen.job) * (nodes - 1))) % nodes
        latency = self.view.up[seen.cluster][seen.category]
        return min(one, other, key=lambda node: (seen.counts[node], latency[node]))  # type: ignore[index]
