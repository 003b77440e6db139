"""The agent's model of one node: a FIFO of its own jobs, synchronised by the counts."""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from fogveil.agent.inference.instants import Instants
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


class Lingering(NamedTuple):
    """A node where nothing is known to go on: at most one job is left, which may have finished."""

    start: float
    """When the last job started; without a job, when the node was free."""
    variance: float
    """Of that time."""
    last_unfinished: float
    category: int | None
    """Of the last job; None: there is no job."""


class NodeBelief:
    """Tracks which of the agent's jobs are at a node, and estimates when it will be free.

    All arrivals are known, so a count shows how many jobs have finished (in-system) or started
    (waiting; then all but the last of them have finished). Finished jobs update the means and are
    removed. It need not observe a count that is as before while no job arrives: nothing follows.
    """

    def __init__(self, node: int, kind: CountKind, means: SoftMeans, instants: Instants) -> None:
        self._node = node
        self._instants = instants
        self._waiting = kind is CountKind.WAITING
        self._means = means
        self._jobs: list[OwnJob] = []
        """From the one in service on, in order of arrival, those in transit last."""
        self._arrived = 0
        self._started = 0
        """For a waiting count: 1 if the first job has started; it may have finished, too."""
        self._free: Spread = (-inf, 0.0)
        """When the last finished job finished, as (mean, variance)."""
        self.busy = False
        """Whether the first job is known to be unfinished at the last instant."""
        self._start = -inf
        """When a busy node is estimated to have started its first job."""
        self._last_unfinished = -inf
        """The last instant at which the first job of a node is known to be unfinished, if not."""
        self._told: float | None = None
        """When a node that tells no count told the last one."""
        self._known_for: Sequence[float] | None = None
        self._known_at = -inf
        self._known: tuple[Spread, int] = (self._free, 0)
        """When the jobs that have arrived will be served, by these means at this instant."""
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
        if not self.busy:
            return None
        category = self._jobs[0].category
        served = self._instants.now - self._start
        if served < LATE * self._means.row(self._node)[category]:
            return None
        return Overdue(self._node, category, served)

    @property
    def lingering(self) -> Lingering | None:
        """What is left of a node where nothing is known to go on; None: there is more."""
        if self.busy or len(self._jobs) > 1 or len(self._jobs) > self._arrived:
            return None
        if not self._jobs:
            return Lingering(*self._free, -inf, None)
        job = self._jobs[0]
        return Lingering(*later_of(job.arrival, self._free), self._last_unfinished, job.category)

    def place(self, arrival: float, job: int, category: int) -> None:
        """Add a job placed on this node."""
        insort(self._jobs, OwnJob(arrival, job, category))

    def forget(self, number: int) -> bool:
        """Remove a job that was lost; return whether it was here."""
        place = next((p for p, job in enumerate(self._jobs) if job.job == number), None)
        if place is None:
            return False
        self._known_for = None
        del self._jobs[place]
        self._arrived -= place < self._arrived
        if place == 0:
            self._started = 0
            self.busy = False
            self._last_unfinished = -inf
        return True

    def quiet(self) -> None:
        """Drop what the last count showed: nothing moves at this instant."""
        self.finished.clear()
        self.changed = None
        self._known_for = None

    def miss(self) -> None:
        """Note that the node tells no count at this instant."""
        self.quiet()
        if self._told is None:
            self._told = self._instants.before
        self.busy = False
        self._last_unfinished = -inf

    def observe(self, count: int) -> None:
        """Update the model by the count, which includes all events up to and including now."""
        jobs, now, before = self._jobs, self._instants.now, self._instants.before
        self.quiet()
        if self.busy:
            self._last_unfinished, self.busy = before, False
        if self._told is not None:
            self._resume(now, before, count)
            before, self._told = self._told, None
        arrived = self._arrived
        while arrived < len(jobs) and jobs[arrived].arrival <= now:
            arrived += 1
        self._arrived = arrived
        departed = arrived - count  # negative for an impossible count, which changes nothing
        if self._waiting:
            self._started = max(self._started, departed)
            while self._started > 1:
                # If the next job was waiting at the last count, this one was in service then.
                after = before if jobs[1].arrival <= before else self._last_unfinished
                self._finish(after, now, jobs[1 : self._started - 1])
                self._started -= 1
            self.busy = bool(self._started and self._arrived > 1)
        else:
            for left in range(departed, 0, -1):
                self._finish(before, now, jobs[1:left])
                before = -inf
            self.busy = self._arrived > 0
        if self.busy:
            self._start = later_of(jobs[0].arrival, self._free)[0]

    def free_for(self, arrival: float, job: float, means: Sequence[float]) -> Spread:
        """Return when the node will have served all jobs that come before the given one.

        For a waiting count this may be in the past: the last job's finish is not visible.
        """
        free, arrived = self._free_now(means)
        factor_variance = self._means.factor_variance
        for place in range(arrived, len(self._jobs)):
            other = self._jobs[place]
            if other.arrival > arrival or (other.arrival == arrival and other.job > job):
                break
            mean = means[other.category]
            start, variance = later_of(other.arrival, free)
            free = start + mean, variance + factor_variance * mean * mean
        return free

    def _free_now(self, means: Sequence[float]) -> tuple[Spread, int]:
        """Return when the jobs that have arrived will be served, and how many they are.

        It is asked several times at an instant.
        """
        now = self._instants.now
        if self._known_for is means and self._known_at == now:
            return self._known
        free, factor_variance = self._free, self._means.factor_variance
        last_unfinished = now if self.busy else self._last_unfinished
        place = 0
        for place, other in enumerate(self._jobs):
            if other.arrival > now:
                break
            mean = means[other.category]
            start, variance = later_of(other.arrival, free)
            variance += factor_variance * mean * mean
            if place == 0 and self._arrived:
                square = mean * mean
                served = (last_unfinished - start) / mean
                service, variance = known_between(variance / square, served)
                free = start + service * mean, variance * square
            else:
                free = start + mean, variance
        else:
            place = len(self._jobs)
        self._known_for, self._known_at, self._known = means, now, (free, place)
        return self._known

    def overtaken_by(self, arrival: float, job: int) -> int:
        """Return how many own jobs in transit would arrive after a job placed now."""
        return len(self._jobs) - bisect(self._jobs, OwnJob(arrival, job, 0))

    def _resume(self, now: float, absent: float, count: int) -> None:
        """Continue after an absence, noticed last at `absent`.

        Jobs that left meanwhile were served or lost, unseen.
        If some wait, the node has recovered its jobs, and serves the first of them from its
        beginning.
        """
        arrived = sum(job.arrival <= now for job in self._jobs)
        left = max(arrived - count, 0)
        serving = int(self._waiting and 0 < count < arrived)
        del self._jobs[: left - serving]
        self._arrived, self._started = arrived - left + serving, serving
        missed = now - absent
        self._free = now - missed / 2, missed * missed / 12

    def _finish(self, after: float, by: float, same_time: Sequence[OwnJob]) -> None:
        """Estimate when the first job finished, given others that finished by the same instant."""
        job = self._jobs.pop(0)
        self._arrived -= 1
        self._last_unfinished = -inf
        means = self._means.row(self._node)
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
