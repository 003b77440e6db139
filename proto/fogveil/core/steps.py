"""Values that change in steps over simulated time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Steps(Generic[T]):
    """A value that changes in steps; at the instant of a step the new value holds.

    >>> speed = Steps(200.0, [(5.0, 400.0)])
    >>> speed.at(4.9), speed.at(5.0)
    (200.0, 400.0)
    """

    def __init__(self, first: T, steps: Sequence[tuple[float, T]]) -> None:
        self._times = [time for time, _ in steps]
        self._values = [first, *(value for _, value in steps)]
        self.constant = None if steps else first
        """The value, where it never changes."""

    def at(self, time: float) -> T:
        """Return the value at an instant."""
        return self._values[bisect_right(self._times, time)]
