"""veil-total: from the total alone, probe the nodes, infer their speeds, then place by them."""

from __future__ import annotations

from bisect import insort

from fogveil.agent.inference.estimator import infer
from fogveil.agent.inference.probes import Bursts
from fogveil.agent.inference.transcript import Transcript
from fogveil.agent.policy import Level, Observation, Policy

PROBES_PER_NODE = 20
"""Decisions per node before the speeds are inferred; fewer leave several explanations open."""
BURST = 4
"""Jobs at most that go to one node in a row: longer queues reveal more, and delay more."""
ATTEMPTS = 4
"""Inferences before the best guess is used as it is. Each probes half as long again as the last."""


class VeilTotal(Policy):
    """Infer from the totals how fast each node is; then place where a job returns first.

    It uses the total, public latencies and its own placements, and that a node is a FIFO with one
    server. Once the speeds are known no count is needed: they and the own placements give the
    nodes' queues.
    """

    needs = Level.TOTAL

    def reset(self) -> None:
        """Begin without knowledge of any node."""
        self._probes: list[tuple[Observation, int]] = []
        """Observations and placements until the speeds are known."""
        self._bursts = Bursts(self.view, BURST)
        self._attempts = 0
        self._next_attempt = PROBES_PER_NODE * len(self.view.nodes)
        """The number of probes after which the speeds are inferred next."""
        self._queues: list[_Queue] = []
        """One per node, once there is an estimate of the speeds."""
        self.speeds_known = False
        """Whether probing is over."""

    @property
    def service(self) -> list[list[float]]:
        """Estimated service times as service[node][category]; empty before the first estimate."""
        return [queue.service for queue in self._queues]

    def backlogs(self, now: float) -> list[float]:
        """Return how long each node will serve what has arrived there, by the estimates."""
        return [max(0.0, queue.free(now) - now) for queue in self._queues]

    def place(self, observation: Observation) -> int:
        """Return the node whose burst it is, or from which this job is expected back first."""
        if not self.speeds_known and len(self._probes) == self._next_attempt:
            self._infer()
        if self.speeds_known:
            node = self._first_to_return(observation)
        else:
            node = self._bursts.next(lambda: self._first_free(observation.time))
            self._probes.append((observation, node))
        if self._queues:
            self._enqueue(observation, node)
        return node

    def _enqueue(self, observation: Observation, node: int) -> None:
        time, job, cluster, category, *_ = observation
        arrival = time + self.view.up[cluster][category][node]
        self._queues[node].add(arrival, job, category)

    def _first_to_return(self, observation: Observation) -> int:
        now, _, cluster, category, *_ = observation
        nodes = zip(
            self._queues,
            self.view.up[cluster][category],
            self.view.down[cluster][category],
            strict=True,
        )
        returns = [queue.finish(now, now + up, category) + down for queue, up, down in nodes]
        return returns.index(min(returns))

    def _first_free(self, now: float) -> int | None:
        """Return the node that a burst finds idle first, if there is an estimate."""
        free = [queue.free(now) for queue in self._queues]
        return free.index(min(free)) if free else None

    def _infer(self) -> None:
        transcript = Transcript(self.view, tuple(self._probes))
        estimate = infer(Level.TOTAL, transcript, [len(transcript)])[len(transcript)]
        self._attempts += 1
        self.speeds_known = estimate.explained or self._attempts == ATTEMPTS
        self._next_attempt += self._next_attempt // 2
        self._queues = [_Queue(times) for times in estimate.service.tolist()]
        for observation, node in self._probes:
            self._enqueue(observation, node)


class _Queue:
    """A node's queue, computed from the own placements and estimated service times."""

    def __init__(self, service: list[float]) -> None:
        self.service = service
        self._free = 0.0
        """When all that had arrived is served."""
        self._in_transit: list[tuple[float, int, int]] = []

    def add(self, arrival: float, job: int, category: int) -> None:
        """Add a job that will arrive."""
        insort(self._in_transit, (arrival, job, category))

    def free(self, now: float) -> float:
        """Return when all is served that has arrived by now."""
        in_transit = self._in_transit
        # Jobs placed from now on arrive later: the order of those that have arrived is final.
        while in_transit and in_transit[0][0] <= now:
            arrival, _, category = in_transit.pop(0)
            self._free = max(self._free, arrival) + self.service[category]
        return self._free

    def finish(self, now: float, arrival: float, category: int) -> float:
        """Return when a job would be served that arrives then."""
        free = self.free(now)
        for other_arrival, _, other_category in self._in_transit:
            if other_arrival > arrival:
                break
            free = max(free, other_arrival) + self.service[other_category]
        return max(free, arrival) + self.service[category]
