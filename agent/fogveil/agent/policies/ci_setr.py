"""Count-inferred shortest total response: the oracle's rule on what counts reveal."""

from __future__ import annotations

from fogveil.agent.inference.fog_belief import FogBelief
from fogveil.agent.inference.total_belief import TotalBelief
from fogveil.agent.policy import AgentView, Level, Observation, Policy


class CountInferredResponse(Policy):
    """Infer speeds and backlogs from the counts, then choose as the greedy oracle does.

    It uses counts, public latencies and its own placements, and that a node is a FIFO with one
    server; it knows neither speeds nor work. An uncertain service time is taken to be one standard
    deviation shorter than expected, so every node is tried as long as that may pay.
    """

    needs = Level.COUNT

    def reset(self) -> None:
        """Begin with no knowledge of any node."""
        self.belief: FogBelief | TotalBelief = FogBelief(self.view)

    def update(self, view: AgentView) -> None:
        """Go on with other latencies."""
        super().update(view)
        self.belief.update(view)

    def place(self, observation: Observation) -> int:
        """Return the node of the shortest expected total response."""
        self.belief.observe(observation)
        job, cluster, category = observation.job, observation.cluster, observation.category
        best = self.belief.fastest(job, cluster, category, observation.available)
        self.belief.placed(best, job, cluster, category)
        return best
