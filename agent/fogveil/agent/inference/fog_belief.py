"""The agent's model of all nodes: expected service times, backlogs and responses."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import compress
from math import inf
from operator import ne

import numpy as np
import numpy.typing as npt

from fogveil.agent.availability import Available
from fogveil.agent.inference.fog_bounds import FogBounds
from fogveil.agent.inference.instants import Instants
from fogveil.agent.inference.node_belief import Finished, NodeBelief
from fogveil.agent.inference.quiet_nodes import QuietNodes
from fogveil.agent.inference.soft_means import Floats, SoftMeans
from fogveil.agent.inference.spread import later_of
from fogveil.agent.policy import AgentView, Observation

TRIALS = 5
"""Observations per node after which bounds without contradiction are trusted."""
ROUNDING = 1e-9
"""By which a bound of a response may miss it, relative to simulated time."""


class FogBelief:
    """Infers service times and backlogs from counts, public latencies and own placements.

    Service is modelled as varying, by an amount that is learned. If it is in fact constant, the
    counts imply strict bounds, and the means are kept within them once the bounds have stood some
    observations. If it is not, the bounds soon contradict themselves, and are dropped.

    A decision costs little at the nodes where nothing has moved: no count and no arrival.
    """

    def __init__(self, view: AgentView) -> None:
        self._view = view
        nodes, categories = len(view.nodes), len(view.categories)
        # Before any job is observed, service is assumed to take as long as the mean round trip.
        guess = 2 * _mean_latency(view) or 1.0
        self.means = SoftMeans(nodes, categories, guess)
        self._instants = Instants()
        self.nodes = [
            NodeBelief(node, view.count, self.means, self._instants) for node in range(nodes)
        ]
        self.bounds = FogBounds(view, self._instants)
        self._trials = TRIALS * nodes
        self._estimates = self.means.estimates
        self._told: Sequence[int] = (0,) * nodes
        """The counts of the last instant."""
        self._arrivals: list[tuple[float, int]] = []
        """A heap of when own jobs in transit arrive, and where."""
        self._moved: set[int] = set()
        """The nodes with another count than at the instant before, or an arrival."""
        self._busy: set[int] = set()
        """The nodes at which a job is known to be in service."""
        self._quiet = QuietNodes(self.nodes)
        self._latencies: dict[tuple[int, int], Floats] = {}
        self.fired: list[tuple[float, int]] = []
        """When which node was noticed to have changed."""
        self.counts: Sequence[int] = self._told
        """The disclosed counts, 0 where a node tells none."""

    def update(self, view: AgentView) -> None:
        """Place by other latencies from now on."""
        self._view = view
        self._latencies.clear()
        self.bounds.update(view)

    def observe(self, observation: Observation) -> None:
        """Update the model by the counts of a decision instant."""
        assert observation.counts is not None
        counts, available = observation.counts, observation.available
        self.counts = counts if available is None else [max(n, 0) for n in counts]
        self._instants.move(observation.time)
        for node in self._moved:
            self.nodes[node].quiet()
        self._moved = moved = self._find_moved(observation.time, counts)
        if observation.attempt > 1:
            self._forget(observation.job)
        for number in sorted(moved):  # by number: what one node teaches is expected of the next
            self._observe_node(number, counts[number])
        self._quiet.note(moved)
        self._apply_bounds(counts)
        self._relearn()
        overdue = [late for node in self._busy if (late := self.nodes[node].overdue) is not None]
        self._estimates = self.means.estimates_given(overdue) if overdue else self.means.estimates

    def _find_moved(self, now: float, counts: Sequence[int]) -> set[int]:
        moved: set[int] = set()
        if counts != self._told:
            moved.update(compress(range(len(counts)), map(ne, counts, self._told)))
        if -1 in counts:
            moved.update(node for node, count in enumerate(counts) if count < 0)
        self._told = counts
        arrivals = self._arrivals
        while arrivals and arrivals[0][0] <= now:
            moved.add(heappop(arrivals)[1])
        return moved

    def _observe_node(self, number: int, count: int) -> None:
        node = self.nodes[number]
        if count >= 0:
            node.observe(count)
        else:
            node.miss()
        (self._busy.add if node.busy else self._busy.discard)(number)

    def placed(self, node: int, job: int, cluster: int, category: int) -> None:
        """Add a placement at the instant last observed."""
        self.bounds.placed(node, job, cluster, category)
        arrival = self._instants.now + self._view.up[cluster][category][node]
        self.nodes[node].place(arrival, job, category)
        heappush(self._arrivals, (arrival, node))
        self._quiet.note((node,))

    @property
    def deviations(self) -> Floats:
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
    def service(self) -> Floats:
        """Expected service time as service[node, category]."""
        return self._estimates.mean

    @property
    def backlogs(self) -> Floats:
        """Expected time until each node has served the jobs that arrived there."""
        backlogs = np.zeros(len(self.nodes))
        now = self._instants.now
        for number in self._quiet.others(self._estimates, self.factor_variance, now):
            free = self.nodes[number].free_for(now, inf, self._estimates.row(number))[0]
            backlogs[number] = max(free - now, 0.0)
        return backlogs

    @property
    def in_transit(self) -> npt.NDArray[np.int64]:
        """Own jobs in transit to each node."""
        in_transit = np.zeros(len(self.nodes), np.int64)
        for number in self._ahead():
            in_transit[number] = self.nodes[number].in_transit
        return in_transit

    def overtaken(self, job: int, cluster: int, category: int) -> npt.NDArray[np.int64]:
        """Return how many own jobs in transit to each node a job placed now would overtake."""
        up, now = self._view.up[cluster][category], self._instants.now
        overtaken = np.zeros(len(self.nodes), np.int64)
        for number in self._ahead():
            overtaken[number] = self.nodes[number].overtaken_by(now + up[number], job)
        return overtaken

    def _ahead(self) -> set[int]:
        """Return the nodes to which jobs are in transit, and those that tell no count."""
        silent = (node for node, count in enumerate(self._told) if count < 0)
        return {node for _, node in self._arrivals}.union(silent if -1 in self._told else ())

    def responses(self, job: int, cluster: int, category: int) -> Floats:
        """Return the expected total response at each node for a job placed now.

        Latency, wait, service and latency back; the service time is the optimistic estimate.
        """
        now, estimates = self._instants.now, self._estimates
        up, down = self._both_latencies(cluster, category)
        arrivals = now + up
        responses: Floats = arrivals + estimates.optimistic[:, category] + down - now
        for number in self._quiet.others(estimates, self.factor_variance, arrivals):
            responses[number] = self._response(number, job, cluster, category)
        return responses

    def fastest(self, job: int, cluster: int, category: int, available: Available) -> int:
        """Return the node of the least expected response, the first of equal ones.

        Without waiting a response is soon computed; it is a bound, so most nodes need no more.
        """
        up, down = self._both_latencies(cluster, category)
        bounds = up + self._estimates.optimistic[:, category] + down
        if available is not None:
            absent = np.ones(len(bounds), np.bool_)
            absent[list(available)] = False
            bounds[absent] = inf
        slack = ROUNDING * (1 + abs(self._instants.now))
        best, least = -1, inf
        for number in bounds.argsort(kind="stable").tolist():
            if bounds[number] > least + slack:
                break
            response = self._response(number, job, cluster, category)
            if response < least or (response == least and number < best):
                best, least = number, response
        return best

    def _response(self, number: int, job: int, cluster: int, category: int) -> float:
        now, estimates = self._instants.now, self._estimates
        arrival = now + self._view.up[cluster][category][number]
        free = self.nodes[number].free_for(arrival, job, estimates.row(number))
        start = later_of(arrival, free)[0]
        service = float(estimates.optimistic[number, category])
        return start + service + self._view.down[cluster][category][number] - now

    def _both_latencies(self, cluster: int, category: int) -> Floats:
        """Return the latencies to all nodes and back."""
        key = cluster, category
        if key not in self._latencies:
            up, down = self._view.up, self._view.down
            self._latencies[key] = np.array([up[cluster][category], down[cluster][category]])
        return self._latencies[key]

    def _relearn(self) -> None:
        """Doubt what has changed, instead of averaging over what it was and what it is."""
        now = self._instants.now
        for number in self.bounds.changed:
            self.means.relearn(number)
            self.fired.append((now, number))
        if self.bounds.works_changed:
            self.means.relearn_works()
        for number in sorted(self._moved):
            changed = self.nodes[number].changed
            if changed is not None:
                self.bounds.relearn(number)
                self.means.relearn(number, changed)
                self.fired.append((now, number))

    def _forget(self, job: int) -> None:
        """Remove a job that was lost from the node where it was placed before."""
        self.bounds.forget(job)
        for number, node in enumerate(self.nodes):
            if node.forget(job):
                self._moved.add(number)

    def _apply_bounds(self, counts: Sequence[int]) -> None:
        bounds = self.bounds
        if not bounds.observe(counts, self._moved) and bounds.survived != self._trials:
            return
        if bounds.survived >= self._trials:
            self.means.confine(*bounds.limits)
        else:
            self.means.release()


def _mean_latency(view: AgentView) -> float:
    latencies = [x for cluster in view.up + view.down for row in cluster for x in row]
    return sum(latencies) / len(latencies)
