"""Means with 95 % confidence intervals over seeds, alone and paired."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, floor, log, log10, sqrt
from statistics import fmean, stdev
from typing import NamedTuple


class Estimate(NamedTuple):
    """A mean and the half-width of its 95 % confidence interval (None for a single value)."""

    mean: float
    half_width: float | None

    def __str__(self) -> str:
        """Format as mean ± half-width; no spread at all is no interval."""
        interval = f" ± {format_number(self.half_width)}" if self.half_width else ""
        return f"{format_number(self.mean)}{interval}"

    def compact(self) -> str:
        """Format with no more digits than the interval justifies, for narrow tables.

        >>> Estimate(62.512, 0.599).compact(), Estimate(2160.4, 105.2).compact()
        ('62.51 ±0.60', '2160 ±105')
        >>> Estimate(1.0, 0.0).compact(), Estimate(1234.5, 0.001).compact()
        ('1', '1234 ±1')
        """
        if not self.half_width:
            return format_number(self.mean)
        wanted = 1 - floor(log10(self.half_width))
        useful = 3 - floor(log10(abs(self.mean))) if self.mean else 4
        digits = max(0, min(wanted, useful, 4))
        width = max(self.half_width, 10.0**-digits)  # never less than it is
        return f"{self.mean:.{digits}f} ±{width:.{digits}f}"


class Score(NamedTuple):
    """A geometric mean and the ends of its 95 % confidence interval (None for a single seed)."""

    mean: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        """Format as mean (low–high)."""
        digits = 3 if self.mean < 10 else 1  # noqa: PLR2004
        if self.low is None or self.high is None:
            return f"{self.mean:.{digits}f}"
        return f"{self.mean:.{digits}f} ({self.low:.{digits}f}–{self.high:.{digits}f})"


def format_number(value: float) -> str:
    """Format a number with about three significant digits, and no exponent."""
    if not value:
        return "0"
    if abs(value) >= 100:  # noqa: PLR2004
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) >= 0.01 else f"{value:.4f}"  # noqa: PLR2004


def estimate(values: Sequence[float]) -> Estimate:
    """Estimate the mean of independent values by Student's t."""
    if len(values) == 1:
        return Estimate(values[0], None)
    return Estimate(fmean(values), _half_width(values))


def paired_ratio(values: Sequence[float], references: Sequence[float]) -> Estimate:
    """Estimate the ratio of two means over common random numbers (by the delta method)."""
    ratio = fmean(values) / fmean(references)
    if len(values) == 1:
        return Estimate(ratio, None)
    residuals = [v - ratio * r for v, r in zip(values, references, strict=True)]
    return Estimate(ratio, _half_width(residuals) / fmean(references))


def geometric_mean_ratio(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Score:
    """Estimate the geometric mean, over scenarios, of the ratios that `paired_ratio` estimates.

    A pair is a scenario: values and references by seed, all pairs in the same order of seeds. The
    interval is over seeds, by the delta method; the scenarios are taken as given.
    """
    ratios = [fmean(values) / fmean(references) for values, references in pairs]
    centre = fmean(log(ratio) for ratio in ratios)
    if len(pairs[0][0]) == 1:
        return Score(exp(centre), None, None)
    # What each seed adds to the logarithm, on average over the scenarios: runs of one seed share
    # random numbers, so that scenarios are not independent, but seeds are.
    shifts = [
        [(v - ratio * r) / fmean(values) for v, r in zip(values, references, strict=True)]
        for ratio, (values, references) in zip(ratios, pairs, strict=True)
    ]
    width = _half_width([fmean(shift) for shift in zip(*shifts, strict=True)])
    return Score(exp(centre), exp(centre - width), exp(centre + width))


def _half_width(values: Sequence[float]) -> float:
    from scipy.special import stdtrit  # takes 0.2 s to load, scipy.stats a second

    return float(stdtrit(len(values) - 1, 0.975)) * stdev(values) / sqrt(len(values))
