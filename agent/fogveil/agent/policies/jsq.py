"""Join the shortest queue."""

from __future__ import annotations

from fogveil.agent.policy import AgentView, Level, Observation, Policy
from fogveil.core.randomness import KeyedUniform


class JoinShortestQueue(Policy):
    """Choose the node with the fewest queued jobs, ties broken uniformly at random."""

    needs = Level.COUNT

    def __init__(self, view: AgentView) -> None:
        self._uniform = KeyedUniform(view.seed, "tie of the shortest queues")
        super().__init__(view)

    def place(self, observation: Observation) -> int:
        """Return the node with the smallest count."""
        counts = observation.counts
        assert counts is not None
        if observation.available is not None:
            return self._among(observation.available, counts, observation.job)
        fewest = min(counts)
        ties = counts.count(fewest)
        shortest = counts.index(fewest)
        if ties > 1:
            for _ in range(int(self._uniform(observation.job) * ties)):
                shortest = counts.index(fewest, shortest + 1)
        return shortest

    def _among(self, available: tuple[int, ...], counts: tuple[int, ...], job: int) -> int:
        fewest = min(counts[node] for node in available)
        ties = [node for node in available if counts[node] == fewest]
        return ties[int(self._uniform(job) * len(ties))]
