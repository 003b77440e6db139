"""The IoT clusters' sources: when which workload is emitted, whatever becomes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fogveil.randomness import KeyedErlang
from testbed.traces import Trace

Emission = tuple[float, int, int, int]
"""A workload comes into being: (time, job, cluster, category)."""


@dataclass(frozen=True, slots=True)
class SourcesConfig:
    """All that the sources are given."""

    clusters: tuple[str, ...]
    categories: tuple[str, ...]
    kind: str
    scale: float
    phase: str
    trace: Trace | None
    horizon: float
    seed: int
    """The workload's seed."""


def streams(config: SourcesConfig) -> list[Iterator[Emission]]:
    """Return one endless-looking stream per source; each ends at the horizon.

    The k-th job of stream i has id k · streams + i, so ids need no agreement between processes.
    """
    if config.trace is not None:
        return [_replay(config.trace, config.horizon)]
    kinds = [
        (cluster, category)
        for cluster in range(len(config.clusters))
        for category in range(len(config.categories))
    ]
    emit = _poisson if config.kind == "poisson" else _periodic
    return [emit(config, number, len(kinds), *kind) for number, kind in enumerate(kinds)]


def demand_factors(config: SourcesConfig) -> tuple[float, ...] | None:
    """Return what each job demands, by job id, as a factor of its category's instructions.

    None where every job demands what its category says.
    """
    return config.trace.demands if config.trace else None


def _poisson(
    config: SourcesConfig, first: int, step: int, cluster: int, category: int
) -> Iterator[Emission]:
    gap, scale, horizon = KeyedErlang(config.seed, "gap"), config.scale, config.horizon
    job, time = first, scale * gap(first)
    while time <= horizon:
        yield time, job, cluster, category
        job += step
        time += scale * gap(job)


def _periodic(
    config: SourcesConfig, first: int, step: int, cluster: int, category: int
) -> Iterator[Emission]:
    offset = first / step if config.phase == "spread" else 0.0
    round_ = 1
    while (time := (round_ + offset) * config.scale) <= config.horizon:
        yield time, first + (round_ - 1) * step, cluster, category
        round_ += 1


def _replay(trace: Trace, horizon: float) -> Iterator[Emission]:
    for job, time in enumerate(trace.times):
        if time > horizon:
            return
        yield time, job, trace.clusters[job], trace.categories[job]
