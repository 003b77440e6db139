"""What every participant of a run must have recorded, computed from the scenario by the cores.

The experimenter has all secrets. So what the sources emit is known before the run, and everything
else follows from the agent's placements: when each job is served and forwarded, what each provider
counts at each decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import merge
from math import inf
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fogveil.agent.decision_record import UNSEEN
from fogveil.agent.visibility import Visibility
from fogveil.core.disclosure import CountKind, Level
from fogveil.core.membership import Membership
from fogveil.provider_node.journal import JournalLine
from fogveil.provider_node.node import Served
from fogveil.provider_node.provider import Aggregate, Provider, ProviderConfig
from fogveil.sources.core import streams
from fogveil.sources.records import EmittedWorkload
from fogveil.testbed.scenario.world import World

Journal = dict[int, JournalLine]
"""What a provider served, by job."""
Counts = npt.NDArray[np.int64]


class Placed(NamedTuple):
    """A job on its way to a provider."""

    job: int
    category: int
    arrival: float


def emitted_workloads(world: World) -> list[EmittedWorkload]:
    """Return what the sources of a world emit, in the order of decisions."""
    demands = world.demands
    return [
        EmittedWorkload(job, cluster, category, time, demands[job] if demands else None)
        for time, job, cluster, category in merge(*streams(world.sources))
    ]


class Reference:
    """The run that follows from the placements."""

    def __init__(self, world: World, placed: Sequence[Sequence[Placed]]) -> None:
        """Serve the jobs that were placed on each Fog node."""
        self._world, self._placed = world, placed
        self.fogs: list[Journal] = []
        self.emitted_again: list[tuple[float, int]] = []
        """When which job is emitted again because a crash lost it."""
        aggregates: list[Aggregate] = []
        for config, jobs in zip(world.fogs, placed, strict=True):
            provider, served = self._serve(config, jobs)
            forwarded = provider.aggregates(served)
            aggregates += forwarded
            self.fogs.append(self._journal(served, {job for job, _, _ in forwarded}))
        provider, served = self._serve(world.cloud_provider, aggregates)
        fed_back = {job[0] for job in served if provider.is_fed_back(job[0])}
        self.cloud = self._journal(served, fed_back)

    def _serve(
        self, config: ProviderConfig, jobs: Iterable[tuple[int, int, float]]
    ) -> tuple[Provider, list[Served]]:
        provider = Provider(config, self._world.demands or ())
        for job, category, arrival in jobs:
            provider.accept(job, category, arrival)
        served = provider.advance(inf)
        self.emitted_again += [(again, job) for job, _, _, again in provider.node.take_lost()]
        return provider, served

    def _journal(self, served: list[Served], passed_on: set[int]) -> Journal:
        demands = self._world.demands
        return {
            job[0]: JournalLine(job, job[0] in passed_on, demands[job[0]] if demands else None)
            for job in served
        }

    def counts(self, visibility: Visibility, times: Sequence[float]) -> list[tuple[int, ...]]:
        """Return what a policy observes at the instants of its decisions, as records keep it."""
        if visibility.level is Level.NONE:
            return [()] * len(times)
        columns = [
            self._column(journal, times)
            if not provider.changes
            else self._changing_column(provider, jobs, times)
            for journal, provider, jobs in zip(
                self.fogs, self._world.fogs, self._placed, strict=True
            )
        ]
        self._hide(columns, times)
        if visibility.needs_cloud:
            columns.append(self._column(self.cloud, times))
        else:
            columns.append(np.full(len(times), UNSEEN))
        if visibility.level is Level.TOTAL:
            columns = [np.sum([np.where(each == UNSEEN, 0, each) for each in columns], axis=0)]
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def _hide(self, columns: Sequence[Counts], times: Sequence[float]) -> None:
        """Take out the counts that nodes do not tell while they are away."""
        members = Membership(len(columns), self._world.members)
        for number, time in enumerate(times):
            members.advance(time)
            for node in members.silent:
                columns[node][number] = UNSEEN

    def _changing_column(
        self, config: ProviderConfig, jobs: Sequence[Placed], times: Sequence[float]
    ) -> Counts:
        """Count the jobs at a provider that changes, by going through its time."""
        provider = Provider(config, self._world.demands or ())
        for job, category, arrival in jobs:
            provider.accept(job, category, arrival)
        counts = np.empty(len(times), np.int64)
        for number, time in enumerate(times):
            provider.advance(time)
            counts[number] = provider.count
        return counts

    def _column(self, journal: Journal, times: Sequence[float]) -> Counts:
        """Count the jobs at one provider: at one instant the order is arrival, start, observe."""
        left = 3 if self._world.scenario.count is CountKind.WAITING else 4
        begin = np.sort([line.served[2] for line in journal.values()])
        end = np.sort([line.served[left] for line in journal.values()])
        counts: Counts = np.searchsorted(begin, times, "right") - np.searchsorted(
            end, times, "right"
        )
        return counts
