"""The IoT clusters' sources: when which workload is emitted, whatever becomes of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from math import inf

from fogveil.core.randomness import KeyedErlang
from fogveil.protocol.limits import LARGEST_WINDOW
from fogveil.sources.pace import Pace, PaceChange

Emission = tuple[float, int, int, int]
"""A workload is emitted: (time, job, cluster, category)."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A workload per row; the row's number is the job's id."""

    times: tuple[float, ...]
    clusters: tuple[int, ...]
    categories: tuple[int, ...]
    demands: tuple[float, ...] | None
    """Demand of each job as a factor of its category's instructions, where the trace gives it."""


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
    changes: tuple[PaceChange, ...] = ()
    """What will change of the pace of emissions, in order of time."""


def streams(config: SourcesConfig) -> list[Iterator[Emission]]:
    """Return one stream of emissions per source; each ends at the horizon.

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
    if config.changes:
        emit = _paced
    return [emit(config, number, len(kinds), *kind) for number, kind in enumerate(kinds)]


def emissions(config: SourcesConfig, clusters: Iterable[int]) -> Iterator[Emission]:
    """Yield what the given clusters emit, in order of time and job id."""
    mine = frozenset(clusters)
    return (emission for emission in merge(*streams(config)) if emission[2] in mine)


class EmissionBuffer:
    """Emissions, read ahead so that the next ones can be announced."""

    def __init__(self, emitted: Iterator[Emission]) -> None:
        self._emitted = emitted
        self._next: list[Emission] = []
        self.complete = False

    def take(self, until: float) -> list[Emission]:
        """Return what is emitted up to and including `until`; all of it was announced."""
        due = [emission for emission in self._next if emission[0] <= until]
        del self._next[: len(due)]
        return due

    def add(self, emitted: Iterable[Emission]) -> None:
        """Add emissions that nobody knew of, all of them after what was taken."""
        again = sorted(emitted)
        horizon = self._next[-1] if self._next and not self.complete else (inf,)
        later = [emission for emission in again if emission > horizon]
        self._next = sorted([*self._next, *(each for each in again if each <= horizon)])
        if later:
            self._emitted = merge(later, self._emitted)

    def announce(self) -> list[float]:
        """Return the times of the next emissions: all or none of those of one instant."""
        known = self._next
        while not self.complete and (len(known) <= LARGEST_WINDOW or known[-1][0] == known[-2][0]):
            following = next(self._emitted, None)
            if following is None:
                self.complete = True
            else:
                known.append(following)
        # The last one is held back: it shows that its predecessor's instant is complete.
        return [emission[0] for emission in (known if self.complete else known[:-1])]


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


def _paced(
    config: SourcesConfig, first: int, step: int, cluster: int, category: int
) -> Iterator[Emission]:
    """Yield what a source emits whose pace changes; before the first change it is as ever."""
    pace = Pace(config.scale, len(config.categories), category, config.changes)
    drawn = KeyedErlang(config.seed, "gap")
    poisson, offset = config.kind == "poisson", first / step if config.phase == "spread" else 0.0
    job, time = first, pace.after(0.0, drawn(first) if poisson else 1.0 + offset)
    while time <= config.horizon:
        yield time, job, cluster, category
        job += step
        time = pace.after(time, drawn(job) if poisson else 1.0)


def _replay(trace: Trace, horizon: float) -> Iterator[Emission]:
    for job, time in enumerate(trace.times):
        if time > horizon:
            return
        yield time, job, trace.clusters[job], trace.categories[job]
