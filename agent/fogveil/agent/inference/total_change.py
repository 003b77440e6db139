"""Which node or application has changed, when the totals are no longer what the estimates predict.

One change explains what follows it: a node that takes `factor` times as long, or an application at
all nodes. All of them are tried on the decisions since the change; the best is the explanation, if
it explains most of what is off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fogveil.agent.inference.transcript import Floats, Ints, Transcript

FACTORS = tuple(2.0 ** (step / 4) for step in range(-8, 9) if step)
"""By how much longer service may take: from a quarter to four times as long."""
EARLIER = (0, 8, 16, 32)
"""Decisions before it showed at which the change may have begun."""
EXPLAINS = 0.6
"""The share of the misfit that an explanation may leave."""


class Change(NamedTuple):
    """One node, or one category at all nodes, takes `factor` times as long."""

    node: int | None
    category: int | None
    factor: float


def find_change(
    transcript: Transcript, service: Floats, residuals: Floats, since: float, *, waiting: bool
) -> Change | None:
    """Return what explains the residuals (totals observed - predicted) at the decisions since then.

    `service` is the table[node, category] by which they were predicted; None: nothing explains
    them.
    """
    instants = transcript.times
    shown = int(np.searchsorted(instants, since))
    begins = [float(instants[max(shown - earlier, 0)]) for earlier in EARLIER]
    window = instants >= begins[-1]
    lines = [transcript.arrivals_at(node) for node in range(len(service))]

    def counts(node: int, factors: Sequence[float], since: float) -> Ints:
        arrivals, categories = lines[node]
        left = departures(arrivals, service[node][categories], np.array(factors)[categories], since)
        return np.asarray(
            np.searchsorted(arrivals, instants[window], side="right")
            - np.searchsorted(left, instants[window], side="right"),
            np.int64,
        )

    def departures(arrivals: Floats, times: Floats, factors: Floats, since: float) -> Floats:
        """Return when each job of a node leaves the count."""
        free, left = -np.inf, np.empty(len(arrivals))
        for place, (arrival, time, factor) in enumerate(zip(arrivals, times, factors, strict=True)):
            start = max(free, arrival)
            free = start + (time * factor if start >= since else time)
            left[place] = start if waiting else free
        return left

    nodes, categories = service.shape
    usual = [counts(node, [1.0] * categories, since) for node in range(nodes)]
    usually = 0.0 if window.all() else float(np.median(residuals[~window]))
    off = residuals[window] - usually
    best, least = None, EXPLAINS * float(np.abs(off).sum())
    for factor in FACTORS:
        changes = [Change(node, None, factor) for node in range(nodes)]
        changes += [Change(None, category, factor) for category in range(categories)]
        for change in changes:
            factors = [
                factor if change.category in (None, category) else 1.0
                for category in range(categories)
            ]
            changed = range(nodes) if change.node is None else (change.node,)
            for begin in begins:
                more = sum(counts(node, factors, begin) - usual[node] for node in changed)
                misfit = float(np.abs(off - more).sum())
                if misfit < least:
                    best, least = change, misfit
    return best
