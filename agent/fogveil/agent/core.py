"""The agent's decisions without transport: workloads and disclosures in, placements out.

A policy observes one workload at a time and of the disclosures what its level permits, as in the
embedded engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
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
    ) -> None:
        """Begin an episode; `latencies` are those from an instant on, in order of time."""
        self._view, self._policy, self._record = view, policy, record
        self.visibility = Visibility.of(policy)
        self.decides_ahead = type(policy).decides_ahead
        self._undisclosed: deque[tuple[Observation, int, float, float | None]] = deque()
        """Decisions (public facts, node, arrival, demand) whose disclosures have not come yet."""
        self.available: tuple[int, ...] | None = None
        """The nodes that take jobs; None: all."""
        self._latencies = deque(latencies)
        self._placed = [0] * len(view.nodes)
        """Jobs on each node by the decisions whose disclosures have come."""

    def place(self, workload: Workload, disclosed: Disclosed | None) -> tuple[int, Placement]:
        """Return the node for a workload and its placement; None: the disclosures come later."""
        emission = workload.emitted, workload.job, workload.cluster, workload.category
        attempt = workload.attempt or 1
        public = Observation(*emission, available=self.available, attempt=attempt)
        observation = public
        if disclosed is not None and not self.decides_ahead:
            self._check(emission[0], disclosed)
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
            self._check(time, disclosed)
            self._placed[node] += 1
            observation = self._observation(public, disclosed)
            if self.decides_ahead:
                call_learn(self._policy, observation, node)
            counts = observed_counts(observation)
            self._record(Decision(job, cluster, category, node, time, arrival, counts, demand))

    def _observation(self, public: Observation, disclosed: Disclosed) -> Observation:
        return self.visibility.observation(
            public[:4], *disclosed, available=public.available, attempt=public.attempt
        )

    def _check(self, time: float, disclosed: Disclosed) -> None:
        """Refuse counts of more jobs than were placed: whoever discloses them is named."""
        if any(map(gt, disclosed.counts, self._placed)):
            counts = zip(self._view.nodes, disclosed.counts, self._placed, strict=True)
            name, count, placed = next(each for each in counts if each[1] > each[2])
            raise _implausible(name, count, time, f"{placed} had been placed on it")
        if disclosed.cloud_count is not None and disclosed.cloud_count > sum(self._placed):
            placed_anywhere = f"{sum(self._placed)} had been placed anywhere"
            raise _implausible(self._view.cloud, disclosed.cloud_count, time, placed_anywhere)


def _implausible(name: str, count: int, time: float, placed: str) -> MisbehaviourError:
    sentence = f"{name} disclosed {count} queued jobs at time {time:.6g}, when {placed}"
    return MisbehaviourError(name, sentence)
