"""When the world has changed, by what an agent can see: one signal, tested for drift.

Values of neighbouring decisions are much alike, and the test would take each for a new witness. So
they are averaged over blocks. By how much blocks deviate is learned from the first ones, and in
this unit the test of Page and Hinkley follows the signal.
"""

from __future__ import annotations

from statistics import fmean, stdev
from typing import NamedTuple

from fogveil.agent.inference.drift import PageHinkley
from fogveil.agent.learning.relearning import AdaptationHyperparameters

SMALLEST_DEVIATION = 0.1
"""Jobs: where hardly any ever wait, the first one that does is no drift yet."""


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
        self._test: PageHinkley | None = None
        self._deviation = 1.0

    def add(self, value: float) -> Drift | None:
        """Add the signal of a decision; return the drift if there is one."""
        self._block.append(value)
        if len(self._block) < self._hyperparameters.drift_block:
            return None
        mean = fmean(self._block)
        self._block.clear()
        if self._test is None:
            self._learn(mean)
            return None
        if not self._test.add(mean / self._deviation):
            return None
        direction = "rises" if self._test.rises else "falls"
        return Drift(direction, self._test.statistic, self._test.threshold)

    def _learn(self, mean: float) -> None:
        """Begin the test once the blocks of the reference are complete; they are its first."""
        chosen = self._hyperparameters
        self._reference.append(mean)
        if len(self._reference) < chosen.drift_reference:
            return
        self._deviation = max(stdev(self._reference), SMALLEST_DEVIATION)
        self._test = PageHinkley(
            delta=chosen.drift_tolerance,
            threshold=chosen.drift_threshold,
            minimum=chosen.drift_reference + 1,
        )
        for known in self._reference:
            self._test.add(known / self._deviation)
