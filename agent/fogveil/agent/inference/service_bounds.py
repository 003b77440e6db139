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
GENERATIONS = 8
"""Works of the categories, present and past, through which nodes are compared."""

Floats = npt.NDArray[np.float64]


class Contradiction(Exception):  # noqa: N818  # a result about the model, not an error
    """The observations are impossible under the model."""


class ServiceBounds:
    """Intervals of service times, closed jointly under service = work / speed.

    In logarithms the product form says that differences of potentials, one per category and one
    per node, lie between bounds: a system of difference constraints, whose tightest bounds are
    shortest paths. No bound relates two nodes directly, so the paths between a node and a category
    and those among categories imply all others: their number is linear in that of the nodes. When
    all work has changed, the categories begin anew, and what relates the nodes through those of
    before is kept.

    >>> bounds = ServiceBounds(nodes=2, categories=2, product=True)
    >>> for node, category, time in [(0, 0, 2.0), (0, 1, 6.0), (1, 0, 5.0)]:
    ...     changed = bounds.tighten(node, category, time, time)
    >>> round(bounds.low[1][1], 9), round(bounds.high[1][1], 9)
    (15.0, 15.0)
    """

    def __init__(self, nodes: int, categories: int, *, product: bool) -> None:
        self._categories, self._product = categories, product
        self.low: Table = [[0.0] * categories for _ in range(nodes)]
        self.high: Table = [[inf] * categories for _ in range(nodes)]
        self.limits: tuple[Floats, Floats] = (
            np.zeros((nodes, categories)),
            np.full((nodes, categories), inf),
        )
        """The same as arrays."""
        # Bounds of differences of potentials; the present categories are the last columns.
        self._above: Floats = np.full((nodes, categories), inf)
        """above[node, c] bounds the potential of c less that of the node."""
        self._below: Floats = np.full((nodes, categories), inf)
        """below[node, c] bounds the potential of the node less that of c."""
        self._among: Floats = _nothing_known(categories)
        """among[c, d] bounds the potential of category d less that of c."""

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
            self.limits[0][node, category], self.limits[1][node, category] = low, high
            return [node]
        column = category - self._categories
        if lowered:
            self._bound_above(node, column, log(high))
        if raised:
            self._bound_below(node, column, -log(low))
        return self._read_off()

    def is_tight(self, node: int, within: float) -> bool:
        """Return whether most service times of a node are known, up to a factor."""
        both = zip(self.low[node], self.high[node], strict=True)
        tight = sum(high <= low * within for low, high in both)
        return 2 * tight >= len(self.low[node])

    def forget(self, node: int) -> None:
        """Drop what is known of one node; what followed from it for others still holds."""
        if self._product:
            self._above[node] = self._below[node] = inf
            self._read_off()
        else:
            for bounds, limits, unknown in zip(
                (self.low, self.high), self.limits, (0.0, inf), strict=True
            ):
                bounds[node] = [unknown] * self._categories
                limits[node] = unknown

    def forget_works(self) -> None:
        """Drop what is known of all categories' work; how fast nodes are among them still holds."""
        if not self._product:
            for node in range(len(self.low)):
                self.forget(node)
            return
        kept = (GENERATIONS - 1) * self._categories
        before = self._among[-kept:, -kept:]
        unknown = np.full((len(self.low), self._categories), inf)
        self._above = np.hstack((self._above[:, -kept:], unknown))
        self._below = np.hstack((self._below[:, -kept:], unknown))
        self._among = np.full((len(before) + self._categories,) * 2, inf)
        self._among[: len(before), : len(before)] = before
        self._among[len(before) :, len(before) :] = _nothing_known(self._categories)
        self._read_off()

    def _bound_above(self, node: int, column: int, length: float) -> None:
        """Close over a bound of a category's potential less a node's."""
        above, below, among = self._above, self._below, self._among
        if length + below[node, column] < -ROUNDING:
            raise Contradiction
        if length < above[node, column]:
            to_node = (above + below[node]).min(axis=1)
            to_node[node] = 0.0
            self._shorten(to_node, below[node], length + among[column], length + below[:, column])

    def _bound_below(self, node: int, column: int, length: float) -> None:
        """Close over a bound of a node's potential less a category's."""
        above, below, among = self._above, self._below, self._among
        if length + above[node, column] < -ROUNDING:
            raise Contradiction
        if length < below[node, column]:
            from_node = (below + above[node]).min(axis=1)
            from_node[node] = 0.0
            self._shorten(
                above[:, column], among[:, column], length + above[node], length + from_node
            )

    def _shorten(
        self, from_nodes: Floats, from_works: Floats, to_works: Floats, to_nodes: Floats
    ) -> None:
        """Close over a new link: how far all are from its beginning, and by it from all."""
        among = np.minimum(self._among, from_works[:, None] + to_works)
        above = np.minimum(self._above, from_nodes[:, None] + to_works)
        np.minimum(self._below, to_nodes[:, None] + from_works, out=self._below)
        self._among, self._above = among, above
        # Rounding may leave a cycle slightly below zero, which would grow at every pass.
        np.fill_diagonal(among, 0.0)

    def _read_off(self) -> list[int]:
        low = np.exp(-self._below[:, -self._categories :])
        high = np.exp(self._above[:, -self._categories :])
        differs = (low != self.limits[0]) | (high != self.limits[1])
        self.limits = low, high
        changed: list[int] = np.flatnonzero(differs.any(axis=1)).tolist()
        for node in changed:
            self.low[node], self.high[node] = low[node].tolist(), high[node].tolist()
        return changed


def _nothing_known(categories: int) -> Floats:
    among = np.full((categories, categories), inf)
    np.fill_diagonal(among, 0.0)
    return among
