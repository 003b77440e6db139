"""The counts that follow from given placements, for whatever secrets the providers have."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fogveil.agent.policy import Policy
from fogveil.core.disclosure import Level
from fogveil.provider_node.provider import Aggregate, Provider, ProviderConfig
from fogveil.testbed.engine.embedded import Embedded, take_decisions
from fogveil.testbed.scenario.world import World

Counts = npt.NDArray[np.int64]


class Placed(NamedTuple):
    """A decision: when it was taken, and where the job arrives when."""

    emitted: float
    job: int
    category: int
    node: int
    arrival: float


def decisions_of(world: World, policy: Policy) -> list[Placed]:
    """Return the decisions of a policy, by the embedded engine."""
    kind, up = type(policy), world.paths.up
    engine = Embedded(world, kind.needs, watches_cloud=kind.watches_cloud)
    return [
        Placed(seen.time, seen.job, seen.category, node, seen.time + latency)
        for seen, node in take_decisions(engine, policy)
        for latency in (up[seen.cluster][seen.category][node],)
    ]


class Replay:
    """Placements that stand, under secrets that change.

    Equal counts give equal decisions. So where these placements lead to the counts that they were
    decided by, they are the decisions of the run with those secrets.
    """

    def __init__(self, world: World, decisions: Sequence[Placed]) -> None:
        self._demands = world.demands or ()
        self.instants = [decision.emitted for decision in decisions]
        self._jobs: list[list[Aggregate]] = [[] for _ in world.nodes]
        for decision in decisions:
            job = decision.job, decision.category, decision.arrival
            self._jobs[decision.node].append(job)

    def fog(self, number: int, config: ProviderConfig) -> list[int]:
        """Return the counts of one Fog provider with this configuration."""
        return self._serve(config, self._jobs[number])[0]

    def forwarded(self, fogs: Sequence[ProviderConfig]) -> list[Aggregate]:
        """Return what Fog providers with these configurations send on to the Cloud."""
        served = (self._serve(*pair) for pair in zip(fogs, self._jobs, strict=True))
        return [aggregate for _, aggregates in served for aggregate in aggregates]

    def cloud(self, forwarded: Sequence[Aggregate], config: ProviderConfig) -> list[int]:
        """Return the counts of the Cloud with this configuration."""
        return self._serve(config, forwarded)[0]

    def all(self, world: World) -> Counts:
        """Return the counts of all providers of a world, the Cloud's last: one row per decision."""
        columns = [self.fog(number, config) for number, config in enumerate(world.fogs)]
        columns.append(self.cloud(self.forwarded(world.fogs), world.cloud_provider))
        return np.array(columns, np.int64).T

    def _serve(
        self, config: ProviderConfig, jobs: Sequence[Aggregate]
    ) -> tuple[list[int], list[Aggregate]]:
        """Return a provider's counts, and what it sends on to the Cloud until the end."""
        provider = Provider(config, self._demands)
        for job in jobs:
            provider.accept(*job)
        counts, served = [], []
        for instant in self.instants:
            served += provider.advance(instant)
            counts.append(provider.count)
        served += provider.advance(inf)
        return counts, [] if config.is_cloud else provider.aggregates(served)


def permitted(counts: Counts, level: Level, *, watches_cloud: bool) -> Counts:
    """Return what the agent may know of the counts: each, their sum, or nothing."""
    if level is Level.TOTAL:
        total: Counts = counts.sum(axis=1, keepdims=True)
        return total
    if level is Level.NONE:
        return counts[:, :0]
    return counts if watches_cloud else counts[:, :-1]
