"""Nodes at which nothing is known to go on: their waits are found for all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

import numpy as np

from fogveil.agent.inference.node_belief import NodeBelief
from fogveil.agent.inference.soft_means import Estimates, Floats
from fogveil.agent.inference.spread import CERTAIN, GREATEST


class QuietNodes:
    """Tells the nodes that are certainly free by some time; of the others one must compute when.

    A node has at most one job that is not known to be finished, or it is no quiet one. A bound of
    when it is free follows from when the job started: a gamma's mean residual time and its
    deviation are at most `GREATEST` means (`known_between`).
    """

    def __init__(self, nodes: Sequence[NodeBelief]) -> None:
        self._nodes = nodes
        self._noted: set[int] = set(range(len(nodes)))
        """Nodes of which something has changed since they were read off."""
        self._places = np.arange(len(nodes))
        self._start = np.full(len(nodes), -inf)
        self._variance = np.zeros(len(nodes))
        self._last_unfinished = np.full(len(nodes), -inf)
        self._category = np.zeros(len(nodes), np.int64)
        self._jobs = np.zeros(len(nodes))
        self._estimates: Estimates | None = None
        self._free = self._start
        """The bounds by the last estimates."""

    def note(self, nodes: Iterable[int]) -> None:
        """Read nodes off again: something has changed there."""
        self._noted.update(nodes)

    def others(self, estimates: Estimates, variance: float, by: float | Floats) -> list[int]:
        """Return the nodes that may be busy at a time, or may be for long."""
        if self._noted or self._estimates is not estimates:
            self._read_off()
            self._estimates = estimates
            service = estimates.mean[self._places, self._category] * self._jobs
            spread = self._variance + variance * service * service
            latest = np.maximum(self._start, self._last_unfinished)
            self._free = latest + GREATEST * service + np.sqrt(CERTAIN * GREATEST * spread)
        others: list[int] = np.flatnonzero(self._free > by).tolist()
        return others

    def _read_off(self) -> None:
        for number in self._noted:
            left = self._nodes[number].lingering
            if left is None:
                self._start[number] = inf
                continue
            self._start[number], self._variance[number] = left.start, left.variance
            self._last_unfinished[number] = left.last_unfinished
            self._jobs[number] = left.category is not None
            self._category[number] = left.category or 0
        self._noted.clear()
