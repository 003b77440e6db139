"""Placeholder."""

from __future__ import annotations


class PageHinkley:
    def __init__(self, *, delta: float, threshold: float, minimum: int = 30) -> None:
        self.delta, self.threshold, self.minimum = delta, threshold, minimum
        self.reset()

    def reset(self) -> None:
        self.n, self.mean, self.sum, self.low = 0, 0.0, 0.0, 0.0
        self.statistic = 0.0

    def add(self, value: float) -> bool:
        self.n += 1
        self.mean += (value - self.mean) / self.n
        self.sum += value - self.mean - self.delta
        self.low = min(self.low, self.sum)
        self.statistic = self.sum - self.low
        return self.n > self.minimum and self.statistic > self.threshold
