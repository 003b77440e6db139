"""The shipped veil-total agent: trained at β = 100, one file per kind of count."""

from __future__ import annotations

from fogveil.agent.learning.veil_total import VeilTotalActor
from fogveil.agent.policies.veil import trained_layers
from fogveil.agent.policy import AgentView


class ShippedVeilTotal(VeilTotalActor):
    """Place by the learned marginal delay, inferred from the total of all counts."""

    def __init__(self, view: AgentView) -> None:
        super().__init__(view, trained_layers("veil-total", view.count))
