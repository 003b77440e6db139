"""Uncertain times: their mean and variance, given what has been observed so far.

A service time is modelled as gamma-distributed. That is one family from the constant (variance 0)
to the exponential (variance 1 at mean 1), so the residual time of a job in service ranges from
"the rest of the mean" to "the mean again" with only the variance to be learned.
"""

from __future__ import annotations

from math import erfc, exp, inf, pi, sqrt

Spread = tuple[float, float]
"""Mean and variance of a time."""

GREATEST = 2.0
"""The greatest variance at mean 1 for which the approximations below hold."""
NEGLIGIBLE = 1e-10
"""A probability so small that quotients with it would be rounding errors."""
CERTAIN = 12.0
"""The squared distance of two times, in variances, beyond which their order is certain."""
_ROOT_HALF = sqrt(0.5)
_DENSITY_AT_ZERO = 1 / sqrt(2 * pi)


def known_between(variance: float, low: float, high: float = inf) -> Spread:
    """Return the spread of a service time of mean 1, now known to be in (low, high].

    >>> round(known_between(1.0, 3.0)[0])  # exponential: memoryless
    4
    >>> round(known_between(0.001, 0.7)[0], 2)  # nearly constant: 0.3 is left
    1.0
    """
    low = max(low, 0.0)
    variance = min(variance, GREATEST)
    shape = 1 / variance
    share, first, second = 1.0, 1.0, 1.0
    if low > 0:
        share, first, second = _moments_above(low, shape)
    if high < inf:
        beyond = _moments_above(high, shape)
        share, first, second = share - beyond[0], first - beyond[1], second - beyond[2]
    if share < NEGLIGIBLE:
        return _at_nearer_end(variance, low, high)
    mean = min(max(first / share, low), high)
    at_most = variance if high == inf else min(variance, (high - low) ** 2 / 10)
    return mean, min(max((1 + variance) * second / share - mean * mean, 0.0), at_most)


def share_between(variance: float, low: float, high: float = inf) -> float:
    """Return the probability that a service time of mean 1 is in (low, high].

    >>> round(share_between(1.0, 1.0), 2)  # exponential: 1 / e
    0.37
    """
    shape = 1 / variance
    above = _gamma_above(low * shape, shape) if low > 0 else 1.0
    return above - _gamma_above(high * shape, shape) if high < inf else above


def later_of(time: float, other: Spread) -> Spread:
    """Return the later of a fixed time and an uncertain one (Clark's formula).

    >>> later_of(5.0, (9.0, 0.0))
    (9.0, 0.0)
    >>> later_of(5.0, (5.0, 1.0))[0] > 5.3
    True
    """
    mean, variance = other
    ahead = mean - time
    if ahead * ahead >= CERTAIN * variance:
        return other if ahead > 0 else (time, 0.0)
    deviation = sqrt(variance)
    probability = 0.5 * erfc(-ahead / deviation * _ROOT_HALF)
    density = deviation * _DENSITY_AT_ZERO * exp(-0.5 * ahead * ahead / variance)
    mean = ahead * probability + density
    square = (ahead * ahead + variance) * probability + ahead * density
    return time + mean, max(square - mean * mean, 0.0)


def _moments_above(x: float, shape: float) -> tuple[float, float, float]:
    """Return the share of a gamma distribution above x, and those of its first two moments."""
    x *= shape
    return _gamma_above(x, shape), _gamma_above(x, shape + 1), _gamma_above(x, shape + 2)


def _gamma_above(x: float, shape: float) -> float:
    """Return the share above x by Wilson and Hilferty: a gamma's cube root is nearly normal."""
    return 0.5 * erfc(_ROOT_HALF * 3 * sqrt(shape) * ((x / shape) ** (1 / 3) - 1 + 1 / (9 * shape)))


def _at_nearer_end(variance: float, low: float, high: float) -> Spread:
    """Return the end nearer to the mean, moved inward as a gamma's tail falls off."""
    depth = min(variance, 0.5 * (high - low))
    return (low + depth if low > 1 else high - depth), depth * depth
