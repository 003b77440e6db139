"""Jobs that crashes have lost: their clusters emit them again, as decisions of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import simpy

from fogveil.provider_node.node import Lost
from fogveil.sources.core import Emission
from fogveil.testbed.engine.calendar import Calendar, RecurringEvent


class Retries:
    """Emits lost jobs again when their clusters have noticed the loss."""

    def __init__(
        self, calendar: Calendar, emit: Callable[[Emission], None], first_priority: int
    ) -> None:
        self._calendar, self._emit, self._first = calendar, emit, first_priority
        self._kinds: dict[int, tuple[int, int]] = {}
        self._lost: Counter[int] = Counter()

    def emitted(self, emission: Emission) -> None:
        """Remember the cluster and category of a job."""
        self._kinds[emission[1]] = emission[2:]

    def lost(self, jobs: Iterable[Lost]) -> None:
        """Emit these jobs again, each at its time; those of one instant in order of job id."""
        for job, _, _, again in jobs:
            self._lost[job] += 1
            _Retry(self._calendar, (again, job, *self._kinds[job]), self._emit, self._first)

    def attempt(self, job: int) -> int:
        """Return how many times a job was emitted."""
        return 1 + self._lost[job] if self._lost else 1


class _Retry(RecurringEvent):
    """One emission."""

    def __init__(
        self,
        calendar: Calendar,
        emission: Emission,
        emit: Callable[[Emission], None],
        first_priority: int,
    ) -> None:
        super().__init__(calendar, self._occur)
        self._emission, self._emit = emission, emit
        self.schedule(emission[0], first_priority + emission[1])

    def _occur(self, _event: simpy.Event) -> None:
        self._emit(self._emission)
