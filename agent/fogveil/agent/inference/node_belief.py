"""The agent's model of one node: a FIFO of its own jobs, synchronised by the counts."""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from fogveil.agent.inference.own_job import OwnJob
from fogveil.agent.inference.soft_means import Overdue, SoftMeans
from fogveil.agent.inference.speed_test import HEAVIEST, SpeedTest
from fogveil.agent.inference.spread import Spread, known_between, later_of
from fogveil.core.disclosure import CountKind

SHORTEST = 1e-9
"""The shortest service that is inferred: an estimated start may lie after the finish."""
LATE = 0.8
"""The share of its expected service after which a job that is still there is informative."""


class Finished(NamedTuple):
    """A finished job, with its estimated start and finish."""

    job: int
    arrival: float
    started: float
    finished: float


class NodeBelief:
    """Tracks which of the agent's jobs are at a node, and estimates when it will be free.

    All arrivals are known, so a count shows how many jobs have finished (in-system) or started
    (waiting; then all but the last of them have finished). Finished jobs update the means and are
    removed.
    """

    def __init__(self, node: int, kind: CountKind, means: SoftMeans) -> None:
        self._node = node
        self._waiting = kind is CountKind.WAITING
        self._means = means
        self._jobs: list[OwnJob] = []
        """From the one in service on, in order of arrival, those in transit last."""
        self._arrived = 0
        self._started = 0
        """For a waiting count: 1 if the first job has started; it may have finished, too."""
        self._free: Spread = (-inf, 0.0)
        """When the last finished job finished, as (mean, variance)."""
        self._last_unfinished = -inf
        """The last instant at which the first job is known to be unfinished."""
        self._now = -inf
        """When the last count was told."""
        self._absent = -inf
        """When the node last told none."""
        self._speed_test = SpeedTest()
        self.changed: float | None = None
        """By which factor service takes longer now, if the last count showed a change."""
        self.finished: list[Finished] = []
        """Jobs that the last count showed to be finished, in order."""

    @property
    def in_transit(self) -> int:
        """Own jobs that have not arrived yet."""
        return len(self._jobs) - self._arrived

    @property
    def overdue(self) -> Overdue | None:
        """The job in service, if it certainly is and has been for long."""
        if self._last_unfinished < self._now or not self._arrived:
            return None
        job = self._jobs[0]
        served = self._now - later_of(job.arrival, self._free)[0]
        if served < LATE * self._means.estimates.mean[self._node][job.category]:
            return None
        return Overdue(self._node, job.category, served)

    def place(self, arrival: float, job: int, category: int) -> None:
        """Add a job placed on this node."""
        insort(self._jobs, OwnJob(arrival, job, category))

    def forget(self, number: int) -> None:
        """Remove a job that was lost."""
        place = next((p for p, job in enumerate(self._jobs) if job.job == number), None)
        if place is None:
            return
        del self._jobs[place]
        self._arrived -= place < self._arrived
        if place == 0:
            self._started = 0
            self._last_unfinished = -inf

    def miss(self, now: float) -> None:
        """Note that the node told no count at a decision instant."""
        self.finished.clear()
        self._absent = now
        self._last_unfinished = -inf

    def observe(self, now: float, count: int) -> None:
        """Update the model by the count, which includes all events up to and including `now`."""
        jobs, before = self._jobs, self._now
        self.finished.clear()
        self.changed = None
        if self._absent > before:
            self._resume(now, count)
        arrived = self._arrived
        while arrived < len(jobs) and jobs[arrived].arrival <= now:
            arrived += 1
        self._arrived, self._now = arrived, now
        departed = arrived - count  # negative for an impossible count, which changes nothing
        if self._waiting:
            self._started = max(self._started, departed)
            while self._started > 1:
                # If the next job was waiting at the last count, this one was in service then.
                after = before if jobs[1].arrival <= before else self._last_unfinished
                self._finish(after, now, jobs[1 : self._started - 1])
                self._started -= 1
            if self._started and self._arrived > 1:
                self._last_unfinished = now
        else:
            for left in range(departed, 0, -1):
                self._finish(before, now, jobs[1:left])
                before = -inf
            if self._arrived:
                self._last_unfinished = now

    def free_for(self, arrival: float, job: float, means: Sequence[float]) -> Spread:
        """Return when the node will have served all jobs that come before the given one.

        For a waiting count this may be in the past: the last job's finish is not visible.
        """
        free, factor_variance = self._free, self._means.factor_variance
        for place, other in enumerate(self._jobs):
            if other.arrival > arrival or (other.arrival == arrival and other.job > job):
                break
            mean = means[other.category]
            start, variance = later_of(other.arrival, free)
            variance += factor_variance * mean * mean
            if place == 0 and other.arrival <= self._now:
                square = mean * mean
                served = (self._last_unfinished - start) / mean
                service, variance = known_between(variance / square, served)
                free = start + service * mean, variance * square
            else:
                free = start + mean, variance
        return free

    def overtaken_by(self, arrival: float, job: int) -> int:
        """Return how many own jobs in transit would arrive after a job placed now."""
        return len(self._jobs) - bisect(self._jobs, OwnJob(arrival, job, 0))

    def _resume(self, now: float, count: int) -> None:
        """Continue after an absence: jobs that left meanwhile were served or lost, unseen.

        If some wait, the node has recovered its jobs, and serves the first of them from its
        beginning.
        """
        arrived = sum(job.arrival <= now for job in self._jobs)
        left = max(arrived - count, 0)
        serving = int(self._waiting and 0 < count < arrived)
        del self._jobs[: left - serving]
        self._arrived, self._started = arrived - left + serving, serving
        missed = now - self._absent
        self._free = now - missed / 2, missed * missed / 12

    def _finish(self, after: float, by: float, same_time: Sequence[OwnJob]) -> None:
        """Estimate when the first job finished, given others that finished by the same instant."""
        job = self._jobs.pop(0)
        self._arrived -= 1
        self._last_unfinished = -inf
        means = self._means.estimates.mean[self._node]
        mean = means[job.category]
        start, start_variance = later_of(job.arrival, self._free)
        since = max(start, after)
        rest = sum(means[other.category] for other in same_time)
        by = max(since + (by - since) * mean / (mean + rest), start + SHORTEST)

        square = mean * mean
        own = self._means.factor_variance * square
        both = own + start_variance
        low, high = (after - start) / mean, (by - start) / mean
        took, left_open = known_between(both / square, low, high)
        if self._means.factor_variance <= HEAVIEST:
            unsettled = self._means.unsettled(self._node, job.category)
            self.changed = self._speed_test.add(both / square, unsettled, low, high) or self.changed
        self._free = start + took * mean, left_open * square
        # Part of the surprise is the error of the estimated start: only the rest is the service's.
        share = own / both
        service = mean + share * (took - 1) * mean
        left_open = share * share * left_open * square + (1 - share) * own
        self._means.learn(self._node, job.category, (service, left_open))
        self.finished.append(Finished(job.job, job.arrival, start, self._free[0]))
