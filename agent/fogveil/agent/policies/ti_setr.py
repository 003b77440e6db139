"""Total-inferred shortest total response: the oracle's rule on what the total reveals."""

from __future__ import annotations

from fogveil.agent.inference.total_belief import TotalBelief
from fogveil.agent.policies.ci_setr import CountInferredResponse
from fogveil.agent.policy import Level


class TotalInferredResponse(CountInferredResponse):
    """Infer speeds from the totals and backlogs from the own placements, then choose greedily.

    It uses the total, public latencies and its own placements, and that a node is a FIFO with one
    server. What a node's speed may be is averaged, so an unknown node is tried when the known ones
    are busy.
    """

    needs = Level.TOTAL

    def reset(self) -> None:
        """Begin with no knowledge of any node."""
        self.belief = TotalBelief(self.view)
