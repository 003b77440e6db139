"""A test of whether a node has become faster or slower than it was learned to be.

Page's test on likelihoods: how much likelier is a job's service if the node is `FACTOR` times as
fast, or as slow, as believed? The logarithms of the ratio are added up, never below zero; a long
run of evidence for a change makes the sum large. The service is known between two counts only, and
the mean it is compared with is uncertain: both are part of the likelihoods, so the test is as right
for random service as for constant one, where few jobs suffice.
"""

from __future__ import annotations

from math import inf, log

from fogveil.agent.inference.spread import GREATEST, share_between

FACTOR = 2.0
"""The change that is tested for."""
THRESHOLD = 12.0
"""The evidence, as a logarithm of the ratio, at which a node has changed."""
MOST = 2.0
"""The most that a single job may add: one outlier is no change."""
LEAST_LIKELY = 1e-6
"""A likelihood below this is a rounding error of the approximation."""
HEAVIEST = 1.9
"""The variance of service above which its tail is not a gamma's, and a few jobs tell nothing."""
SETTLED = 0.1
"""The variance of a believed mean above which the belief is still being learned."""


class SpeedTest:
    """Weighs for one node whether jobs take longer or shorter than believed.

    >>> test = SpeedTest()
    >>> [test.add(0.05, 0.01, 0.45, 0.55) for _ in range(6)]
    [None, None, None, None, None, 0.5]
    >>> any(test.add(0.05, 0.01, 0.9, 1.1) for _ in range(100))
    False
    """

    def __init__(self) -> None:
        self.slower = 0.0
        """Evidence that service takes longer."""
        self.faster = 0.0
        """Evidence that it takes shorter."""

    def add(self, variance: float, unsettled: float, low: float, high: float = inf) -> float | None:
        """Add a job's service, between two bounds; return by which factor it takes longer now.

        All is relative to the believed mean: the variance of service, that of the belief itself,
        and the bounds. None: there is no sufficient evidence of a change.
        """
        if unsettled > SETTLED:
            self.slower = self.faster = 0.0
            return None
        variance = min(variance + unsettled, GREATEST)
        usual = log(max(share_between(variance, low, high), LEAST_LIKELY))
        slower = log(max(share_between(variance, low / FACTOR, high / FACTOR), LEAST_LIKELY))
        faster = log(max(share_between(variance, low * FACTOR, high * FACTOR), LEAST_LIKELY))
        self.slower = max(self.slower + min(slower - usual, MOST), 0.0)
        self.faster = max(self.faster + min(faster - usual, MOST), 0.0)
        if max(self.slower, self.faster) < THRESHOLD:
            return None
        factor = FACTOR if self.slower > self.faster else 1 / FACTOR
        self.slower = self.faster = 0.0
        return factor
