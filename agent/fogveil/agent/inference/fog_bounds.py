"""What an agent can prove about the nodes from their counts, while service is constant."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from fogveil.agent.inference.node_bounds import NodeBounds
from fogveil.agent.inference.service_bounds import Contradiction, ServiceBounds
from fogveil.agent.inference.soft_means import Table
from fogveil.agent.policy import AgentView

ROUNDS = 50
"""Propagations at one instant; what they leave open is completed at later instants."""


class Model(StrEnum):
    """What is assumed about service."""

    PRODUCT = "product"
    """Service takes work of the category / speed of the node."""
    CELLS = "cells"
    """Service takes a constant time for each (node, category)."""
    NONE = "none"
    """Service varies: nothing can be proved."""


class FogBounds:
    """Strict bounds of service times, starts and finishes, while service is constant.

    Starts with the strongest model; when the counts contradict it, continues with the next weaker
    one from the jobs that are at the nodes then.
    """

    def __init__(self, view: AgentView) -> None:
        self._view = view
        self.model = Model.PRODUCT
        self._service = self._fresh_bounds()
        self.nodes = [NodeBounds(view.count) for _ in view.nodes]
        self.survived = 0
        """Instants that the current model has stood."""
        self._now = 0.0

    @property
    def low(self) -> Table:
        """Lower bounds of service times, as low[node][category]."""
        return self._service.low

    @property
    def high(self) -> Table:
        """Upper bounds of service times, infinite where nothing is known."""
        return self._service.high

    def update(self, view: AgentView) -> None:
        """Place by other latencies from now on."""
        self._view = view

    def placed(self, node: int, job: int, cluster: int, category: int) -> None:
        """Add a placement at the instant last observed."""
        if self.model is not Model.NONE:
            arrival = self._now + self._view.up[cluster][category][node]
            self.nodes[node].place(arrival, job, category)

    def forget(self, job: int) -> None:
        """Remove a job that was lost."""
        for node in self.nodes:
            node.forget(job)

    def observe(self, now: float, counts: Sequence[int]) -> bool:
        """Update by the counts of an instant; return whether the bounds of service changed."""
        self._now = now
        if self.model is Model.NONE:
            return False
        self.survived += 1
        try:
            changed = {
                number
                for number, node in enumerate(self.nodes)
                if self._observe_node(node, now, counts[number], self.low[number])
            }
        except Contradiction:  # not even a FIFO with one server
            self._weaken(Model.NONE)
            return True
        try:
            return self._propagate(changed)
        except Contradiction:
            self._weaken(Model.CELLS if self.model is Model.PRODUCT else Model.NONE)
            return True

    @staticmethod
    def _observe_node(node: NodeBounds, now: float, count: int, known_low: list[float]) -> bool:
        if count >= 0:
            return node.observe(now, count, known_low)
        node.miss(now)
        return False

    def _propagate(self, changed: set[int]) -> bool:
        service, tightened = self._service, False
        for _ in range(ROUNDS):
            if not changed:
                break
            number = min(changed)
            changed.remove(number)
            bounds = self.nodes[number].propagate(service.low[number], service.high[number])
            for category, (low, high) in enumerate(zip(*bounds, strict=True)):
                affected = service.tighten(number, category, low, high)
                changed.update(affected)
                tightened |= bool(affected)
        return tightened

    def _weaken(self, model: Model) -> None:
        self.model = model
        self.survived = 0
        self._service = self._fresh_bounds()
        for node in self.nodes:
            if model is Model.NONE:
                node.jobs.clear()
            else:
                node.restart()

    def _fresh_bounds(self) -> ServiceBounds:
        return ServiceBounds(
            len(self._view.nodes),
            len(self._view.categories),
            product=self.model is Model.PRODUCT,
        )
