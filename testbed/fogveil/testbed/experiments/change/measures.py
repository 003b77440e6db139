"""What a change cost: how long a method was behind the informed oracle, and how much in all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import numpy as np

from fogveil.testbed.experiments.change.execution import read_times
from fogveil.testbed.experiments.change.plan import AT, HORIZON, ORACLE, SEEDS, Kind
from fogveil.testbed.records.job_times import JobTimes
from fogveil.testbed.records.join import Floats
from fogveil.testbed.report.statistics import Estimate, estimate, paired_ratio

WINDOW = 200
"""Workloads of the rolling mean."""
TOLERANCE = 1.05
"""Largest ratio to the oracle that counts as back."""
FIRST, LAST = 1000.0, 5000.0
"""Time units after the change, and at the end of the run, of which means are shown."""


class Recovery(NamedTuple):
    """How one run came back to the oracle, whose workloads are the same."""

    time: float
    """From the change to the first window that is within the tolerance; to the end if none is."""
    back: bool
    """Whether there is such a window."""
    decisions: int
    """For the changed node until then; 0 where no node changes."""
    paid: float
    """Delay beyond the oracle's, added up over the workloads that were under way at the change or
    were emitted until then."""


def recover(run: JobTimes, oracle: JobTimes, node: int | None) -> Recovery:
    """Measure how a run came back after the change."""
    first = int(np.searchsorted(run.emitted, AT))
    ratios = rolling(run.delay[first:]) / rolling(oracle.delay[first:])
    within = np.flatnonzero(ratios <= TOLERANCE)
    end = first + int(within[0]) if within.size else len(run.emitted)
    until = 0.0 if end == first else run.emitted[end] - AT if within.size else HORIZON - AT
    under_way = (run.returned > AT) | (oracle.returned > AT)
    excess = (run.delay - oracle.delay)[:end][under_way[:end]]
    decisions = 0 if node is None else int((run.node[first:end] == node).sum())
    return Recovery(float(until), bool(within.size), decisions, float(excess.sum()))


def rolling(delay: Floats) -> Floats:
    """Return the mean of each window by the place of its first workload."""
    sums = np.concatenate(([0.0], np.cumsum(delay)))
    means: Floats = (sums[WINDOW:] - sums[:-WINDOW]) / WINDOW
    return means


def mean_delay(run: JobTimes, begin: float, end: float = np.inf) -> float:
    """Return the mean Fog loop of the workloads emitted in a stretch of time."""
    return float(run.delay[(run.emitted >= begin) & (run.emitted < end)].mean())


@dataclass(frozen=True)
class MethodRuns:
    """A method's runs on one kind of change: by seed, of retrained agents one for each training."""

    kind: Kind
    method: str
    runs: list[list[JobTimes]]
    oracle: list[JobTimes]

    @classmethod
    def read(cls, kind: Kind, method: str) -> MethodRuns:
        """Return the finished runs."""
        seeds = range(1, SEEDS + 1)
        oracle = [read_times(kind, ORACLE, seed)[0] for seed in seeds]
        return cls(kind, method, [read_times(kind, method, seed) for seed in seeds], oracle)

    def recoveries(self) -> list[list[Recovery]]:
        """Return how each run came back, by seed."""
        node = None if self.kind.node is None else int(self.kind.node.partition("-")[2]) - 1
        return [
            [recover(run, oracle, node) for run in runs]
            for runs, oracle in zip(self.runs, self.oracle, strict=True)
        ]

    def delays(self, begin: float, end: float = np.inf) -> list[float]:
        """Return the mean Fog loop in a stretch of time by seed, the mean over trainings."""
        return [fmean(mean_delay(run, begin, end) for run in runs) for runs in self.runs]

    def delays_by_training(self) -> list[float]:
        """Return the mean Fog loop from the change on of each training, the mean over seeds."""
        return [fmean(mean_delay(run, AT) for run in runs) for runs in zip(*self.runs, strict=True)]

    def ratio(self, begin: float, end: float = np.inf) -> Estimate:
        """Return the ratio to the oracle's mean delay in a stretch of time."""
        return paired_ratio(
            self.delays(begin, end), [mean_delay(oracle, begin, end) for oracle in self.oracle]
        )

    def against(self, other: MethodRuns) -> Estimate:
        """Return the ratio of mean delays to another method's from the change on."""
        return paired_ratio(self.delays(AT), other.delays(AT))

    @property
    def runs_back(self) -> tuple[int, int]:
        """How many runs came back, and how many there are."""
        all_of_them = [each for seed in self.recoveries() for each in seed]
        return sum(each.back for each in all_of_them), len(all_of_them)

    @property
    def outside_before(self) -> int:
        """How many of the runs that did not come back were no better before the change."""
        return sum(
            mean_delay(run, AT - LAST, AT) > TOLERANCE * mean_delay(oracle, AT - LAST, AT)
            for runs, oracle, back in zip(self.runs, self.oracle, self.recoveries(), strict=True)
            for run, each in zip(runs, back, strict=True)
            if not each.back
        )

    def mean_of(self, measure: str) -> Estimate:
        """Return the mean of a measure of `Recovery` over seeds."""
        by_seed = [fmean(getattr(each, measure) for each in seed) for seed in self.recoveries()]
        return estimate(by_seed)

    def ratio_over_time(self, times: Sequence[float], width: float) -> list[float]:
        """Return the ratio to the oracle at instants, pooled over seeds and trainings.

        Before the change it is over the time that has passed, from then on over what follows: no
        window has both.
        """
        ratios = []
        for time in times:
            begin = time if time >= AT else time - width
            end = begin + width
            own = _pooled([run for runs in self.runs for run in runs], begin, end)
            ratios.append(own / _pooled(self.oracle, begin, end))
        return ratios


def _pooled(runs: Sequence[JobTimes], begin: float, end: float) -> float:
    delays = [run.delay[(run.emitted >= begin) & (run.emitted < end)] for run in runs]
    return float(np.concatenate(delays).mean())
