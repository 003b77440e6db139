"""SimPy's calendar with absolute times and reusable events: the only use of SimPy's internals.

SimPy's public `schedule` takes a delay. In floating point some times cannot be reached by any
delay, and then events of one instant would lose their order:

>>> from math import inf, nextafter
>>> now, time = 0.03, 0.3
>>> delay = time - now
>>> [now + d == time for d in (nextafter(delay, 0.0), delay, nextafter(delay, inf))]
[False, False, False]

The public `schedule` with a delay type that adds up to the exact time gives the same runs for 5 %
more CPU, and new events in place of reused ones cost another 6 % (jsq on the scenario `stress`
without records; 50 rounds, the variants in turn).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import Any

import simpy


class Calendar(simpy.Environment):
    """The events of a run in order of time, priority and scheduling."""

    def schedule_at(self, time: float, priority: int, event: simpy.Event) -> None:
        """Schedule an event; of those at one instant lower priorities occur first."""
        heappush(self._queue, (time, priority, next(self._eid), event))  # type: ignore[misc]


class RecurringEvent(simpy.Event):
    """An event that may be scheduled again whenever it has occurred."""

    def __init__(self, calendar: Calendar, callback: Callable[[Any], None]) -> None:
        super().__init__(calendar)
        self._ok, self._value = True, None  # what `succeed` sets, which schedules at once
        self._calendar, self._recurring = calendar, [callback]

    def schedule(self, time: float, priority: int) -> None:
        """Let it occur at an absolute time."""
        self.callbacks = self._recurring  # SimPy removes them when an event occurs
        self._calendar.schedule_at(time, priority, self)
