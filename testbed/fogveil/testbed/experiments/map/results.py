"""What was found at each point of the map."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, geometric_mean

from fogveil.testbed.experiments.comparison import evaluate
from fogveil.testbed.experiments.map.plan import (
    ORACLE,
    RIVALS,
    Point,
    comparison_of,
    trainings,
)

STABLE = 1.1
"""Largest ratio of a delay at the long horizon to the short one's, if queues do not grow."""


@dataclass(frozen=True)
class Delays:
    """The mean Fog-loop delay of a method at a point."""

    short: float
    long: float

    @property
    def stable(self) -> bool:
        """Whether the delay does not grow with the horizon."""
        return self.long <= STABLE * self.short


@dataclass(frozen=True)
class PointResult:
    """A point, the delays of the oracle and of the rivals, and those of PARL by training."""

    point: Point
    oracle: Delays
    rivals: dict[str, Delays]
    parl: tuple[Delays, ...]

    def ratios(self, method: str) -> list[float]:
        """Return a method's delay in the oracle's at the short horizon; of PARL by training."""
        delays = self.parl if method == "parl" else (self.rivals[method],)
        return [each.short / self.oracle.short for each in delays]

    def mean_ratio(self, method: str) -> float:
        """Return the geometric mean of the ratios."""
        return geometric_mean(self.ratios(method))

    def stable(self, method: str) -> bool:
        """Whether a method is stable; PARL in all trainings."""
        delays = self.parl if method == "parl" else (self.rivals[method],)
        return all(each.stable for each in delays)

    @property
    def stable_trainings(self) -> int:
        """The trainings of PARL that are stable."""
        return sum(each.stable for each in self.parl)


def read_result(point: Point) -> PointResult:
    """Return what was found at a point whose runs are finished."""
    comparison = comparison_of(point)
    found: dict[str, list[float]] = {}
    for average in evaluate(comparison, ORACLE):
        found.setdefault(average.policy, []).append(average.measures["fog_loop"].mean)
    labels = [comparison.label_of(str(training.light)) for training in trainings([point])]
    return PointResult(
        point,
        Delays(*found[ORACLE]),
        {name: Delays(*found[name]) for name in RIVALS},
        tuple(Delays(*found[label]) for label in labels),
    )


def agreement(pairs: Iterable[tuple[PointResult, PointResult]]) -> float:
    """Return the share of pairs in which both are stable or both are not."""
    return fmean(one.stable("parl") == other.stable("parl") for one, other in pairs)
