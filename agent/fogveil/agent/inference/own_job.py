"""A job that the agent placed on a node: what all inference is based on."""

from __future__ import annotations


class OwnJob:
    """A job that the agent placed on a node; jobs compare in the order in which they are served.

    >>> OwnJob(arrival=2.0, job=7, category=0) < OwnJob(arrival=2.0, job=8, category=0)
    True
    """

    __slots__ = ("arrival", "category", "job")

    def __init__(self, arrival: float, job: int, category: int) -> None:
        self.arrival = arrival
        self.job = job
        self.category = category

    def __lt__(self, other: OwnJob) -> bool:
        return (self.arrival, self.job) < (other.arrival, other.job)
