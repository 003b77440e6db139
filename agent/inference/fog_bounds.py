"""What an agent can prove about the nodes from their counts: the leakage of a count."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from agent.inference.node_bounds import NodeBounds
from agent.inference.service_bounds import Contradiction, ServiceBounds
from agent.inference.soft_means import Table
from agent.policy import AgentView

ROUNDS = 50
"""Visits to nodes at one instant; what is not settled by then is settled at later ones."""


class Model(StrEnum):
    """What is taken for granted about service."""

    PRODUCT = "product"
    """Service takes work of the category / speed of the node."""
    CELLS = "cells"
    """Service takes a constant time for each (node, category)."""
    NONE = "none"
    """Service varies: nothing can be proved."""


class FogBounds:
    """Sure bounds of service times, starts and finishes, while service is constant.

    Begins with the strongest model; when the counts contradict it, goes on with the next weaker
    one from what is at the nodes then.
    """

    def __init__(self, view: AgentView) -> None:
        self._view = view
        self.model = Model.PRODUCT
        self._service = self._fresh_bounds()
        self.nodes = [NodeBounds(view.count) for _ in view.nodes]
        self.survived = 0
        """Instants since the model was taken up."""
        self._now = 0.0

    @property
    def low(self) -> Table:
        """Lower bounds of service times, as low[node][category]."""
        return self._service.low

    @property
    def high(self) -> Table:
        """Upper bounds of service times, infinite where nothing is known."""
        return self._service.high

    def placed(self, node: int, job: int, cluster: int, category: int) -> None:
        """Take note of a placement at the instant last observed."""
        if self.model is not Model.NONE:
            arrival = self._now + self._view.up[cluster][category][node]
            self.nodes[node].place(arrival, job, category)

    def observe(self, now: float, counts: Sequence[int]) -> bool:
        """Take the counts of a decision instant; tell whether bounds of service are new."""
        self._now = now
        if self.model is Model.NONE:
            return False
        self.survived += 1
        try:
            news = {
                number
                for number, node in enumerate(self.nodes)
                if node.observe(now, counts[number], self.low[number])
            }
        except Contradiction:  # not even a FIFO with one server
            self._weaken(Model.NONE)
            return True
        try:
            return self._settle(news)
        except Contradiction:
            self._weaken(Model.CELLS if self.model is Model.PRODUCT else Model.NONE)
            return True

    def _settle(self, news: set[int]) -> bool:
        service, tightened = self._service, False
        for _ in range(ROUNDS):
            if not news:
                break
            number = min(news)
            news.remove(number)
            found = self.nodes[number].propagate(service.low[number], service.high[number])
            for category, (low, high) in enumerate(zip(*found, strict=True)):
                changed = service.tighten(number, category, low, high)
                news.update(changed)
                tightened |= bool(changed)
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
