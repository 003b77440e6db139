"""The outlook of a run: when the jobs placed so far will be served, were none placed after them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from math import inf
from typing import NamedTuple

from fogveil.provider_node.provider import Provider


class Effect(NamedTuple):
    """What one placement leads to, by the jobs placed so far."""

    started: float
    finished: float
    others: float
    """Delay that it adds to jobs placed before it, all of them together."""


class Outlook:
    """Knows when each job at the Fog nodes will finish, by nodes that run ahead of the run.

    The finish of a job changes only when a later one gets in before it: one that arrives earlier
    by a shorter way, or a shorter one where the shortest is served first. That change is an effect
    of the later placement. So the delays and the effects of all placements together are the delays
    of all jobs, as they come to be.
    """

    def __init__(self, fogs: Sequence[Provider]) -> None:
        self._fogs = fogs
        self._finishes: list[dict[int, float]] = [{} for _ in fogs]

    def placed(self, node: int, job: int) -> Effect:
        """Return the effect of the job that this node has just accepted."""
        before = self._finishes[node]
        served = copy(self._fogs[node].node).advance(inf)
        self._finishes[node] = {number: finished for number, _, _, _, finished in served}
        others = sum(
            finished - before[number]
            for number, finished in self._finishes[node].items()
            if number != job
        )
        started, finished = next(row[3:] for row in served if row[0] == job)
        return Effect(started, finished, others)
