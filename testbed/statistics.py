"""Means with 95 % confidence intervals over seeds, alone and paired."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

# Student's t, 97.5 % point, for 1 to 30 degrees of freedom.
_T975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


class Estimate(NamedTuple):
    """A mean and the half-width of its 95 % confidence interval (None for a single value)."""

    mean: float
    half_width: float | None

    def __str__(self) -> str:
        """Spell it as mean ± half-width."""
        spread = "" if self.half_width is None else f" ± {number(self.half_width)}"
        return f"{number(self.mean)}{spread}"


def number(value: float) -> str:
    """Spell a number with about three significant digits, and no exponent."""
    if abs(value) >= 100:  # noqa: PLR2004
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) >= 0.01 else f"{value:.4f}"  # noqa: PLR2004


def estimate(values: Sequence[float]) -> Estimate:
    """Estimate the mean of independent values by Student's t."""
    if len(values) == 1:
        return Estimate(values[0], None)
    return Estimate(fmean(values), t975(len(values) - 1) * stdev(values) / sqrt(len(values)))


def paired_ratio(values: Sequence[float], references: Sequence[float]) -> Estimate:
    """Estimate the ratio of two means over common random numbers (by the delta method)."""
    ratio = fmean(values) / fmean(references)
    if len(values) == 1:
        return Estimate(ratio, None)
    residuals = [v - ratio * r for v, r in zip(values, references, strict=True)]
    spread = t975(len(values) - 1) * stdev(residuals) / sqrt(len(values))
    return Estimate(ratio, spread / fmean(references))


def t975(freedom: int) -> float:
    """Return the 97.5 % point of Student's t."""
    if freedom <= len(_T975):
        return _T975[freedom - 1]
    z = NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * freedom)  # the first term of its expansion around the normal
