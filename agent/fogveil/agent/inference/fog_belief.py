"""The agent's model of all nodes: expected service times, backlogs and responses."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from fogveil.agent.inference.fog_bounds import FogBounds
from fogveil.agent.inference.node_belief import Finished, NodeBelief
from fogveil.agent.inference.soft_means import SoftMeans, Table
from fogveil.agent.inference.spread import later_of
from fogveil.agent.policy import AgentView, Observation

TRIALS = 5
"""Observations per node after which bounds without contradiction are trusted."""


class FogBelief:
    """Infers service times and backlogs from counts, public latencies and own placements.

    Service is modelled as varying, by an amount that is learned. If it is in fact constant, the
    counts imply strict bounds, and the means are kept within them once the bounds have stood some
    observations. If it is not, the bounds soon contradict themselves, and are dropped.
    """

    def __init__(self, view: AgentView) -> None:
        self._view = view
        nodes, categories = len(view.nodes), len(view.categories)
        latencies = [x for cluster in view.up + view.down for row in cluster for x in row]
        # Before any job is observed, service is assumed to take as long as the mean round trip.
        guess = 2 * sum(latencies) / len(latencies) or 1.0
        self.means = SoftMeans(nodes, categories, guess)
        self.nodes = [NodeBelief(node, view.count, self.means) for node in range(nodes)]
        self.bounds = FogBounds(view)
        self._trials = TRIALS * nodes
        self._estimates = self.means.estimates
        self._now = 0.0
        self.fired: list[tuple[float, int]] = []
        """When which node was noticed to have changed."""
        self.counts: Sequence[int] = [0] * nodes
        """The disclosed counts, 0 where a node tells none."""

    def update(self, view: AgentView) -> None:
        """Place by other latencies from now on."""
        self._view = view
        self.bounds.update(view)

    def observe(self, observation: Observation) -> None:
        """Update the model by the counts of a decision instant."""
        assert observation.counts is not None
        counts = observation.counts
        self.counts = counts if observation.available is None else [max(n, 0) for n in counts]
        self._now = now = observation.time
        if observation.attempt > 1:
            self._forget(observation.job)
        for node, count in zip(self.nodes, counts, strict=True):
            if count >= 0:
                node.observe(now, count)
            else:
                node.miss(now)
        self._apply_bounds(now, counts)
        self._relearn()
        overdue = [late for node in self.nodes if (late := node.overdue) is not None]
        self._estimates = self.means.estimates_given(overdue) if overdue else self.means.estimates

    def placed(self, node: int, job: int, cluster: int, category: int) -> None:
        """Add a placement at the instant last observed."""
        self.bounds.placed(node, job, cluster, category)
        arrival = self._now + self._view.up[cluster][category][node]
        self.nodes[node].place(arrival, job, category)

    @property
    def deviations(self) -> Table:
        """Standard deviation of each expected service time, relative to it."""
        return self.means.deviations

    @property
    def factor_variance(self) -> float:
        """Squared coefficient of variation of service."""
        return self.means.factor_variance

    @property
    def finished(self) -> list[list[Finished]]:
        """Per node the jobs that the last counts showed to be finished."""
        return [node.finished for node in self.nodes]

    @property
    def service(self) -> Table:
        """Expected service time as service[node][category]."""
        return self._estimates.mean

    @property
    def backlogs(self) -> list[float]:
        """Expected time until each node has served the jobs that arrived there."""
        return [
            max(node.free_for(self._now, inf, means)[0] - self._now, 0.0)
            for node, means in zip(self.nodes, self.service, strict=True)
        ]

    @property
    def in_transit(self) -> list[int]:
        """Own jobs in transit to each node."""
        return [node.in_transit for node in self.nodes]

    def overtaken(self, job: int, cluster: int, category: int) -> list[int]:
        """Return how many own jobs in transit to each node a job placed now would overtake."""
        up = self._view.up[cluster][category]
        return [
            node.overtaken_by(self._now + latency, job)
            for node, latency in zip(self.nodes, up, strict=True)
        ]

    def responses(self, job: int, cluster: int, category: int) -> list[float]:
        """Return the expected total response at each node for a job placed now.

        Latency, wait, service and latency back; the service time is the optimistic estimate.
        """
        up = self._view.up[cluster][category]
        down = self._view.down[cluster][category]
        responses = []
        for node, belief in enumerate(self.nodes):
            arrival = self._now + up[node]
            free = belief.free_for(arrival, job, self._estimates.mean[node])
            start = later_of(arrival, free)[0]
            service = self._estimates.optimistic[node][category]
            responses.append(start + service + down[node] - self._now)
        return responses

    def _relearn(self) -> None:
        """Doubt what has changed, instead of averaging over what it was and what it is."""
        for number in self.bounds.changed:
            self.means.relearn(number)
            self.fired.append((self._now, number))
        if self.bounds.works_changed:
            self.means.relearn_works()
        for number, node in enumerate(self.nodes):
            if node.changed is not None:
                self.bounds.relearn(number)
                self.means.relearn(number, node.changed)
                self.fired.append((self._now, number))

    def _forget(self, job: int) -> None:
        """Remove a job that was lost from the node where it was placed before."""
        self.bounds.forget(job)
        for node in self.nodes:
            node.forget(job)

    def _apply_bounds(self, now: float, counts: Sequence[int]) -> None:
        bounds = self.bounds
        if not bounds.observe(now, counts) and bounds.survived != self._trials:
            return
        if bounds.survived >= self._trials:
            self.means.confine(bounds.low, bounds.high)
        else:
            self.means.release()
