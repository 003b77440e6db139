"""What an agent can prove about the nodes from their counts, while service is constant."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from heapq import heapify, heappop, heappush

from fogveil.agent.inference.instants import Instants
from fogveil.agent.inference.node_bounds import NodeBounds
from fogveil.agent.inference.service_bounds import Contradiction, Floats, ServiceBounds
from fogveil.agent.inference.soft_means import Table
from fogveil.agent.policy import AgentView

TIGHT = 1.6
"""The factor up to which service times are proved when a contradiction means a change."""
PROVED = 20
"""Instants per node that a model has stood then."""
INFORMED = 10
"""Informative instants per node that it has stood then: where nothing shows, nothing is proved."""
SAME_CAUSE = 20
"""Instants per node within which a second changed node means that an application has changed."""
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

    def __init__(self, view: AgentView, instants: Instants) -> None:
        self._view = view
        self._instants = instants
        self.model = Model.PRODUCT
        self._service = self._fresh_bounds()
        self.nodes = [NodeBounds(view.count, instants) for _ in view.nodes]
        self._loaded: set[int] = set()
        """The nodes that count jobs: time alone informs of them."""
        self.survived = 0
        """Instants that the current model has stood."""
        self._informed = 0
        """Informative instants that the current model has stood, summed over the nodes."""
        self.changed: list[int] = []
        """The nodes that the last counts showed to be changed."""
        self.works_changed = False
        """Whether they showed that applications have changed."""
        self._last_change: tuple[int, int] | None = None
        """The last changed node and when it was, in instants survived."""

    @property
    def low(self) -> Table:
        """Lower bounds of service times, as low[node][category]."""
        return self._service.low

    @property
    def high(self) -> Table:
        """Upper bounds of service times, infinite where nothing is known."""
        return self._service.high

    @property
    def limits(self) -> tuple[Floats, Floats]:
        """Both bounds as arrays."""
        return self._service.limits

    def update(self, view: AgentView) -> None:
        """Place by other latencies from now on."""
        self._view = view

    def placed(self, node: int, job: int, cluster: int, category: int) -> None:
        """Add a placement at the instant last observed."""
        if self.model is not Model.NONE:
            arrival = self._instants.now + self._view.up[cluster][category][node]
            self.nodes[node].place(arrival, job, category)

    def forget(self, job: int) -> None:
        """Remove a job that was lost."""
        for node in self.nodes:
            node.forget(job)

    def observe(self, counts: Sequence[int], moved: AbstractSet[int]) -> bool:
        """Update by the counts of an instant; return whether the bounds of service changed.

        Only the nodes that `moved` have another count than at the instant before, or an arrival.
        """
        self.changed.clear()
        self.works_changed = False
        if self.model is Model.NONE:
            return False
        self.survived += 1
        low = self._service.low
        try:
            quiet = self._loaded - moved
            changed = {node for node in quiet if self.nodes[node].outlasts(low[node])}
            changed |= {node for node in moved if self._observe_node(node, counts[node])}
        except Contradiction:  # not even a FIFO with one server
            self._weaken(Model.NONE)
            return True
        try:
            return self._propagate(changed)
        except Contradiction:
            self._weaken(Model.CELLS if self.model is Model.PRODUCT else Model.NONE)
            return True

    def _observe_node(self, number: int, count: int) -> bool:
        node = self.nodes[number]
        if count < 0:
            node.miss()
            self._loaded.discard(number)
            return False
        informative = node.observe(count, self._service.low[number])
        (self._loaded.add if node.loaded else self._loaded.discard)(number)
        return informative

    def _propagate(self, changed: set[int]) -> bool:
        tightened = False
        queue = list(changed)
        heapify(queue)
        for _ in range(ROUNDS):
            if not queue:
                break
            number = heappop(queue)
            changed.remove(number)
            try:
                affected = self._propagate_node(number)
            except Contradiction:
                if not self._is_proved(number):
                    raise
                self.relearn(number)
                tightened = True
                continue
            for other in affected - changed:
                heappush(queue, other)
            changed |= affected
            tightened |= bool(affected)
            self._informed += 1
        return tightened

    def _propagate_node(self, number: int) -> set[int]:
        service, changed = self._service, set[int]()
        bounds = self.nodes[number].propagate(service.low[number], service.high[number])
        for category, (low, high) in enumerate(zip(*bounds, strict=True)):
            changed.update(service.tighten(number, category, low, high))
        return changed

    def _is_proved(self, number: int) -> bool:
        """Return whether the bounds of a node have stood so much that a contradiction is a change.

        Where service varies, the bounds contradict themselves before they are all tight.
        """
        nodes = len(self.nodes)
        enough = self.survived >= PROVED * nodes and self._informed >= INFORMED * nodes
        return enough and self._service.is_tight(number, TIGHT)

    def relearn(self, number: int) -> None:
        """Drop what was proved of a node that has changed; keep the model and the other nodes."""
        if self.model is Model.NONE:
            return
        last, self._last_change = self._last_change, (number, self.survived)
        self.changed.append(number)
        self._service.forget(number)
        self.nodes[number].restart()
        if last and last[0] != number and self.survived - last[1] < SAME_CAUSE * len(self.nodes):
            self.works_changed = True
            self._service.forget_works()
            for node in self.nodes:
                node.restart()

    def _weaken(self, model: Model) -> None:
        self.model = model
        self.survived = 0
        self._informed = 0
        self._last_change = None
        self._service = self._fresh_bounds()
        for node in self.nodes:
            if model is Model.NONE:
                node.jobs.clear()
            else:
                node.restart()
        if model is Model.NONE:
            self._loaded.clear()

    def _fresh_bounds(self) -> ServiceBounds:
        return ServiceBounds(
            len(self._view.nodes),
            len(self._view.categories),
            product=self.model is Model.PRODUCT,
        )
