"""The agent's decisions without transport: workloads and disclosures in, placements out.

A policy observes one workload at a time and of the disclosures what its level permits, as in the
embedded engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from operator import gt

from fogveil.agent.decision_record import Decision, observed_counts
from fogveil.agent.policy import AgentView, LatencyChange, Observation, Policy
from fogveil.agent.policy_call import call_learn, call_place, call_update
from fogveil.agent.visibility import Disclosed, Visibility
from fogveil.core.disclosure import Level
from fogveil.core.errors import MisbehaviourError
from fogveil.v1.workload_pb2 import Placement, Workload


class DecisionCore:
    """The decisions of one episode under one policy."""

    def __init__(
        self,
        view: AgentView,
        policy: Policy,
        record: Callable[[Decision], None],
        latencies: Iterable[LatencyChange] = (),
        accuse: Callable[[str, str], None] | None = None,
    ) -> None:
        """Begin an episode; `latencies` are those from an instant on, in order of time.

        `accuse` is told who discloses what cannot be, and why; by default that is an error.
        """
        self._view, self._policy, self._record = view, policy, record
        self._accuse = accuse or _refuse
        self.visibility = Visibility.of(policy)
        self.decides_ahead = type(policy).decides_ahead
        self._undisclosed: deque[tuple[Observation, int, float, float | None]] = deque()
        """Decisions (public facts, node, arrival, demand) whose disclosures have not come yet."""
        self.available: tuple[int, ...] | None = None
        """The nodes that take jobs; None: all."""
        self._latencies = deque(latencies)
        self._placed = [0] * len(view.nodes)
        """Jobs on each node by the decisions whose disclosures have come."""
        self._under_way: list[tuple[float, int]] = []
        """When which of them arrive at which node, as a heap."""
        self._arrived = [0] * len(view.nodes)
        self._distrusted: frozenset[int] = frozenset()
        """The nodes that disclosed what cannot be."""

    def place(self, workload: Workload, disclosed: Disclosed | None) -> tuple[int, Placement]:
        """Return the node for a workload and its placement; None: the disclosures come later."""
        emission = workload.emitted, workload.job, workload.cluster, workload.category
        attempt = workload.attempt or 1
        if disclosed is not None and not self.decides_ahead:
            disclosed = self._checked(emission[0], disclosed)
        public = Observation(*emission, available=self.available, attempt=attempt)
        observation = public
        if disclosed is not None and not self.decides_ahead:
            observation = self._observation(public, disclosed)
        while self._latencies and self._latencies[0].at <= emission[0]:
            change = self._latencies.popleft()
            self._view = change.applied_to(self._view)
            call_update(self._policy, change, observation)
        node = call_place(self._policy, observation, len(self._view.nodes))
        arrival = workload.emitted + self._view.up[workload.cluster][workload.category][node]
        demand = workload.demand if workload.HasField("demand") else None
        self._undisclosed.append((public, node, arrival, demand))
        if disclosed is not None or self.visibility.level is Level.NONE:
            self.learn((disclosed or Disclosed(),))
        placement = Placement(
            job=workload.job,
            cluster=workload.cluster,
            category=workload.category,
            arrival=arrival,
            demand=demand,
        )
        return node, placement

    def learn(self, rows: Iterable[Disclosed]) -> None:
        """Complete the oldest undisclosed decisions: let the policy learn, record them."""
        for disclosed in rows:
            public, node, arrival, demand = self._undisclosed.popleft()
            time, job, cluster, category = public[:4]
            credible = self._checked(time, disclosed)
            self._placed[node] += 1
            heappush(self._under_way, (arrival, node))
            observation = self._observation(public, credible)
            if self.decides_ahead:
                call_learn(self._policy, observation, node)
            counts = observed_counts(observation)
            self._record(Decision(job, cluster, category, node, time, arrival, counts, demand))

    def _observation(self, public: Observation, disclosed: Disclosed) -> Observation:
        return self.visibility.observation(
            public[:4], *disclosed, available=public.available, attempt=public.attempt
        )

    def _checked(self, time: float, disclosed: Disclosed) -> Disclosed:
        """Return what can be, and accuse whoever discloses more jobs than can have arrived."""
        under_way, arrived = self._under_way, self._arrived
        while under_way and under_way[0][0] <= time:
            arrived[heappop(under_way)[1]] += 1
        if self._distrusted:
            disclosed = disclosed.hiding(self._distrusted)
        if any(map(gt, disclosed.counts, arrived)):
            nodes = range(len(arrived))
            liars = [node for node in nodes if disclosed.counts[node] > arrived[node]]
            for node in liars:
                self._accuse_of_count(self._view.nodes[node], disclosed.counts[node], time, node)
            self._distrusted |= frozenset(liars)
            disclosed = disclosed.hiding(self._distrusted)
        if disclosed.cloud_count is not None and disclosed.cloud_count > sum(self._placed):
            self._accuse_of_count(self._view.cloud, disclosed.cloud_count, time)
        return disclosed

    def _accuse_of_count(self, name: str, count: int, time: float, node: int | None = None) -> None:
        placed = sum(self._placed) if node is None else self._placed[node]
        when = f"{placed} had been placed {'anywhere' if node is None else 'on it'}"
        if count <= placed and node is not None:
            when = f"{self._arrived[node]} of the {placed} that had been placed on it had arrived"
        sentence = f"{name} disclosed {count} queued jobs at time {time:.6g}, when {when}"
        self._accuse(name, sentence)


def _refuse(name: str, sentence: str) -> None:
    raise MisbehaviourError(name, sentence)
