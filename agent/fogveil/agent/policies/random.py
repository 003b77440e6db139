"""A node drawn uniformly at random."""

from __future__ import annotations

from fogveil.agent.availability import drawn_from
from fogveil.agent.policy import AgentView, Observation, Policy
from fogveil.core.randomness import KeyedUniform


class Random(Policy):
    """Place each workload on a node drawn at random."""

    def __init__(self, view: AgentView) -> None:
        self._uniform = KeyedUniform(view.seed, "random placement")
        self._nodes = len(view.nodes)
        super().__init__(view)

    def place(self, observation: Observation) -> int:
        """Return a node drawn for this job."""
        return drawn_from(self._uniform(observation.job), self._nodes, observation.available)
