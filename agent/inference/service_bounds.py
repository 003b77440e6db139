"""Bounds of the service time of each (node, category), closed jointly where the model permits."""

from __future__ import annotations

from math import exp, inf, log

import numpy as np

WORTHWHILE = 0.01
ROUNDING = 1e-9


class Contradiction(Exception):
    """The observations rule the model out."""


class ServiceBounds:
    def __init__(self, nodes: int, categories: int, *, product: bool) -> None:
        self.low = [[0.0] * categories for _ in range(nodes)]
        self.high = [[inf] * categories for _ in range(nodes)]
        self._product = product
        self._nodes = nodes
        size = nodes + categories
        # distance[i, j] bounds x_j - x_i from above
        self._d = np.full((size, size), inf)
        np.fill_diagonal(self._d, 0.0)

    def tighten(self, node: int, category: int, low: float, high: float) -> list[int]:
        """Returns nodes whose bounds changed."""
        old_low, old_high = self.low[node][category], self.high[node][category]
        least = WORTHWHILE * (old_high - old_low) if old_high < inf else 0.0
        higher = low > old_low + (least if old_high < inf else 0.02 * old_low)
        lower = high < old_high - (least if old_high < inf else 0.0)
        if not (higher or lower):
            return []
        if higher:
            self.low[node][category] = low
        if lower:
            self.high[node][category] = high
        low, high = self.low[node][category], self.high[node][category]
        if low > high:
            if low > high * (1 + ROUNDING) + ROUNDING:
                raise Contradiction
            self.low[node][category] = low = high
        if not self._product:
            return [node]
        d, n, c = self._d, node, self._nodes + category
        # x_c - x_n <= log high ; x_n - x_c <= -log low
        if lower:
            self._shorten(n, c, log(high) if high > 0 else -inf)
        if higher and low > 0:
            self._shorten(c, n, -log(low))
        N = self._nodes
        hi = np.exp(d[:N, N:])
        lo = np.exp(-d[N:, :N].T)
        if (lo > hi * (1 + ROUNDING)).any():
            raise Contradiction
        hi = hi.tolist()
        lo = lo.tolist()
        changed = [
            i for i in range(N) if i == node or hi[i] != self.high[i] or lo[i] != self.low[i]
        ]
        self.high, self.low = hi, lo
        return changed

    def _shorten(self, a, b, w):
        d = self._d
        if w < d[a, b]:
            np.minimum(d, d[:, a, None] + (w + d[b]), out=d)
