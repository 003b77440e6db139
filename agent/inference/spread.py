"""Times that are not known for sure: their mean and variance, given what has been seen so far.

A service time is taken to be gamma-distributed. That is one family from the constant (variance
0) to the exponential (variance 1 at mean 1), so the residual time of a job in service runs from
"what is left of the mean" to "the mean again" with nothing but the variance to be learned.
"""

from __future__ import annotations

from math import erfc, exp, inf, pi, sqrt

Spread = tuple[float, float]
"""Mean and variance of a time."""

GREATEST = 2.0
"""The greatest variance at mean 1 for which the approximations below hold."""
NEGLIGIBLE = 1e-10
"""A chance so small that its quotients would be rounding errors."""
CERTAIN = 12.0
"""So many squared deviations apart, it is clear which of two times is the later one."""
_ROOT_HALF = sqrt(0.5)
_DENSITY_AT_ZERO = 1 / sqrt(2 * pi)


def known_between(variance: float, low: float, high: float = inf) -> Spread:
    """Return the spread of a service time of mean 1, now known to be in (low, high].

    >>> round(known_between(1.0, 3.0)[0])  # exponential: what was served does not count
    4
    >>> round(known_between(0.001, 0.7)[0], 2)  # nearly constant: 0.3 are left
    1.0
    """
    low = max(low, 0.0)
    variance = min(variance, GREATEST)
    shape = 1 / variance
    chance, first, second = 1.0, 1.0, 1.0
    if low > 0:
        chance, first, second = _moments_above(low, shape)
    if high < inf:
        beyond = _moments_above(high, shape)
        chance, first, second = chance - beyond[0], first - beyond[1], second - beyond[2]
    if chance < NEGLIGIBLE:
        return _against_all_odds(variance, low, high)
    mean = min(max(first / chance, low), high)
    at_most = variance if high == inf else min(variance, (high - low) ** 2 / 10)
    return mean, min(max((1 + variance) * second / chance - mean * mean, 0.0), at_most)


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
    chance = 0.5 * erfc(-ahead / deviation * _ROOT_HALF)
    density = deviation * _DENSITY_AT_ZERO * exp(-0.5 * ahead * ahead / variance)
    mean = ahead * chance + density
    square = (ahead * ahead + variance) * chance + ahead * density
    return time + mean, max(square - mean * mean, 0.0)


def _moments_above(x: float, shape: float) -> tuple[float, float, float]:
    """Return the share of a gamma distribution above x, and that of its first two moments."""
    x *= shape
    return _gamma_above(x, shape), _gamma_above(x, shape + 1), _gamma_above(x, shape + 2)


def _gamma_above(x: float, shape: float) -> float:
    """Wilson and Hilferty: the cube root of a gamma variable is nearly normal."""
    return 0.5 * erfc(_ROOT_HALF * 3 * sqrt(shape) * ((x / shape) ** (1 / 3) - 1 + 1 / (9 * shape)))


def _against_all_odds(variance: float, low: float, high: float) -> Spread:
    """The end nearer to the mean, and a little further as a gamma's tail falls off."""
    depth = min(variance, 0.5 * (high - low))
    return (low + depth if low > 1 else high - depth), depth * depth
