"""What an attacker knows after some decisions: public facts, observations, placements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fogveil.agent.policy import AgentView, Observation

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Transcript:
    """The decisions of an agent and its observations: all that an estimator receives."""

    view: AgentView
    decisions: tuple[tuple[Observation, int], ...]
    """Observation and chosen node of each decision."""
    arrivals: tuple[float, ...] | None = None
    """When each job arrives at its node; None where the view's latencies held all the time."""

    def __len__(self) -> int:
        """Return the number of decisions."""
        return len(self.decisions)

    def first(self, decisions: int) -> Transcript:
        """Return the transcript of the first decisions."""
        arrivals = None if self.arrivals is None else self.arrivals[:decisions]
        return Transcript(self.view, self.decisions[:decisions], arrivals)

    @property
    def times(self) -> Floats:
        """The decision instants."""
        return np.array([observation.time for observation, _ in self.decisions])

    @property
    def totals(self) -> Ints:
        """The total at each instant."""
        return np.array([observation.total for observation, _ in self.decisions], np.int64)

    def counts_of(self, node: int) -> Ints:
        """Return a node's count at each instant."""
        observed = (observation.counts for observation, _ in self.decisions)
        return np.array([counts[node] for counts in observed if counts is not None], np.int64)

    def arrivals_at(self, node: int) -> tuple[Floats, Ints]:
        """Return arrivals and categories of the jobs placed on a node, in the order of service."""
        arrivals = self._computed_arrivals() if self.arrivals is None else self.arrivals
        jobs = sorted(
            (arrival, observation.job, observation.category)
            for (observation, chosen), arrival in zip(self.decisions, arrivals, strict=True)
            if chosen == node
        )
        arrived = [job for job in jobs if job[0] <= self.decisions[-1][0].time]
        times, categories = [job[0] for job in arrived], [job[2] for job in arrived]
        return np.array(times), np.array(categories, np.int64)

    def _computed_arrivals(self) -> list[float]:
        up = self.view.up
        return [
            observation.time + up[observation.cluster][observation.category][node]
            for observation, node in self.decisions
        ]


def marks_of(decisions: int, halvings: int = 4) -> tuple[int, ...]:
    """Return the numbers of decisions at which the attacker is scored: N/16, N/8, N/4, N/2, N.

    >>> marks_of(1600)
    (100, 200, 400, 800, 1600)
    """
    return tuple(dict.fromkeys(max(decisions >> k, 1) for k in range(halvings, -1, -1)))
