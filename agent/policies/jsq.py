"""Join the shortest queue."""

from __future__ import annotations

from agent.policy import AgentView, Level, Observation, Policy
from fogveil.randomness import KeyedUniform


class JoinShortestQueue(Policy):
    """Join the node with the fewest queued jobs, any of several with equal chance."""

    needs = Level.COUNT

    def __init__(self, view: AgentView) -> None:
        self._uniform = KeyedUniform(view.seed, "tie of the shortest queues")
        super().__init__(view)

    def place(self, seen: Observation) -> int:
        """Return the node of the smallest count."""
        counts = seen.counts
        assert counts is not None
        fewest = min(counts)
        ties = counts.count(fewest)
        shortest = counts.index(fewest)
        if ties > 1:
            for _ in range(int(self._uniform(seen.job) * ties)):
                shortest = counts.index(fewest, shortest + 1)
        return shortest
