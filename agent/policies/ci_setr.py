"""Count-inferred shortest total response: the oracle's rule on what counts give away."""

from __future__ import annotations

from agent.inference.fog_belief import FogBelief
from agent.policy import Level, Observation, Policy


class CountInferredResponse(Policy):
    """Infer speeds and backlogs from the counts, then choose as the greedy oracle does.

    It sees counts, public latencies and its own placements, and knows that a node is a FIFO with
    one server; it is told neither speeds nor work. What is uncertain it takes for one standard
    deviation better than expected, so every node is tried as long as that may pay.
    """

    needs = Level.COUNT

    def reset(self) -> None:
        """Begin with no knowledge of any node."""
        self.belief = FogBelief(self.view)

    def place(self, seen: Observation) -> int:
        """Return the node from which this job is hoped to be back first."""
        assert seen.counts is not None
        self.belief.observe(seen.time, seen.counts)
        responses = self.belief.responses(seen.job, seen.cluster, seen.category)
        best = responses.index(min(responses))
        self.belief.placed(best, seen.job, seen.cluster, seen.category)
        return best
