"""When providers answer: measured over twins, and not promised."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from statistics import fmean

import numpy as np
from hyperframe.frame import DataFrame, Frame

from fogveil.testbed.privacy.audit.findings import Finding, Verdict
from fogveil.testbed.privacy.audit.wire_log import Stream, WireLog
from fogveil.testbed.privacy.inspect.http2 import FRAME_HEADER

Delays = dict[str, list[float]]
"""By provider: the time of each answer relative to the mean of all providers' in its window."""


def answer_delays(log: WireLog, fogs: Sequence[str]) -> Delays:
    """Return how much later than the others each Fog provider answered, window by window.

    So a busy machine, which delays all of them alike, does not matter.
    """
    times = {c.callee: _data_times(c.down) for c in log.on("boundary") if c.callee in fogs}
    windows = min(map(len, times.values()), default=0)
    means = [fmean(at[window] for at in times.values()) for window in range(windows)]
    return {
        name: [at - mean for at, mean in zip(sent, means, strict=False)]
        for name, sent in times.items()
    }


def _data_times(stream: Stream) -> list[float]:
    """Return when each DATA frame was relayed."""
    content = memoryview(bytes(stream.content))
    ends = list(accumulate(size for _, size in stream.chunks))
    times, at = [], 0
    while at + FRAME_HEADER <= len(content):
        frame, size = Frame.parse_frame_header(content[at : at + FRAME_HEADER])
        at += FRAME_HEADER + size
        if isinstance(frame, DataFrame) and at <= len(content):
            times.append(stream.chunks[bisect_right(ends, at - 1)][0])
    return times


def compare_times(one: Delays, again: Delays, twin: Delays) -> Finding:
    """Compare each provider's answer times in the twin with those before, by Welch's t."""
    promise = "timing: does the time of an answer depend on a secret?"
    if not twin:
        return Finding(promise, Verdict.NOT_SHOWN, "no provider answered")
    scores = {name: welch_t(one[name] + again[name], twin[name]) for name in twin}
    largest = max(scores, key=lambda name: abs(scores[name]))
    same = max((welch_t(one[name], again[name]) for name in twin), key=abs)
    number = sum(map(len, twin.values()))
    evidence = (
        f"of {len(twin)} providers, {number:,} answers in the twin: Welch's t is largest for "
        f"{largest}, {scores[largest]:+.2f}; between runs with the same secrets it is "
        f"{same:+.2f}. Not promised."
    )
    details = tuple(f"{name}: t = {score:+.2f}" for name, score in scores.items())
    return Finding(promise, Verdict.MEASURED, evidence, details)


def welch_t(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Welch's t, or 0 if neither sample varies."""
    from scipy.stats import ttest_ind

    if not np.ptp(one) and not np.ptp(other):
        return 0.0
    return float(ttest_ind(one, other, equal_var=False).statistic)
