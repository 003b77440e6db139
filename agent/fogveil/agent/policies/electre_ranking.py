"""ELECTRE III as Roy published it: alternatives compared in pairs, then distilled into a ranking.

Written out because `electre-queue` ranks at every decision (hot path); tests compare it with mcda.

A criterion supports "a is at least as good as b" (concordance) or objects (discordance);
credibility combines both. Two distillations, from the top and from the bottom, give an order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

ALPHA = -0.15
BETA = 0.30
"""Roy's distillation threshold: s(λ) = α·λ + β."""

# Credibilities are compared for equality. Weights summed in another order differ in the last
# bits; after rounding they tie, as they do on paper.
_DIGITS = 12


class Criterion(NamedTuple):
    """A criterion's weight and its thresholds q ≤ p < v, in the criterion's own unit."""

    weight: float
    indifference: float
    preference: float
    veto: float = math.inf
    maximise: bool = True


# A claim that one alternative outranks another: its credibility, the winner, the loser, and
# whether it is so much more credible than the reverse claim that it counts as a preference.
# A tuple, not a class: a decision creates 90 of them.
_Claim = tuple[float, int, int, bool]


def partial_concordance(values: Matrix, criterion: Criterion) -> Matrix:
    """Return how far one criterion supports that a is at least as good as b, as `[a, b]`."""
    lead = _lead(values, maximise=criterion.maximise)
    return 1.0 - _ramp(lead, criterion.indifference, criterion.preference)


def partial_discordance(values: Matrix, criterion: Criterion) -> Matrix:
    """Return how far one criterion objects to a being at least as good as b, as `[a, b]`."""
    lead = _lead(values, maximise=criterion.maximise)
    return _ramp(lead, criterion.preference, criterion.veto)


def credibility(table: Matrix, criteria: Sequence[Criterion]) -> Matrix:
    """Return σ(a, b) as `[a, b]`, from one row per alternative and one column per criterion."""
    columns = list(zip(np.asarray(table, dtype=float).T, criteria, strict=True))
    return outranking(
        np.array([partial_concordance(values, criterion) for values, criterion in columns]),
        np.array([partial_discordance(values, criterion) for values, criterion in columns]),
        np.array([criterion.weight for criterion in criteria]),
    )


def outranking(concordances: Matrix, discordances: Matrix, weights: Matrix) -> Matrix:
    """Return σ(a, b) from partial indices as `[criterion, a, b]`.

    Only criteria whose discordance exceeds the concordance weaken it.
    """
    concordance = np.tensordot(weights / weights.sum(), concordances, axes=1)
    against = discordances > concordance
    weakened = np.divide(
        1.0 - discordances, 1.0 - concordance, out=np.ones_like(discordances), where=against
    )
    sigma: Matrix = np.round(concordance * weakened.prod(axis=0), _DIGITS)
    return sigma


def distil(sigma: Matrix, *, ascending: bool = False) -> list[list[int]]:
    """Return the classes of one distillation, the best first.

    The descending one takes the best of what is left again and again, the ascending one the worst.
    """
    return _distil(len(sigma), _claims(sigma), ascending=ascending)


def rank(sigma: Matrix) -> Matrix:
    """Return each alternative's place; the lowest is the best, equal places are a tie.

    The place is the mean of the places in the two distillations. So it is a total preorder that
    keeps every preference of Roy's final partial one, their intersection: an alternative that is
    better in one of them and not worse in the other is better here. Incomparable ones are
    ordered by the mean, or tie.
    """
    claims = _claims(sigma)
    places = np.zeros(len(sigma))
    for ascending in (False, True):
        for place, members in enumerate(_distil(len(sigma), claims, ascending=ascending), start=1):
            for member in members:
                places[member] += place / 2
    return places


def _lead(values: Matrix, *, maximise: bool) -> Matrix:
    """Return by how much b is better than a."""
    return values[None, :] - values[:, None] if maximise else values[:, None] - values[None, :]


def _ramp(lead: Matrix, start: float, end: float) -> Matrix:
    """Return 0 up to `start`, 1 from `end`, linear between; a step where both are equal."""
    if end > start:
        return np.minimum(np.maximum((lead - start) / (end - start), 0.0), 1.0)
    return (lead > start).astype(np.float64)


def _claims(sigma: Matrix) -> list[_Claim]:
    """Return the claims by falling credibility; zero is left out, no level ever reaches it."""
    sigma = np.array(sigma, dtype=float)
    np.fill_diagonal(sigma, 0.0)
    margin = sigma - sigma.T - (ALPHA * sigma + BETA)
    winners, losers = np.nonzero(sigma)
    values = sigma[winners, losers]
    strict = np.round(margin[winners, losers], _DIGITS) > 0.0
    order = np.argsort(-values, kind="stable")
    columns = (column[order].tolist() for column in (values, winners, losers, strict))
    return list(zip(*columns, strict=True))


def _distil(count: int, claims: list[_Claim], *, ascending: bool) -> list[list[int]]:
    best: Callable[[Iterable[int]], int] = min if ascending else max
    rest = list(range(count))
    classes = []
    while rest:
        distillate = _distillate(rest, claims, best)
        classes.append(distillate)
        rest = [member for member in rest if member not in distillate]
        claims = _among(rest, claims)
    return classes[::-1] if ascending else classes


def _distillate(
    members: list[int], claims: list[_Claim], best: Callable[[Iterable[int]], int]
) -> list[int]:
    """Narrow the members down, at ever lower levels λ, to one or to an indistinguishable group."""
    level = claims[0][0] if claims else 0.0
    while level > 0.0 and len(members) > 1:
        level, qualification = _qualify(members, claims, level)
        top = best(qualification.values())
        kept = [member for member in members if qualification[member] == top]
        if 1 < len(kept) < len(members):
            claims = _among(kept, claims)
        members = kept
    return members


def _qualify(
    members: list[int], claims: list[_Claim], level: float
) -> tuple[float, dict[int, int]]:
    """Return the next level, and per member its wins above that level minus its losses."""
    # The next level is the highest credibility below this cut; claims at the cut still count.
    cut = round(level - (ALPHA * level + BETA), _DIGITS)
    qualification = dict.fromkeys(members, 0)
    for sigma, winner, loser, strict in claims:
        if sigma < cut:
            return sigma, qualification
        if strict:
            qualification[winner] += 1
            qualification[loser] -= 1
    return 0.0, qualification


def _among(members: list[int], claims: list[_Claim]) -> list[_Claim]:
    inside = set(members)
    return [claim for claim in claims if claim[1] in inside and claim[2] in inside]
