"""The shipped veil agent: trained at β = 100, one file per kind of count."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from fogveil.agent.learning.actor import Layers
from fogveil.agent.learning.checkpoint import layers_of, read_checkpoint
from fogveil.agent.learning.veil import VeilActor
from fogveil.agent.policy import AgentView
from fogveil.core.disclosure import CountKind

TRAINED = Path(__file__).parent.parent / "trained"


class ShippedVeil(VeilActor):
    """Place by the learned marginal delay, inferred from counts."""

    def __init__(self, view: AgentView) -> None:
        super().__init__(view, trained_layers("veil", view.count))


@lru_cache  # read once, while the agent's process may still read the package's files
def trained_layers(agent: str, count: CountKind) -> Layers:
    """Return the network of a shipped agent that has a file per kind of count."""
    file = TRAINED / f"{agent}-{count}.npz"
    return layers_of(file, read_checkpoint(file))
