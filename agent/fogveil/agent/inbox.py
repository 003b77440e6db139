"""Workloads that wait for their decision; one that cannot be is blamed on its sender."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf, isfinite

from fogveil.agent.policy import AgentView
from fogveil.core.errors import MisbehaviourError
from fogveil.v1.workload_pb2 import Workload


@dataclass(frozen=True)
class EmissionRules:
    """Public facts about workloads, by which the agent tells whether one can be its sender's."""

    owners: tuple[str, ...]
    """The sources process of each cluster."""
    numbered: bool
    """Whether ids count through the streams: stream i emits i, i + streams, i + 2 · streams, ….
    There is one stream per cluster and category. Else ids are the rows of a trace."""
    demands: bool
    """Whether each job brings its own demand."""


class Inbox:
    """Workloads that wait for their decision, in order of emission and job id."""

    def __init__(self, view: AgentView, rules: EmissionRules) -> None:
        self._clusters, self._categories = len(view.clusters), len(view.categories)
        self._rules = rules
        self.reset()

    def reset(self) -> None:
        """Begin an episode."""
        self._waiting: list[tuple[float, int, Workload]] = []
        self._senders: dict[int, str] = {}
        """Who emitted each job."""
        self._times: dict[str, list[float]] = {name: [] for name in self._rules.owners}
        """When the workloads of each sources process were emitted, in the order of its messages."""
        self._last: dict[str, tuple[float, int]] = {}
        """The last emission of each sources process: its time and job."""
        self._attempts: dict[int, int] = {}
        """Of each job that was lost and emitted again."""
        self._next_ids = list(range(self._clusters * self._categories))
        """The next job of each stream, where ids count through the streams."""

    def add(self, sender: str, workloads: Sequence[Workload]) -> int:
        """Take the workloads of a message and return how many they are."""
        for workload in workloads:
            fault = self._fault(sender, workload)
            if fault:
                sentence = f"{sender} sent the agent workload {workload.job}, but {fault}"
                raise MisbehaviourError(sender, sentence)
            emitted, job = workload.emitted, workload.job
            self._senders[job] = sender
            self._times[sender].append(emitted)
            self._last[sender] = emitted, job
            heappush(self._waiting, (emitted, job, workload))
        return len(workloads)

    def _fault(self, sender: str, workload: Workload) -> str | None:
        job, emitted = workload.job, workload.emitted
        if workload.cluster >= self._clusters:
            return f"cluster {workload.cluster} is unknown"
        if workload.category >= self._categories:
            return f"category {workload.category} is unknown"
        owner = self._rules.owners[workload.cluster]
        if sender != owner:
            return f"its cluster {workload.cluster} belongs to {owner}"
        if not isfinite(emitted) or emitted < 0:
            return f"its emission time is {emitted}"
        if (emitted, job) <= self._last.get(sender, (-inf, -1)):
            return f"{emitted!r} is no time for it after its predecessor"
        if workload.HasField("demand") != self._rules.demands or (
            self._rules.demands and not 0 < workload.demand < inf
        ):
            return f"its demand is {workload.demand if workload.HasField('demand') else 'missing'}"
        return self._id_fault(workload)

    def _id_fault(self, workload: Workload) -> str | None:
        if workload.attempt:
            job, attempt = workload.job, workload.attempt
            expected = self._attempts.get(job, 1) + 1
            if job not in self._senders or attempt != expected:
                return f"it cannot be emitted for the time {attempt}"
            self._attempts[job] = attempt
            return None
        if self._rules.numbered:
            stream = workload.cluster * self._categories + workload.category
            expected = self._next_ids[stream]
            if workload.job != expected:
                return f"the next job of its cluster and category has id {expected}"
            self._next_ids[stream] += len(self._next_ids)
        elif workload.job in self._senders:
            return f"{self._senders[workload.job]} had emitted a job of that id"
        return None

    def take(
        self, instants: Sequence[float], until: float, announced: Mapping[str, int]
    ) -> list[Workload]:
        """Remove and return the workloads of a window, whose instants the sources told the clock.

        `announced` is how many workloads each sources process has told the clock up to `until`.
        One that tells the agent other times than the clock is named.
        """
        window = [heappop(self._waiting)[2] for _ in instants]
        if [workload.emitted for workload in window] == list(instants):
            return window
        names = self._untrue(window, instants, until, announced)
        raise MisbehaviourError(
            names[0],
            f"{' or '.join(names)} told the agent other emission times than the clock, "
            f"in the window that ends at {until:.6g}",
        )

    def _untrue(
        self,
        window: list[Workload],
        instants: Sequence[float],
        until: float,
        announced: Mapping[str, int],
    ) -> list[str]:
        """Return who may have sent the agent other emission times than the clock."""
        for name, number in announced.items():
            times = self._times[name]
            within, after = times[:number], times[number:]
            if (within and within[-1] > until) or (after and after[0] <= until):
                return [name]
        unannounced = Counter(each.emitted for each in window) - Counter(instants)
        suspects = [self._senders[each.job] for each in window if each.emitted in unannounced]
        return list(dict.fromkeys(suspects))
