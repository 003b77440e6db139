"""Strict bounds of when each own job starts and finishes at a node, from the counts."""

from __future__ import annotations

from bisect import insort
from math import inf
from typing import NamedTuple

from fogveil.agent.inference.instants import Instants
from fogveil.agent.inference.own_job import OwnJob
from fogveil.agent.inference.service_bounds import ROUNDING, Contradiction
from fogveil.core.disclosure import CountKind

KEPT = 6
"""Departed jobs that are revisited when better bounds of service are known."""


class Bounds(NamedTuple):
    """Bounds of one node's service times that its jobs imply, per category."""

    low: list[float]
    high: list[float]


class BoundedJob(OwnJob):
    """An own job with bounds of its start and its finish."""

    __slots__ = ("finish_high", "finish_low", "start_high", "start_low")

    def __init__(self, arrival: float, job: int, category: int) -> None:
        super().__init__(arrival, job, category)
        self.reset()

    def reset(self) -> None:
        """Reset to what is known without any model."""
        self.start_low = self.finish_low = self.arrival
        self.start_high = self.finish_high = inf

    def check(self) -> None:
        """Raise if an interval is empty by more than rounding."""
        if self.start_low > self.start_high + ROUNDING * (1 + abs(self.start_high)):
            raise Contradiction
        if self.finish_low > self.finish_high + ROUNDING * (1 + abs(self.finish_high)):
            raise Contradiction


class NodeBounds:
    """Brackets the starts (waiting) or finishes (in-system) of own jobs between two counts.

    Then start = max(arrival, finish of the one before) and finish = start + service propagate the
    brackets forward and backward along the queue. It need not observe a count that is as before
    while no job arrives.
    """

    def __init__(self, kind: CountKind, instants: Instants) -> None:
        self._instants = instants
        self._waiting = kind is CountKind.WAITING
        self.jobs: list[BoundedJob] = []
        """In order of arrival, those in transit last."""
        self._arrived = 0
        self._departed = 0
        """Jobs that have left the count: finished, or started for a waiting count."""
        self._free_low = self._free_high = -inf
        """Bounds of the finish of the job before the first."""
        self._told: float | None = None
        """When a node that tells no count told the last one."""

    def place(self, arrival: float, job: int, category: int) -> None:
        """Add a job placed on this node."""
        insort(self.jobs, BoundedJob(arrival, job, category))

    @property
    def loaded(self) -> bool:
        """Whether jobs that have arrived are still in the count."""
        return self._departed < self._arrived

    def observe(self, count: int, known_low: list[float]) -> bool:
        """Update the brackets by a count; return whether `propagate` may tighten any bound."""
        now, before = self._instants.now, self._instants.before
        if self._told is not None:
            self._resume(now, before, count)
        jobs = self.jobs
        arrived = self._arrived
        while arrived < len(jobs) and jobs[arrived].arrival <= now:
            arrived += 1
        departed = arrived - count
        if not self._departed <= departed <= arrived:
            raise Contradiction
        informative = departed > self._departed
        for job in jobs[self._departed : departed]:
            if self._waiting:
                job.start_low = max(job.start_low, before)
                job.start_high = min(job.start_high, now)
            else:
                job.finish_low = max(job.finish_low, before)
                job.finish_high = min(job.finish_high, now)
        self._arrived, self._departed = arrived, departed
        if departed < arrived:
            informative |= self.outlasts(known_low)
        if departed > KEPT + KEPT // 2:
            self._drop(departed - KEPT)
        return informative

    def outlasts(self, known_low: list[float]) -> bool:
        """Bound the job in service from below, now that it is there; return whether that informs.

        It does where the job outlasts its known bounds.
        """
        now = self._instants.now
        if self._waiting:
            self.jobs[self._departed].start_low = now
            if not self._departed:
                return False
            job = self.jobs[self._departed - 1]
        else:
            job = self.jobs[self._departed]
            free = self.jobs[self._departed - 1].finish_high if self._departed else self._free_high
            job.start_high = min(job.start_high, max(job.arrival, free))
        job.finish_low = max(job.finish_low, now)
        return now - job.start_high > known_low[job.category]

    def forget(self, number: int) -> None:
        """Remove a job that was lost; what it implied for others ends with the absence."""
        place = next((p for p, job in enumerate(self.jobs) if job.job == number), None)
        if place is not None:
            del self.jobs[place]
            self._arrived -= place < self._arrived
            self._departed -= place < self._departed

    def miss(self) -> None:
        """Note that the node tells no count at this instant."""
        if self._told is None:
            self._told = self._instants.before

    def propagate(self, low: list[float], high: list[float]) -> Bounds:
        """Tighten the jobs' bounds by those of service; return the bounds of service they imply."""
        known = self.jobs[: min(self._departed + 1, self._arrived)]
        self._sweep_forward(known, low, high)
        return self._sweep_backward(known, low, high)

    def restart(self) -> None:
        """Keep the jobs that may still be there and what the last count implies; drop the rest."""
        last_told = self._instants.now if self._told is None else self._told
        finished = self._departed - 1 if self._waiting else self._departed
        if finished > 0:
            self._drop(finished)
            self._free_low, self._free_high = -inf, last_told
        for job in self.jobs:
            job.reset()
        if self._waiting and self._departed:
            self.jobs[0].start_high = last_told

    def _resume(self, now: float, absent: float, count: int) -> None:
        """Continue after an absence, noticed last at `absent`: what left was served or lost.

        The jobs that are still there are served after it; a waiting count does not tell when the
        first of them can be.
        """
        arrived = sum(job.arrival <= now for job in self.jobs)
        left = max(arrived - count, 0)
        del self.jobs[:left]
        for job in self.jobs:
            job.reset()
        self._arrived, self._departed, self._told = arrived - left, 0, None
        self._free_low, self._free_high = absent, inf if self._waiting else now

    def _sweep_forward(self, jobs: list[BoundedJob], low: list[float], high: list[float]) -> None:
        free_low, free_high = self._free_low, self._free_high
        for job in jobs:  # comparisons cost a fraction of calls of min and max
            category = job.category
            if job.start_low < free_low:
                job.start_low = free_low
            if free_high < job.arrival:
                free_high = job.arrival
            if job.start_high > free_high:
                job.start_high = free_high
            free_low = job.start_low + low[category]
            if job.finish_low < free_low:
                job.finish_low = free_low
            free_high = job.start_high + high[category]
            if job.finish_high > free_high:
                job.finish_high = free_high
            free_low, free_high = job.finish_low, job.finish_high

    def _sweep_backward(
        self, jobs: list[BoundedJob], low: list[float], high: list[float]
    ) -> Bounds:
        lows, highs = low.copy(), high.copy()
        next_low, next_high = -inf, inf
        for job in reversed(jobs):
            category = job.category
            if job.finish_low < next_low:
                job.finish_low = next_low
            if job.finish_high > next_high:
                job.finish_high = next_high
            start_low = job.finish_low - high[category]
            if job.start_low < start_low:
                job.start_low = start_low
            start_high = job.finish_high - low[category]
            if job.start_high > start_high:
                job.start_high = start_high
            start_low, start_high = job.start_low, job.start_high
            finish_low, finish_high = job.finish_low, job.finish_high
            if start_low > start_high or finish_low > finish_high:
                job.check()
            if finish_low - start_high > lows[category]:
                lows[category] = finish_low - start_high
            if finish_high - start_low < highs[category]:
                highs[category] = finish_high - start_low
            # Only a job that had to wait bounds from below when the one before it finished.
            waited = start_low > job.arrival + ROUNDING * (1 + abs(job.arrival))
            next_low = start_low if waited else -inf
            next_high = start_high
        return Bounds(lows, highs)

    def _drop(self, jobs: int) -> None:
        last = self.jobs[jobs - 1]
        self._free_low, self._free_high = last.finish_low, last.finish_high
        del self.jobs[:jobs]
        self._arrived -= jobs
        self._departed -= jobs
