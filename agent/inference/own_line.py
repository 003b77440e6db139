"""The agent's own jobs at a node, and what a count says about which of them has moved on."""

from __future__ import annotations

from bisect import insort
from math import inf

from fogveil.disclosure import CountKind


class OwnJob:
    """A job that the agent sent to a node, with bounds of when it starts and finishes there."""

    __slots__ = (
        "arrival",
        "category",
        "finish_hi",
        "finish_lo",
        "job",
        "start",
        "start_hi",
        "start_lo",
        "unfinished_at",
    )

    def __init__(self, arrival: float, job: int, category: int) -> None:
        self.arrival = arrival
        self.job = job
        self.category = category
        self.start_lo = arrival
        self.start_hi = inf
        self.finish_lo = arrival
        self.finish_hi = inf
        self.start = arrival
        self.unfinished_at = arrival

    def __lt__(self, other: OwnJob) -> bool:
        return (self.arrival, self.job) < (other.arrival, other.job)
