"""What a disclosure level permits: the one place where disclosures become an observation."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from fogveil.agent.decision_record import UNSEEN
from fogveil.agent.policy import Load, Observation, Policy
from fogveil.core.disclosure import Level

Emission = tuple[float, int, int, int]
"""The public facts of a decision: (time, job, cluster, category)."""


class Disclosed(NamedTuple):
    """What the providers disclosed at one decision instant: arguments of `observation`."""

    counts: tuple[int, ...] = ()
    """Queued jobs per Fog node."""
    cloud_count: int | None = None
    """Queued jobs at the Cloud, where it was asked for."""
    total: int | None = None
    """The sum of all counts, where nothing else is disclosed."""
    load: Load | None = None

    def hiding(self, silent: Collection[int]) -> Disclosed:
        """Return the same without what some nodes tell."""
        counts = tuple(UNSEEN if n in silent else count for n, count in enumerate(self.counts))
        return self._replace(counts=counts, load=self.load and self.load.hiding(silent))


class Visibility:
    """What a policy observes: one level, with or without the Cloud's count.

    >>> emission = (1.5, 7, 0, 1)
    >>> Visibility(Level.TOTAL).observation(emission, counts=(2, 0, 4), cloud_count=1).total
    7
    >>> Visibility(Level.NONE).observation(emission, counts=(2, 0, 4)).counts is None
    True
    """

    def __init__(self, level: Level, *, watches_cloud: bool = False) -> None:
        self.level = level
        self._shows_counts = level >= Level.COUNT
        self._shows_cloud = self._shows_counts and watches_cloud
        self._shows_total = level is Level.TOTAL
        self._shows_load = level is Level.FULL
        self.needs_cloud = self._shows_cloud or self._shows_total
        """Whether the Cloud must disclose its count: to be observed, or as part of the total."""

    @classmethod
    def of(cls, policy: Policy) -> Visibility:
        """Return what the policy's class declares: an instance may have changed since its check."""
        return cls(type(policy).needs, watches_cloud=type(policy).watches_cloud)

    def observation(
        self,
        emission: Emission,
        counts: tuple[int, ...] = (),
        cloud_count: int | None = None,
        total: int | None = None,
        load: Load | None = None,
        available: tuple[int, ...] | None = None,
        attempt: int = 1,
    ) -> Observation:
        """Return the decision with what the level permits of what was disclosed.

        A count of `UNSEEN` is one that its node did not tell.
        """
        if self._shows_counts:
            cloud_count = cloud_count if self._shows_cloud else None
            load = load if self._shows_load else None
            return Observation(*emission, counts, cloud_count, None, load, available, attempt)
        if self._shows_total:
            if total is None:
                assert cloud_count is not None
                total = sum(counts) - UNSEEN * counts.count(UNSEEN) + cloud_count
            return Observation(*emission, None, None, total, None, available, attempt)
        return Observation(*emission, None, None, None, None, available, attempt)
