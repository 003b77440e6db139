"""How fast sources emit over simulated time: steps, ramps and curves of β, shares of categories.

The mean gap between two workloads of a source is a function of time, made of straight lines. A
source waits until a number of mean gaps has passed. So its emissions are a Poisson process of that
rate where the numbers are exponential, and they depend on nothing but time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1, inf, log1p
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class PaceChange:
    """What changes for the sources at an instant; what is None or empty stays as it is."""

    at: float
    scale: float | None = None
    """β from then on, or where the ramp ends."""
    until: float | None = None
    """When the ramp ends; without it the change is a step."""
    scales: tuple[float, ...] = ()
    """A curve: these values, evenly spaced over `period` and repeated, straight lines between."""
    period: float = inf
    shares: tuple[float, ...] = ()
    """How much of the workloads each category has."""


class Line(NamedTuple):
    """The mean gap from an instant on."""

    gap: float
    slope: float
    end: float
    """Where the line ends."""


class Pace:
    """Tells when so many mean gaps of one category will have passed.

    >>> pace = Pace(10.0, categories=1, category=0, changes=[PaceChange(25.0, scale=5.0)])
    >>> pace.after(20.0, gaps=1.0)  # half a gap until 25, half of a shorter one after it
    27.5
    """

    def __init__(
        self, scale: float, categories: int, category: int, changes: Sequence[PaceChange]
    ) -> None:
        self._forms = [PaceChange(0.0, scale)]
        self._forms += [change for change in changes if change.scale or change.scales]
        self._begins = [form.at for form in self._forms]
        self._reached = [scale]
        """The value of β at the beginning of each form."""
        for form in self._forms[1:]:
            self._reached.append(self._scale(len(self._reached) - 1, form.at).gap)
        mixes = [change for change in changes if change.shares]
        self._mixed_at = [mix.at for mix in mixes]
        self._weights = [1.0, *(_weight(mix.shares[category] * categories) for mix in mixes)]

    def after(self, time: float, gaps: float) -> float:
        """Return the instant at which so many mean gaps have passed since `time`; inf for never."""
        while time < inf:
            gap, slope, end = self._line(time)
            left = end - time
            if slope:
                capacity = log1p(slope * left / gap) / slope
            else:
                capacity = left / gap if gap < inf else 0.0
            if gaps <= capacity:
                return time + (gap * expm1(slope * gaps) / slope if slope else gap * gaps)
            gaps, time = gaps - capacity, end
        return inf

    def _line(self, time: float) -> Line:
        """Return the mean gap of the category from an instant on."""
        gap, slope, end = self._scale(bisect_right(self._begins, time) - 1, time)
        mix = bisect_right(self._mixed_at, time)
        weight = self._weights[mix]
        for later in (self._begins, self._mixed_at):
            place = bisect_right(later, time)
            end = min(end, later[place]) if place < len(later) else end
        return Line(gap * weight, slope * weight if slope else 0.0, end)

    def _scale(self, number: int, time: float) -> Line:
        """Return β by one form."""
        form, reached = self._forms[number], self._reached[number]
        if form.scales:
            step = form.period / len(form.scales)
            piece = int((time - form.at) / step)
            if form.at + (piece + 1) * step <= time:  # by rounding
                piece += 1
            first, last = (form.scales[(piece + k) % len(form.scales)] for k in (0, 1))
            slope = (last - first) / step
            since = time - (form.at + piece * step)
            return Line(first + slope * since, slope, form.at + (piece + 1) * step)
        assert form.scale is not None
        if form.until is not None and time < form.until:
            slope = (form.scale - reached) / (form.until - form.at)
            return Line(reached + slope * (time - form.at), slope, form.until)
        return Line(form.scale, 0.0, inf)


def _weight(share: float) -> float:
    return 1 / share if share else inf
