"""Strict bounds of the service time of each (node, category), if service is constant."""

from __future__ import annotations

from math import inf, log

import numpy as np
import numpy.typing as npt

from fogveil.agent.inference.soft_means import Table

ROUNDING = 1e-9
"""Relative error of floating-point arithmetic that is no contradiction."""
WORTHWHILE = 0.01
"""The share by which an interval must shrink to be worth propagating."""


class Contradiction(Exception):  # noqa: N818  # a result about the model, not an error
    """The observations are impossible under the model."""


class ServiceBounds:
    """Intervals of service times, closed jointly under service = work / speed.

    In logarithms the product form says that differences of potentials, one per category and one
    per node, lie between bounds: a system of difference constraints, whose tightest bounds are
    shortest paths.

    >>> bounds = ServiceBounds(nodes=2, categories=2, product=True)
    >>> for node, category, time in [(0, 0, 2.0), (0, 1, 6.0), (1, 0, 5.0)]:
    ...     changed = bounds.tighten(node, category, time, time)
    >>> round(bounds.low[1][1], 9), round(bounds.high[1][1], 9)
    (15.0, 15.0)
    """

    def __init__(self, nodes: int, categories: int, *, product: bool) -> None:
        self._nodes, self._product = nodes, product
        self.low: Table = [[0.0] * categories for _ in range(nodes)]
        self.high: Table = [[inf] * categories for _ in range(nodes)]
        potentials = nodes + categories
        self._at_most: npt.NDArray[np.float64] = np.full((potentials, potentials), inf)
        """at_most[a, b] bounds potential b - potential a."""
        np.fill_diagonal(self._at_most, 0.0)

    def tighten(self, node: int, category: int, low: float, high: float) -> list[int]:
        """Intersect one interval with [low, high] and return the nodes whose bounds changed."""
        old_low, old_high = self.low[node][category], self.high[node][category]
        worthwhile = WORTHWHILE * (old_high - old_low if old_high < inf else old_low)
        raised = low > old_low + worthwhile
        lowered = high < old_high - worthwhile if old_high < inf else high < inf
        if not raised and not lowered:
            return []
        low = low if raised else old_low
        high = high if lowered else old_high
        if low > high * (1 + ROUNDING) or high <= 0:
            raise Contradiction
        if not self._product:
            self.low[node][category], self.high[node][category] = low, high
            return [node]
        if lowered:
            self._shorten(node, self._nodes + category, log(high))
        if raised:
            self._shorten(self._nodes + category, node, -log(low))
        return self._read_off()

    def is_tight(self, node: int, within: float) -> bool:
        """Return whether most service times of a node are known, up to a factor."""
        both = zip(self.low[node], self.high[node], strict=True)
        tight = sum(high <= low * within for low, high in both)
        return 2 * tight >= len(self.low[node])

    def forget(self, node: int) -> None:
        """Drop what is known of one node; what followed from it for others still holds."""
        if not self._product:
            categories = len(self.low[node])
            self.low[node], self.high[node] = [0.0] * categories, [inf] * categories
            return
        self._at_most[node, :] = self._at_most[:, node] = inf
        self._at_most[node, node] = 0.0
        self._read_off()

    def forget_works(self) -> None:
        """Drop what is known of all categories' work; how fast nodes are among them still holds."""
        if self._product:
            self._at_most[self._nodes :, :] = self._at_most[:, self._nodes :] = inf
            np.fill_diagonal(self._at_most, 0.0)
            self._read_off()
        else:
            for node in range(self._nodes):
                self.forget(node)

    def _shorten(self, start: int, end: int, length: float) -> None:
        paths = self._at_most
        if length + paths[end, start] < -ROUNDING:
            raise Contradiction
        if length < paths[start, end]:
            np.minimum(paths, paths[:, start, None] + (length + paths[end]), out=paths)
            # Rounding may leave a cycle slightly below zero, which would grow at every pass.
            np.fill_diagonal(paths, 0.0)

    def _read_off(self) -> list[int]:
        low: Table = np.exp(-self._at_most[self._nodes :, : self._nodes].T).tolist()
        high: Table = np.exp(self._at_most[: self._nodes, self._nodes :]).tolist()
        changed = [
            node
            for node in range(self._nodes)
            if low[node] != self.low[node] or high[node] != self.high[node]
        ]
        self.low, self.high = low, high
        return changed
