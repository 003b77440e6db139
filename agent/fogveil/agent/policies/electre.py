"""ELECTRE III over the nodes' resources (level `full`), without and with their queues."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fogveil.agent.policies import electre_ranking as electre
from fogveil.agent.policies.electre_ranking import Matrix
from fogveil.agent.policy import AgentView, Level, Observation, Policy

MAXIMISED = {"ipt", "ram", "bandwidth"}

QUEUE_FLOOR = 10.0
"""The least range, in jobs, that the thresholds of `queue` are shares of.

The other ranges are constants of the scenario. The range of the queues is often a single job;
shares of that would make any difference a strong preference, and a veto too.
"""


class _Partials(NamedTuple):
    """Partial indices of each pair of nodes, as `[criterion, a, b]`, and the weights."""

    concordances: Matrix
    discordances: Matrix
    weights: Matrix


class Electre(Policy):
    """Rank the nodes once per cluster and category; alternate among those that tie for first."""

    needs = Level.FULL

    def reset(self) -> None:
        """Drop the rankings and restart the turns."""
        self._settings = self.view.settings["electre"]
        self._ranked: dict[tuple[int, int], list[int]] = {}
        self._turns: Counter[tuple[int, int]] = Counter()
        self._ranked_by: object = None
        """The resources and the nodes that were ranked."""

    def update(self, view: AgentView) -> None:
        """Rank anew by other latencies."""
        super().update(view)
        self._ranked_by = None

    def place(self, observation: Observation) -> int:
        """Return the next of the nodes ranked first."""
        assert observation.load is not None
        known = observation.load.expected, observation.load.ipt, observation.available
        if known != self._ranked_by:
            self._drop_rankings()
            self._ranked_by = known
        key = observation.cluster, observation.category
        first = self._first(observation)
        turn = self._turns[key]
        self._turns[key] += 1
        place = first[turn % len(first)]
        return place if observation.available is None else observation.available[place]

    def _drop_rankings(self) -> None:
        self._ranked.clear()

    def _first(self, observation: Observation) -> list[int]:
        """Return the places of the best among the nodes that take jobs."""
        key = observation.cluster, observation.category
        if key not in self._ranked:
            self._ranked[key] = _best(self._compare(observation))
        return self._ranked[key]

    def _compare(self, observation: Observation) -> _Partials:
        settings = self._settings["criteria"]
        nodes = slice(None) if observation.available is None else list(observation.available)
        values = [np.array(self._values(each["name"], observation))[nodes] for each in settings]
        criteria = [_scaled(*both) for both in zip(settings, values, strict=True)]
        return _partials(values, criteria)

    def _values(self, name: str, observation: Observation) -> Sequence[float]:
        view, load, cluster, category = (
            self.view,
            observation.load,
            observation.cluster,
            observation.category,
        )
        assert load is not None
        match name:
            case "service":
                return load.expected[category]
            case "ipt":
                return load.ipt
            case "ram":
                return load.ram
            case "latency":
                both = zip(view.up[cluster][category], view.down[cluster][category], strict=True)
                return [up + down for up, down in both]
            case "bandwidth":
                return view.bandwidth[cluster]
            case _:
                return view.hops[cluster]


class ElectreQueue(Electre):
    """Rank the nodes at each decision, their queue lengths among the criteria."""

    def reset(self) -> None:
        """Drop the static criteria's indices and restart the turns."""
        super().reset()
        self._static: dict[tuple[int, int], _Partials] = {}

    def _drop_rankings(self) -> None:
        self._static.clear()

    def _first(self, observation: Observation) -> list[int]:
        key = observation.cluster, observation.category
        if key not in self._static:
            self._static[key] = self._compare(observation)
        queues = np.array(observation.counts, dtype=float)
        if observation.available is not None:
            queues = queues[list(observation.available)]
        queue = _partials([queues], [_scaled(self._settings["queue"], queues, QUEUE_FLOOR)])
        both = zip(self._static[key], queue, strict=True)
        return _best(_Partials._make(np.concatenate(pair) for pair in both))


def _scaled(settings: Mapping[str, Any], values: Matrix, floor: float = 0.0) -> electre.Criterion:
    """Return a criterion whose thresholds are the scenario's shares of the nodes' range."""
    spread = max(float(values.max() - values.min()), floor)
    veto = settings["veto"]
    return electre.Criterion(
        weight=settings["weight"],
        indifference=settings["indifference"] * spread,
        preference=settings["preference"] * spread,
        veto=math.inf if veto is None else veto * spread,
        maximise=settings["name"] in MAXIMISED,
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
