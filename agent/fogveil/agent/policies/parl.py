"""The shipped PARL: the paper's agent as `fogveil train` leaves it, for scenarios of one shape.

`fogveil train paper --agent parl --rate 100 --seed 31 --disclosure full --out runs/parl` gives the
file again, bit for bit on the same machine: it is that training's agent.npz.
"""

from __future__ import annotations

from functools import lru_cache

from fogveil.agent.learning.checkpoint import Checkpoint, differences, layers_of, read_checkpoint
from fogveil.agent.learning.parl import ParlActor
from fogveil.agent.learning.registry import public_facts
from fogveil.agent.policies.veil import TRAINED
from fogveil.agent.policy import AgentView
from fogveil.core.errors import InputError

FILE = TRAINED / "parl.npz"


class ShippedParl(ParlActor):
    """Place by the values that the paper's agent learned in the scenario `paper`."""

    def __init__(self, view: AgentView) -> None:
        checkpoint = _checkpoint()
        different = differences(checkpoint.header["public"], public_facts(view))
        if different:
            raise InputError(
                f"policy parl was trained on the scenario paper, and this one has another shape "
                f"({different}); train one for it: fogveil train SCENARIO --agent parl"
            )
        super().__init__(view, layers_of(FILE, checkpoint))


@lru_cache  # read once, while the agent's process may still read the package's files
def _checkpoint() -> Checkpoint:
    return read_checkpoint(FILE)
