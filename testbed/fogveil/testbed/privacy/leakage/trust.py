"""How far an attacker trusts its estimate: it rehearses, and shrinks to a guess accordingly.

After few decisions an estimate is worse than a guess, and the attacker cannot see that from one
transcript: many service times explain it. But it can rehearse. It lets the same policy place as
often in worlds of its own, in which it has distributed the speeds at random, infers, compares, and
learns from that how far to trust an estimate after so many decisions. Like the guesses that it is
compared with, it knows the speeds that there are, but not which node has which: so it mistrusts an
estimate whose speeds are strange. The truth that is to be inferred has no part in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from fogveil.agent.inference.transcript import Floats

WEIGHTS = tuple(number / 20 for number in range(20, -1, -1))
FACTORS = (np.inf, 4.0, 2.0, 1.5, 1.25)
LIMITS = (np.inf, 0.8, 0.4, 0.3, 0.2, 0.15, 0.1, 0.05)

LEAST_GAIN = 0.1
"""The share of the guess's error that trust must save in rehearsals."""
CHANCE = 2.0
"""Standard errors by which the gain of trust must differ from none."""


class Prior(NamedTuple):
    """What is known without observation: service times, [node, category]."""

    guess: Floats
    """The best guess for every node."""
    values: Floats
    """Those that there are, in order for each category, but not at which node."""

    def strangeness(self, estimate: Floats) -> float:
        """Return how far an estimate's values are from those that there are, in logarithms.

        >>> here = np.array([[1.0], [2.0]])
        >>> Prior(here, here).strangeness(np.array([[2.0], [1.0]]))
        0.0
        """
        return float(np.abs(np.log(np.sort(estimate, axis=0) / self.values)).mean())


class Rehearsed(NamedTuple):
    """One rehearsal after some number of decisions: service times, [node, category]."""

    estimate: Floats
    prior: Prior
    truth: Floats
    """Which the attacker knows, for the world is its own."""


class Trust(NamedTuple):
    """How an estimate is combined with a guess, in logarithms."""

    weight: float = 1.0
    """Of the estimate; 0 leaves the guess."""
    factor: float = np.inf
    """By which an estimate differs from the guess at most."""
    limit: float = np.inf
    """An estimate that is stranger is not trusted at all."""

    def shrink(self, estimate: Floats, prior: Prior) -> Floats:
        """Return service times between the guess and the estimate.

        >>> one = np.array([[1.0, 1.0]])
        >>> Trust(0.5, 4.0).shrink(np.array([[1.0, 100.0]]), Prior(one, one)).tolist()
        [[1.0, 2.0]]
        """
        if prior.strangeness(estimate) > self.limit:
            return prior.guess
        bound = np.log(self.factor)
        ratio = np.clip(np.log(estimate / prior.guess), -bound, bound)
        shrunk: Floats = prior.guess * np.exp(self.weight * ratio)
        return shrunk


def learn_trust(rehearsals: Sequence[Rehearsed]) -> Trust:
    """Return how far to trust an estimate; where trust gains no more than chance, not at all.

    The best of many ways always looks good in the rehearsals it was chosen by. So what trust gains
    is measured by rehearsals that had no part in the choice, each held out in turn.
    """
    gains = [
        _error(each.prior.guess, each.truth)
        - _error(_best_of(others).shrink(each.estimate, each.prior), each.truth)
        for number, each in enumerate(rehearsals)
        if (others := [*rehearsals[:number], *rehearsals[number + 1 :]])
    ]
    if gains and np.mean(gains) <= CHANCE * np.std(gains) / len(gains) ** 0.5:
        return Trust(0.0)
    return _best_of(rehearsals)


def _best_of(rehearsals: Sequence[Rehearsed]) -> Trust:
    """Return the trust of least mean error among those that never did worse than the guess."""
    guessed = [_error(each.prior.guess, each.truth) for each in rehearsals]
    best = Trust(0.0), (1 - LEAST_GAIN) * float(np.mean(guessed))
    for values in product(WEIGHTS, FACTORS, LIMITS):
        trust = Trust(*values)
        total = 0.0
        for each, guess in zip(rehearsals, guessed, strict=True):
            error = _error(trust.shrink(each.estimate, each.prior), each.truth)
            if error > guess:
                break
            total += error
        else:
            if total / len(rehearsals) < best[1]:
                best = trust, total / len(rehearsals)
    return best[0]


def _error(service: Floats, truth: Floats) -> float:
    return float(np.abs(service / truth - 1).mean())
