"""veil as it ships with the package: trained at β = 100, one file per kind of count."""

from __future__ import annotations

from pathlib import Path

from agent.agents import layers_of
from agent.learning.checkpoint import read_checkpoint
from agent.policy import AgentView
from agent.veil import VeilActor

TRAINED = Path(__file__).parent.parent / "trained"


class ShippedVeil(VeilActor):
    """Place by learned marginal delay, inferred from counts."""

    def __init__(self, view: AgentView) -> None:
        file = TRAINED / f"veil-{view.count}.npz"
        super().__init__(view, layers_of(file, read_checkpoint(file)))
