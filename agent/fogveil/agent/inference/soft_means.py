"""Learned mean service times per (node, category), and the variance of service around them."""

from __future__ import annotations

from collections.abc import Iterable
from math import log, log1p
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fogveil.agent.inference.spread import GREATEST, Spread, known_between

Table = list[list[float]]
"""Looked up as table[node][category]."""

# Prior variances of the logarithm of a mean service time.
SCALE = 4.0
"""Of what all cells have in common: the scale is almost unknown."""
SPEEDS = 0.5
"""Of a node's speed."""
WORKS = 1.0
"""Of a category's work."""
MISFITS = 0.01
"""Of a single cell's deviation from work / speed: about 10 %."""

FACTOR_VARIANCE = 0.5
"""The squared coefficient of variation of service that is assumed before any observation."""
PRIOR_JOBS = 10.0
"""The weight of that assumption, in jobs."""
LEAST = 1e-4
"""The least factor variance that is learned: at zero, learning would stop."""
DRIFT = 1e-6
"""Uncertainty that a cell regains per job, by factor variance: so it never stops learning."""
NOTICEABLE = 0.02
"""Relative changes of a mean below this are not computed."""


class Estimates(NamedTuple):
    """Service times to decide by."""

    mean: Table
    optimistic: Table
    """One standard deviation below the mean, so that uncertain nodes are tried."""


class Overdue(NamedTuple):
    """A job known to be still in service."""

    node: int
    category: int
    served: float
    """How long it has been in service."""


class SoftMeans:
    """A Gaussian belief about log mean service times; a priori they are about work / speed.

    Jobs update it through conditional expectations, as in the EM algorithm: what a job's bracket
    leaves open is filled in by the belief itself, and carries no information. Each job informs
    all cells that share its node or its category; cells that do not fit the product form depart
    from it as the evidence grows.
    """

    def __init__(self, nodes: int, categories: int, guess: float) -> None:
        self._shape = nodes, categories
        same_node = np.kron(np.eye(nodes), np.ones((categories, categories)))
        same_category = np.kron(np.ones((nodes, nodes)), np.eye(categories))
        self._covariance: npt.NDArray[np.float64] = (
            SCALE + SPEEDS * same_node + WORKS * same_category + MISFITS * np.eye(len(same_node))
        )
        self._logs = np.full(nodes * categories, log(guess))
        self._limits: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None = None
        self._jobs = PRIOR_JOBS
        self.factor_variance = FACTOR_VARIANCE
        """Learned squared coefficient of variation of a job's service time."""
        self.estimates = self._estimates(self._logs)

    @property
    def deviations(self) -> Table:
        """Standard deviation of the belief per cell, relative to the mean."""
        table: Table = self._deviations().reshape(self._shape).tolist()
        return table

    def learn(self, node: int, category: int, service: Spread) -> None:
        """Update the belief by what was inferred of one job's service time."""
        cell = node * self._shape[1] + category
        expected = self.estimates.mean[node][category]
        mean, left_open = service
        surprise = mean / expected - 1
        left_open /= expected * expected
        variance = self.factor_variance
        informed = max(1 - left_open / variance, 0.0)
        row = self._covariance[cell].copy()
        own = float(row[cell])
        self._logs += row * _gain(surprise, own, informed, variance)
        self._keep_within_limits()
        row *= (informed / (informed * own + variance)) ** 0.5
        self._covariance -= row[:, None] * row
        self._covariance[cell, cell] += DRIFT * variance
        # A surprise comes from the job and from our own error; only the job's part is its factor.
        deviation = left_open + surprise * surprise * variance / (variance + own)
        self._jobs += informed
        variance += (deviation - variance) / self._jobs
        self.factor_variance = min(max(variance, LEAST), GREATEST)
        self.estimates = self._estimates(self._logs)

    def relearn(self, node: int, longer: float = 1.0) -> None:
        """Doubt the speed of one node, which has changed; service takes so much longer now."""
        categories = self._shape[1]
        cells = slice(node * categories, (node + 1) * categories)
        self._logs[cells] += log(longer)
        self._covariance[cells, cells] += SPEEDS
        self._keep_within_limits()
        self.estimates = self._estimates(self._logs)

    def relearn_works(self) -> None:
        """Doubt the work of all categories, which may have changed at all nodes."""
        nodes, categories = self._shape
        self._covariance += WORKS * np.kron(np.ones((nodes, nodes)), np.eye(categories))
        self.estimates = self._estimates(self._logs)

    def unsettled(self, node: int, category: int) -> float:
        """Return the variance of one logarithm of a mean."""
        cell = node * self._shape[1] + category
        return float(self._covariance[cell, cell])

    def confine(self, low: Table, high: Table) -> None:
        """Keep the means within bounds from now on."""
        with np.errstate(divide="ignore"):
            self._limits = np.log(np.ravel(low)), np.log(np.ravel(high))
        self._keep_within_limits()
        self.estimates = self._estimates(self._logs)

    def release(self) -> None:
        """Lift the bounds."""
        self._limits = None

    def estimates_given(self, overdue: Iterable[Overdue]) -> Estimates:
        """Return estimates that account for jobs in service for longer than expected.

        The belief itself stays: once the job leaves, `learn` gets its whole service time.
        """
        logs = self._logs
        variance = self.factor_variance
        for node, category, served in overdue:
            cell = node * self._shape[1] + category
            own = float(self._covariance[cell, cell])
            late = served / self.estimates.mean[node][category]
            if own * late < NOTICEABLE * variance:
                continue
            mean, left_open = known_between(variance, late)
            informed = max(1 - left_open / variance, 0.0)
            gain = _gain(mean - 1, own, informed, variance)
            logs = logs + gain * self._covariance[cell]
        return self.estimates if logs is self._logs else self._estimates(logs)

    def _keep_within_limits(self) -> None:
        if self._limits is not None:
            np.clip(self._logs, *self._limits, out=self._logs)

    def _estimates(self, logs: npt.NDArray[np.float64]) -> Estimates:
        mean = np.exp(logs)
        optimistic = mean * np.exp(-self._deviations())
        return Estimates(
            mean.reshape(self._shape).tolist(), optimistic.reshape(self._shape).tolist()
        )

    def _deviations(self) -> npt.NDArray[np.float64]:
        deviations: npt.NDArray[np.float64] = np.sqrt(np.maximum(self._covariance.diagonal(), 0.0))
        return deviations


def _gain(surprise: float, own: float, informed: float, variance: float) -> float:
    """Return the Kalman gain times the surprise, scaled so that means move like averages."""
    gain = surprise / (informed * own + variance)
    moved = gain * own
    return gain * log1p(max(moved, -0.9)) / moved if moved else gain
