"""When the world has changed, by what an agent can see: one signal, tested for drift.

Values of neighbouring decisions are much alike, and the test would take each for a new witness. So
they are averaged over blocks. What a block deviates by is learned from the first ones; in this unit
two Page-Hinkley tests follow the signal, one for a rise and one for a fall.
"""

from __future__ import annotations

from statistics import fmean, stdev
from typing import NamedTuple

from fogveil.agent.inference.drift import PageHinkley
from fogveil.agent.learning.relearning import AdaptationHyperparameters

SMALLEST_DEVIATION = 1e-9
"""A signal that never moved would make every move a drift: any one is far above the threshold."""


class Drift(NamedTuple):
    """What a test said when it fired."""

    direction: str
    statistic: float
    threshold: float


class DriftWatch:
    """Follows one signal.

    >>> watch = DriftWatch(AdaptationHyperparameters(drift_block=2, drift_reference=4))
    >>> calm, changed = [1.0, 2.0, 2.0, 1.0, 1.0, 1.0, 2.0, 2.0], [20.0, 20.0]
    >>> [watch.add(value) for value in calm] == [None] * 8
    True
    >>> watch.add(20.0), watch.add(20.0).direction
    (None, 'rises')
    """

    def __init__(self, hyperparameters: AdaptationHyperparameters) -> None:
        self._hyperparameters = hyperparameters
        self.reset()

    def reset(self) -> None:
        """Begin to learn anew how the signal is distributed."""
        self._block: list[float] = []
        self._reference: list[float] = []
        self._tests: dict[str, PageHinkley] = {}
        self._deviation = 1.0

    def add(self, value: float) -> Drift | None:
        """Add the signal of a decision; return the drift if there is one."""
        self._block.append(value)
        if len(self._block) < self._hyperparameters.drift_block:
            return None
        mean = fmean(self._block)
        self._block.clear()
        if self._tests:
            return self._test(mean)
        self._reference.append(mean)
        if len(self._reference) == self._hyperparameters.drift_reference:
            self._begin_tests()
        return None

    def _begin_tests(self) -> None:
        chosen = self._hyperparameters
        self._deviation = max(stdev(self._reference), SMALLEST_DEVIATION)
        for direction in ("rises", "falls"):
            self._tests[direction] = PageHinkley(
                delta=chosen.drift_tolerance,
                threshold=chosen.drift_threshold,
                minimum=chosen.drift_reference,
            )
        for mean in self._reference:  # none can fire yet: they are not more than its minimum
            self._test(mean)

    def _test(self, mean: float) -> Drift | None:
        found = None
        for direction, test in self._tests.items():
            sign = 1.0 if direction == "rises" else -1.0
            if test.add(sign * mean / self._deviation) and found is None:
                found = Drift(direction, test.statistic, self._hyperparameters.drift_threshold)
        return found
