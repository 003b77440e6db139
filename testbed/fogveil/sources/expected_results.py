"""Which results may come back to the clusters: one from a Fog provider and one from the Cloud."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import inf

from fogveil.core.errors import MisbehaviourError
from fogveil.sources.core import Emission
from fogveil.v1.workload_pb2 import Workload


class ExpectedResults:
    """The jobs of an episode that were emitted, and who has sent their results.

    >>> expected = ExpectedResults("sources", cloud="cloud")
    >>> expected.add([Workload(job=7, emitted=1.5)])
    >>> expected.take(7, "fog-1", finished=4.0)
    >>> expected.take(7, "fog-1", finished=4.0)
    Traceback (most recent call last):
    fogveil.core.errors.MisbehaviourError: fog-1 sent the result of job 7 twice
    """

    def __init__(self, name: str, *, cloud: str) -> None:
        self._name, self._cloud = name, cloud
        self.reset()

    def reset(self) -> None:
        """Begin an episode."""
        self._emitted: dict[int, float] = {}
        self._kinds: dict[int, tuple[int, int]] = {}
        self._lost: dict[int, float] = {}
        """When jobs that were lost are emitted again."""
        self._attempts: Counter[int] = Counter()
        """How often jobs were lost."""
        self._senders: dict[tuple[int, bool], str] = {}
        """Who has sent the result of a job: a Fog provider, or the Cloud (True)."""

    def add(self, workloads: Iterable[Workload]) -> None:
        """Expect the results of workloads that are published."""
        for workload in workloads:
            self._emitted[workload.job] = workload.emitted
            self._kinds[workload.job] = workload.cluster, workload.category

    def take_loss(self, job: int, sender: str, again: float) -> None:
        """Take the news that a crash has lost a job, which is emitted again at that time."""
        if job not in self._emitted or not self._emitted[job] < again < inf:
            raise MisbehaviourError(
                sender, f"{sender} says that it lost job {job}, which cannot be"
            )
        if (job, False) in self._senders or job in self._lost:
            raise MisbehaviourError(sender, f"{sender} says that it lost job {job} once too often")
        self._lost[job] = again

    def take_lost(self) -> list[Emission]:
        """Return the emissions of jobs that were lost since the last call."""
        emissions = [(again, job, *self._kinds[job]) for job, again in self._lost.items()]
        for job in self._lost:
            self._attempts[job] += 1
        self._lost.clear()
        return emissions

    def next_attempt(self, job: int) -> int:
        """Return which attempt the emission of a job is, as messages say it: 0 is the first."""
        return 1 + self._attempts[job] if job in self._attempts else 0

    def take(self, job: int, sender: str, finished: float) -> None:
        """Take a result; one that cannot be raises an error that names its sender."""
        if job not in self._emitted:
            raise MisbehaviourError(
                sender,
                f"{sender} sent the result of job {job}, which {self._name} never emitted: "
                f"{sender} invented it, or the agent placed it there",
            )
        emitted = self._emitted[job]
        if not emitted < finished < inf:
            raise MisbehaviourError(
                sender,
                f"{sender} says that job {job} was finished at {finished!r}, "
                f"but it was emitted at {emitted!r}",
            )
        key = job, sender == self._cloud
        first = self._senders.get(key)
        if first == sender:
            raise MisbehaviourError(sender, f"{sender} sent the result of job {job} twice")
        if first:
            raise MisbehaviourError(
                sender,
                f"{first} and {sender} both sent the result of job {job}: one of them did not "
                "serve it, or the agent placed it on both",
            )
        self._senders[key] = sender
