"""The shipped veil-total agent, trained at β = 100 on waiting counts; it serves both kinds."""

from __future__ import annotations

from fogveil.agent.learning.veil_total import VeilTotalActor
from fogveil.agent.policies.veil import trained_layers
from fogveil.agent.policy import AgentView
from fogveil.core.disclosure import CountKind


class ShippedVeilTotal(VeilTotalActor):
    """Place by the learned marginal delay, inferred from the total of all counts."""

    def __init__(self, view: AgentView) -> None:
        super().__init__(view, trained_layers("veil-total", CountKind.WAITING))
