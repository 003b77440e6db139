"""One node as the agent imagines it: a FIFO of its own jobs, kept in step by the counts."""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from agent.inference.own_job import OwnJob
from agent.inference.soft_means import Overdue, SoftMeans
from agent.inference.spread import Spread, known_between, later_of
from fogveil.disclosure import CountKind

INSTANT = 1e-9
"""The shortest service that is inferred: estimates of the start may lie after the finish."""
LATE = 0.8
"""The share of its expected time after which a job's being there still says something new."""


class Finished(NamedTuple):
    """A job that is done, with what is believed of its start and finish."""

    job: int
    arrival: float
    started: float
    finished: float


class NodeBelief:
    """Knows which of the agent's jobs are at a node, and expects when it will be free.

    All arrivals are known, so a count tells how many jobs have finished (in-system) or started
    (waiting; then all but the last of them have finished). Finished jobs teach the means and are
    dropped.
    """

    def __init__(self, node: int, kind: CountKind, means: SoftMeans) -> None:
        self._node = node
        self._waiting = kind is CountKind.WAITING
        self._means = means
        self._jobs: list[OwnJob] = []
        """From the one in service on, in order of arrival, those underway last."""
        self._arrived = 0
        self._started = 0
        """At a waiting count: 1 if the first job has started, it may have finished too."""
        self._free: Spread = (-inf, 0.0)
        """When the last finished job finished."""
        self._seen_unfinished = -inf
        """When the first job was last known to be unfinished."""
        self._now = -inf
        self.finished: list[Finished] = []
        """Jobs that the last count showed to be finished, in the order in which they did."""

    @property
    def in_transit(self) -> int:
        """Own jobs that have not arrived yet."""
        return len(self._jobs) - self._arrived

    @property
    def overdue(self) -> Overdue | None:
        """The job in service, if it is surely there and has been for long."""
        if self._seen_unfinished < self._now or not self._arrived:
            return None
        job = self._jobs[0]
        served = self._now - later_of(job.arrival, self._free)[0]
        if served < LATE * self._means.estimates.mean[self._node][job.category]:
            return None
        return Overdue(self._node, job.category, served)

    def place(self, arrival: float, job: int, category: int) -> None:
        """Note a job sent to this node."""
        insort(self._jobs, OwnJob(arrival, job, category))

    def observe(self, now: float, count: int) -> None:
        """Take the node's count, which includes all events up to and including `now`."""
        jobs, before = self._jobs, self._now
        self.finished.clear()
        arrived = self._arrived
        while arrived < len(jobs) and jobs[arrived].arrival <= now:
            arrived += 1
        self._arrived, self._now = arrived, now
        moved = arrived - count  # a count that cannot be moves nothing
        if self._waiting:
            self._started = max(self._started, moved)
            while self._started > 1:
                # The next one was waiting at the last count: so this one was in service.
                after = before if jobs[1].arrival <= before else self._seen_unfinished
                self._finish(after, now, jobs[1 : self._started - 1])
                self._started -= 1
            if self._started and self._arrived > 1:
                self._seen_unfinished = now
        else:
            for left in range(moved, 0, -1):
                self._finish(before, now, jobs[1:left])
                before = -inf
            if self._arrived:
                self._seen_unfinished = now

    def free_for(self, arrival: float, job: float, means: Sequence[float]) -> Spread:
        """Return when the node will have done all jobs that come before the given one.

        At a waiting count this may be past: the last job finishes unnoticed.
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
                served = (self._seen_unfinished - start) / mean
                service, variance = known_between(variance / square, served)
                free = start + service * mean, variance * square
            else:
                free = start + mean, variance
        return free

    def overtaken_by(self, arrival: float, job: int) -> int:
        """Return how many own jobs underway a job placed now would arrive before."""
        return len(self._jobs) - bisect(self._jobs, OwnJob(arrival, job, 0))

    def _finish(self, after: float, by: float, same_time: Sequence[OwnJob]) -> None:
        """Infer when the first job finished, given others that did so up to the same instant."""
        job = self._jobs.pop(0)
        self._arrived -= 1
        self._seen_unfinished = -inf
        means = self._means.estimates.mean[self._node]
        mean = means[job.category]
        start, start_variance = later_of(job.arrival, self._free)
        since = max(start, after)
        rest = sum(means[other.category] for other in same_time)
        by = max(since + (by - since) * mean / (mean + rest), start + INSTANT)

        square = mean * mean
        own = self._means.factor_variance * square
        both = own + start_variance
        took, left_open = known_between(both / square, (after - start) / mean, (by - start) / mean)
        self._free = start + took * mean, left_open * square
        # What the start was off is not the service's doing: the surprise is shared between them.
        share = own / both
        service = mean + share * (took - 1) * mean
        left_open = share * share * left_open * square + (1 - share) * own
        self._means.learn(self._node, job.category, (service, left_open))
        self.finished.append(Finished(job.job, job.arrival, start, self._free[0]))
