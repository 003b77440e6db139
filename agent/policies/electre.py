"""ELECTRE III over what full disclosure tells of the nodes, without and with their queues."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from agent import electre
from agent.electre import Matrix
from agent.policy import Level, Observation, Policy

MAXIMISED = {"ipt", "ram", "bandwidth"}

QUEUE_FLOOR = 10.0
"""The least range, in jobs, that the thresholds of `queue` are shares of.

The other ranges are facts of the scenario. That of the queues is often a single job, and as a
share of that any difference would be a strong preference, and a veto too.
"""


class _Partials(NamedTuple):
    """What each criterion says of each pair of nodes, as `[criterion, a, b]`."""

    concordances: Matrix
    discordances: Matrix
    weights: Matrix


class Electre(Policy):
    """Rank the nodes once for each cluster and category; take those that tie for first in turn."""

    needs = Level.FULL

    def reset(self) -> None:
        """Forget the rankings and begin the turns anew."""
        self._settings = self.view.settings["electre"]
        self._ranked: dict[tuple[int, int], list[int]] = {}
        self._turns: Counter[tuple[int, int]] = Counter()

    def place(self, seen: Observation) -> int:
        """Return the node of the first place."""
        key = seen.cluster, seen.category
        first = self._first(seen)
        turn = self._turns[key]
        self._turns[key] += 1
        return first[turn % len(first)]

    def _first(self, seen: Observation) -> list[int]:
        key = seen.cluster, seen.category
        if key not in self._ranked:
            self._ranked[key] = _best(self._compare(seen))
        return self._ranked[key]

    def _compare(self, seen: Observation) -> _Partials:
        given = self._settings["criteria"]
        values = [np.array(self._values(criterion["name"], seen)) for criterion in given]
        criteria = [_scaled(*both) for both in zip(given, values, strict=True)]
        return _partials(values, criteria)

    def _values(self, name: str, seen: Observation) -> Sequence[float]:
        view, load, cluster, category = self.view, seen.load, seen.cluster, seen.category
        assert load is not None
        match name:
            case "service":
                return load.expected[category]
            case "ipt":
                return load.ipt
            case "ram":
                return load.ram
            case "latency":
                ways = zip(view.up[cluster][category], view.down[cluster][category], strict=True)
                return [up + down for up, down in ways]
            case "bandwidth":
                return view.bandwidth[cluster]
            case _:
                return view.hops[cluster]


class ElectreQueue(Electre):
    """Rank the nodes at each decision, their queue lengths among the criteria."""

    def reset(self) -> None:
        """Forget what the static criteria said and begin the turns anew."""
        super().reset()
        self._static: dict[tuple[int, int], _Partials] = {}

    def _first(self, seen: Observation) -> list[int]:
        key = seen.cluster, seen.category
        if key not in self._static:
            self._static[key] = self._compare(seen)
        queues = np.array(seen.counts, dtype=float)
        queue = _partials([queues], [_scaled(self._settings["queue"], queues, QUEUE_FLOOR)])
        both = zip(self._static[key], queue, strict=True)
        return _best(_Partials._make(np.concatenate(pair) for pair in both))


def _scaled(given: Mapping[str, Any], values: Matrix, floor: float = 0.0) -> electre.Criterion:
    """Turn the scenario's shares of the range over the nodes into thresholds."""
    spread = max(float(values.max() - values.min()), floor)
    veto = given["veto"]
    return electre.Criterion(
        weight=given["weight"],
        indifference=given["indifference"] * spread,
        preference=given["preference"] * spread,
        veto=math.inf if veto is None else veto * spread,
        maximise=given["name"] in MAXIMISED,
    )


def _partials(values: Sequence[Matrix], criteria: Sequence[electre.Criterion]) -> _Partials:
    columns = list(zip(values, criteria, strict=True))
    return _Partials(
        np.array([electre.partial_concordance(*column) for column in columns]),
        np.array([electre.partial_discordance(*column) for column in columns]),
        np.array([criterion.weight for criterion in criteria]),
    )


def _best(partials: _Partials) -> list[int]:
    places = electre.rank(electre.outranking(*partials))
    first: list[int] = np.flatnonzero(places == places.min()).tolist()
    return first
