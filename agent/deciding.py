"""What the agent does in a window of simulated time, without transport.

Workloads and counts come in; placements and the record of decisions go out. A policy sees one
workload at a time and of the counts what its level permits, as in the embedded engine.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from math import isfinite
from typing import NamedTuple

from agent.choosing import choose, learn
from agent.policy import AgentView, Load, Observation, Policy
from agent.record import UNSEEN, Decision
from fogveil.disclosure import Level
from fogveil.v1.workload_pb2 import Placement, Workload

log = logging.getLogger("agent")


class Seen(NamedTuple):
    """What the providers disclosed at one decision instant."""

    counts: tuple[int, ...] = ()
    cloud: int | None = None
    load: Load | None = None
    total: int | None = None
    """Where they disclose nothing but the sum of all counts."""


class Inbox:
    """Workloads that came and wait for their decision, in order of emission and job id."""

    def __init__(self, view: AgentView) -> None:
        self._view = view
        self.reset()

    def reset(self) -> None:
        """Begin an episode."""
        self._waiting: list[tuple[float, int, Workload]] = []
        self._known: set[int] = set()

    def add(self, workload: Workload) -> bool:
        """Take a workload; one that cannot be is dropped, and the run goes on."""
        fault = self._fault(workload)
        if fault:
            log.warning("dropped workload %d: %s", workload.job, fault)
            return False
        self._known.add(workload.job)
        heappush(self._waiting, (workload.emitted, workload.job, workload))
        return True

    def _fault(self, workload: Workload) -> str | None:
        if workload.job in self._known:
            return "it came before"
        if workload.cluster >= len(self._view.clusters):
            return f"cluster {workload.cluster} is unknown"
        if workload.category >= len(self._view.categories):
            return f"category {workload.category} is unknown"
        if not isfinite(workload.emitted) or workload.emitted < 0:
            return f"it was emitted at {workload.emitted}"
        return None

    def take(self, number: int) -> list[Workload]:
        """Return the next workloads in order."""
        return [heappop(self._waiting)[2] for _ in range(number)]


class Deciding:
    """The decisions of one episode under one policy."""

    def __init__(self, view: AgentView, policy: Policy, note: Callable[[Decision], None]) -> None:
        self._view, self._policy, self._note = view, policy, note
        # What an instance says of itself may have changed since it was checked.
        self.needs = type(policy).needs
        self.ahead = type(policy).decides_ahead
        self.watches_cloud = self.needs is Level.TOTAL or (
            self.needs >= Level.COUNT and type(policy).watches_cloud
        )
        self._open: deque[tuple[Observation, int, float]] = deque()
        """Decisions taken before the counts of their instants came."""

    def place(self, workload: Workload, seen: Seen | None) -> tuple[int, Placement]:
        """Decide where a workload goes; without `seen` the counts will come later."""
        blind = Observation(workload.emitted, workload.job, workload.cluster, workload.category)
        shown = blind if seen is None or self.ahead else self._shown(blind, seen)
        node = choose(self._policy, shown, len(self._view.nodes))
        arrival = blind.time + self._view.up[blind.cluster][blind.category][node]
        self._open.append((blind, node, arrival))
        if seen is not None or self.needs is Level.NONE:
            self.learn((seen,))
        placement = Placement(
            job=workload.job,
            cluster=workload.cluster,
            category=workload.category,
            arrival=arrival,
            demand=workload.demand if workload.HasField("demand") else None,
        )
        return node, placement

    def learn(self, rows: Iterable[Seen | None]) -> None:
        """Take in what was disclosed at the oldest decisions that wait for it."""
        for seen in rows:
            blind, node, arrival = self._open.popleft()
            given: tuple[int, ...] = ()
            shown = blind if seen is None else self._shown(blind, seen)
            if self.ahead:
                learn(self._policy, shown, node)
            if self.needs is not Level.NONE:
                given = _given(shown)
            _, job, cluster, category, *_ = blind
            self._note(Decision(job, cluster, category, node, blind.time, arrival, given))

    def _shown(self, blind: Observation, seen: Seen) -> Observation:
        if self.needs is Level.NONE:
            return blind
        if self.needs is Level.TOTAL:
            if seen.total is not None:
                return blind._replace(total=seen.total)
            assert seen.cloud is not None
            return blind._replace(total=sum(seen.counts) + seen.cloud)
        cloud = seen.cloud if self.watches_cloud else None
        load = seen.load if self.needs is Level.FULL else None
        return blind._replace(counts=seen.counts, cloud_count=cloud, load=load)


def _given(shown: Observation) -> tuple[int, ...]:
    if shown.counts is None:
        assert shown.total is not None
        return (shown.total,)
    return (*shown.counts, UNSEEN if shown.cloud_count is None else shown.cloud_count)
