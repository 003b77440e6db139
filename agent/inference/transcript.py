"""What an attacker holds after some decisions: public facts, what it saw, and what it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent.policy import AgentView, Observation

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Transcript:
    """The decisions of an agent, with what it was shown at each: all that an estimator is given."""

    view: AgentView
    decisions: tuple[tuple[Observation, int], ...]
    """What was seen, and the node that was chosen."""

    def __len__(self) -> int:
        """How many decisions were taken."""
        return len(self.decisions)

    def first(self, decisions: int) -> Transcript:
        """Return what was known by a decision: the placement taken at it is not at work yet."""
        return Transcript(self.view, self.decisions[:decisions])

    @property
    def times(self) -> Floats:
        """The instants at which the nodes were looked at."""
        return np.array([seen.time for seen, _ in self.decisions])

    @property
    def totals(self) -> Ints:
        """The total at each instant."""
        return np.array([seen.total for seen, _ in self.decisions], np.int64)

    def counts_of(self, node: int) -> Ints:
        """Return a node's count at each instant."""
        seen = [seen.counts[node] for seen, _ in self.decisions if seen.counts is not None]
        return np.array(seen, np.int64)

    def arrivals_at(self, node: int) -> tuple[Floats, Ints]:
        """Return arrivals and categories of the jobs sent to a node, in the order of service."""
        up = self.view.up
        jobs = sorted(
            (seen.time + up[seen.cluster][seen.category][node], seen.job, seen.category)
            for seen, chosen in self.decisions
            if chosen == node
        )
        here = [job for job in jobs if job[0] <= self.decisions[-1][0].time]
        return np.array([job[0] for job in here]), np.array([job[2] for job in here], np.int64)


def marks_of(decisions: int, halvings: int = 4) -> tuple[int, ...]:
    """Return the numbers of decisions at which the attacker is asked: N/16, N/8, N/4, N/2, N.

    >>> marks_of(1600)
    (100, 200, 400, 800, 1600)
    """
    return tuple(dict.fromkeys(max(decisions >> k, 1) for k in range(halvings, -1, -1)))


def as_table(view: AgentView, rows: Sequence[Sequence[float]]) -> Floats:
    """Return service times as table[node, category], of the shape that the view says."""
    return np.array(rows, np.float64).reshape(len(view.nodes), len(view.categories))
