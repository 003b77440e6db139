"""Page and Hinkley's test of whether the mean of a stream has risen or fallen since it began.

The stream is whatever the agent can see and expects to be steady: how far off its predictions are,
a reward, a count. Hand-written, as it is one recursion; tests compare it with the textbook's sums.
"""

from __future__ import annotations


class PageHinkley:
    """Detects that the mean of a stream has changed, upwards or downwards.

    For each direction it adds up how far the values are beyond their mean so far, less `delta`;
    the statistic is how far that sum has risen above its least value. So changes below `delta`
    are tolerated, and `threshold` weighs false alarms against delay.

    >>> test = PageHinkley(delta=0.1, threshold=3.0, minimum=5)
    >>> [test.add(value) for value in (1.0, 1.1, 0.9, 1.0, 1.0, 1.05)]
    [False, False, False, False, False, False]
    >>> [test.add(3.0) for _ in range(3)]
    [False, True, True]
    >>> test.rises, round(test.statistic, 2), test.reason
    (True, 4.23, 'the mean rises: statistic 4.23 above 3 after 9 values, mean 1.67')
    """

    def __init__(self, *, delta: float, threshold: float, minimum: int = 30) -> None:
        self.delta = delta
        """The change of the mean that is tolerated, in the stream's unit."""
        self.threshold = threshold
        """The statistic above which the test fires, in the stream's unit."""
        self.minimum = minimum
        """Values before which it never fires."""
        self.reset()

    def reset(self) -> None:
        """Begin anew: the next value is the first of its stream."""
        self.values = 0
        """Values so far."""
        self.mean = 0.0
        """Their mean."""
        self.rise = 0.0
        """The statistic of an increase."""
        self.fall = 0.0
        """The statistic of a decrease."""

    @property
    def statistic(self) -> float:
        """The larger of the two directions' statistics."""
        return max(self.rise, self.fall)

    @property
    def rises(self) -> bool:
        """Whether the mean rises, rather than falls."""
        return self.rise >= self.fall

    @property
    def reason(self) -> str:
        """What the statistic says, for a log or a record."""
        verb = "rises" if self.rises else "falls"
        side = "above" if self.statistic > self.threshold else "not above"
        return (
            f"the mean {verb}: statistic {self.statistic:.3g} {side} {self.threshold:g} "
            f"after {self.values} values, mean {self.mean:.3g}"
        )

    def add(self, value: float) -> bool:
        """Add a value of the stream; return whether the mean has changed."""
        self.values += 1
        self.mean += (value - self.mean) / self.values
        self.rise = max(self.rise + value - self.mean - self.delta, 0.0)
        self.fall = max(self.fall - value + self.mean - self.delta, 0.0)
        return self.values >= self.minimum and self.statistic > self.threshold
