"""Learned mean service times per (node, category), and the variance of service around them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from math import log, log1p
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fogveil.agent.inference.spread import GREATEST, Spread, known_between

Table = list[list[float]]
"""Looked up as table[node][category]."""
Floats = npt.NDArray[np.float64]

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
MOST_CAUSES = 6
"""Common causes that are told apart, in multiples of the categories."""


class Estimates:
    """Service times to decide by."""

    def __init__(self, logs: Floats, variances: Floats) -> None:
        self._logs, self._variances = logs, variances
        self._rows: dict[int, list[float]] = {}

    @cached_property
    def mean(self) -> Floats:
        """Looked up as mean[node, category]."""
        mean: Floats = np.exp(self._logs)
        return mean

    @cached_property
    def optimistic(self) -> Floats:
        """One standard deviation below the mean, so that uncertain nodes are tried."""
        optimistic: Floats = self.mean * np.exp(-_deviations(self._variances))
        return optimistic

    def row(self, node: int) -> list[float]:
        """Return the means of one node."""
        row = self._rows.get(node)
        if row is None:
            row = self._rows[node] = np.exp(self._logs[node]).tolist()
        return row


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

    Two nodes have nothing in common but causes that concern all of them: the work of the
    categories. So the covariance is kept as that of the causes, how each cell depends on them, and
    what is left for each node by itself. A job changes the first and its own node's part alone.
    """

    def __init__(self, nodes: int, categories: int, guess: float) -> None:
        self._shape = nodes, categories
        one_each = np.eye(categories)
        self._causes: Floats = SCALE + WORKS * one_each
        """Their covariance, [cause, cause]."""
        self._shares: Floats = np.tile(one_each, (nodes, 1, 1))
        """How much of each cause a cell has, [node, category, cause]."""
        self._apart: Floats = np.tile(SPEEDS + MISFITS * one_each, (nodes, 1, 1))
        """The covariance of a node's cells given the causes, [node, category, category]."""
        self._variances: Floats = np.full(self._shape, SCALE + WORKS + SPEEDS + MISFITS)
        """The diagonal of the whole covariance. It is never changed in place: estimates use it."""
        self._logs: Floats = np.full(self._shape, log(guess))
        self._limits: tuple[Floats, Floats] | None = None
        self._jobs = PRIOR_JOBS
        self.factor_variance = FACTOR_VARIANCE
        """Learned squared coefficient of variation of a job's service time."""
        self._estimates: Estimates | None = None

    @property
    def estimates(self) -> Estimates:
        """What is expected now."""
        if self._estimates is None:
            self._estimates = Estimates(self._logs, self._variances)
        return self._estimates

    @property
    def deviations(self) -> Floats:
        """Standard deviation of the belief per cell, relative to the mean."""
        return _deviations(self._variances)

    def row(self, node: int) -> list[float]:
        """Return the expected service times of one node."""
        estimates = self._estimates or self.estimates
        return estimates.row(node)

    def learn(self, node: int, category: int, service: Spread) -> None:
        """Update the belief by what was inferred of one job's service time."""
        expected = self.row(node)[category]
        mean, left_open = service
        surprise = mean / expected - 1
        left_open /= expected * expected
        variance = self.factor_variance
        informed = max(1 - left_open / variance, 0.0)
        own = self.unsettled(node, category)
        common = self._causes @ self._shares[node, category]
        row = self._explained_by(common)
        apart = self._apart[node, category].copy()
        row[node] += apart
        logs = self._logs + row * _gain(surprise, own, informed, variance)
        if informed:
            self._observe(node, category, common, row, apart, variance / informed)
        else:
            self._variances = self._variances.copy()
        drift = DRIFT * variance
        self._apart[node, category, category] += drift
        self._variances[node, category] += drift
        self._set_logs(logs)
        # A surprise comes from the job and from our own error; only the job's part is its factor.
        deviation = left_open + surprise * surprise * variance / (variance + own)
        self._jobs += informed
        variance += (deviation - variance) / self._jobs
        self.factor_variance = min(max(variance, LEAST), GREATEST)

    def _observe(
        self, node: int, category: int, common: Floats, row: Floats, apart: Floats, noise: float
    ) -> None:
        """Condition the covariance on an observation of one cell, whose row it is given."""
        whole = float(row[node, category]) + noise
        row *= row
        row *= -1 / whole
        self._variances = row + self._variances
        self._causes -= common[:, None] * (common * (1 / whole))
        left = apart * (1 / (float(apart[category]) + noise))
        self._shares[node] -= left[:, None] * self._shares[node, category]
        self._apart[node] -= left[:, None] * apart

    def relearn(self, node: int, longer: float = 1.0) -> None:
        """Doubt the speed of one node, which has changed; service takes so much longer now."""
        logs = self._logs.copy()
        logs[node] += log(longer)
        self._apart[node] += SPEEDS
        self._variances = self._variances.copy()
        self._variances[node] += SPEEDS
        self._set_logs(logs)

    def relearn_works(self) -> None:
        """Doubt the work of all categories, which may have changed at all nodes."""
        nodes, categories = self._shape
        causes = len(self._causes)
        if causes >= MOST_CAUSES * categories:
            self._merge_causes()
            causes = len(self._causes)
        more = np.zeros((causes + categories,) * 2)
        more[:causes, :causes] = self._causes
        more[causes:, causes:] = WORKS * np.eye(categories)
        self._causes = more
        new = np.tile(np.eye(categories), (nodes, 1, 1))
        self._shares = np.concatenate((self._shares, new), axis=2)
        self._variances = self._variances + WORKS
        self._estimates = None

    def _merge_causes(self) -> None:
        """Keep half of the causes, those that explain most; what others explain is each node's."""
        nodes, categories = self._shape
        roots = np.linalg.cholesky(self._causes + LEAST**3 * np.eye(len(self._causes)))
        weights = (self._shares @ roots).reshape(nodes * categories, -1)
        vectors, values, _ = np.linalg.svd(weights, full_matrices=False)
        kept = MOST_CAUSES * categories // 2
        scaled = (vectors * values).reshape(nodes, categories, -1)
        rest = scaled[:, :, kept:]
        self._apart += rest @ rest.transpose(0, 2, 1)
        self._shares = np.ascontiguousarray(scaled[:, :, :kept])
        self._causes = np.eye(self._shares.shape[2])

    def unsettled(self, node: int, category: int) -> float:
        """Return the variance of one logarithm of a mean."""
        return float(self._variances[node, category])

    def confine(self, low: Floats, high: Floats) -> None:
        """Keep the means within bounds from now on."""
        with np.errstate(divide="ignore"):
            self._limits = np.log(low), np.log(high)
        self._set_logs(self._logs)

    def release(self) -> None:
        """Lift the bounds."""
        self._limits = None

    def estimates_given(self, overdue: Iterable[Overdue]) -> Estimates:
        """Return estimates that account for jobs in service for longer than expected.

        The belief itself stays: once the job leaves, `learn` gets its whole service time.
        """
        variance = self.factor_variance
        common, apart = np.zeros(len(self._causes)), []
        for node, category, served in overdue:
            own = self.unsettled(node, category)
            late = served / self.row(node)[category]
            if own * late < NOTICEABLE * variance:
                continue
            mean, left_open = known_between(variance, late)
            informed = max(1 - left_open / variance, 0.0)
            gain = _gain(mean - 1, own, informed, variance)
            common += gain * self._shares[node, category]
            apart.append((node, gain * self._apart[node, category]))
        if not apart:
            return self.estimates
        logs = self._logs + self._explained_by(self._causes @ common)
        for node, change in apart:
            logs[node] += change
        return Estimates(logs, self._variances)

    def _explained_by(self, common: Floats) -> Floats:
        """Return what follows for all cells from the causes."""
        cells: Floats = self._shares.reshape(-1, len(common)) @ common
        return cells.reshape(self._shape)

    def _set_logs(self, logs: Floats) -> None:
        if self._limits is not None:
            logs = np.minimum(np.maximum(logs, self._limits[0]), self._limits[1])
        self._logs, self._estimates = logs, None


def _deviations(variances: Floats) -> Floats:
    deviations: Floats = np.sqrt(np.maximum(variances, 0.0))
    return deviations


def _gain(surprise: float, own: float, informed: float, variance: float) -> float:
    """Return the Kalman gain times the surprise, scaled so that means move like averages."""
    gain = surprise / (informed * own + variance)
    moved = gain * own
    return gain * log1p(max(moved, -0.9)) / moved if moved else gain
