"""Scores of inferred service times, and guesses without observation to compare them with.

The error is the mean of |inferred / true - 1| over nodes and applications. It is absolute:
observations and placements are dated in simulated time, so no scale is left free. The rank
correlation is Spearman's, of inferred and true speeds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fogveil.agent.inference.transcript import Floats
from fogveil.testbed.scenario.world import World, build_world


class Score(NamedTuple):
    """How near an estimate comes to the truth."""

    error: float
    rank: float
    """The rank correlation of speeds."""
    per_node: list[float]
    """The error of each node."""


def true_service(world: World) -> Floats:
    """Return the mean service time of each application at each node, [node, category]."""
    return np.array([[work / fog.ipt for work in fog.instructions] for fog in world.fogs])


def guess_prior(world: World) -> Floats:
    """Guess one speed for every node: the one whose mean error is least over the nodes' speeds.

    The speeds themselves are known to this guess, but not which node has which.
    """
    speeds = np.sort([fog.ipt for fog in world.fogs])
    # The error of a guess g is the mean of |speed / g - 1|, which is least at a weighted median.
    errors = np.abs(speeds[None, :] / speeds[:, None] - 1).mean(axis=1)
    guess = speeds[errors.argmin()]
    return np.array([[work / guess for work in fog.instructions] for fog in world.fogs])


def guess_topology(world: World) -> Floats:
    """Guess that speeds follow public centrality, as in the scenario before they are permuted.

    The speeds themselves are known to this guess, but not which node has which.
    """
    fog = world.scenario.fog.model_copy(update={"assignment": "centrality"})
    return true_service(build_world(world.scenario.model_copy(update={"fog": fog})))


def score(service: Floats, truth: Floats) -> Score:
    """Compare inferred service times with the true ones."""
    errors = np.abs(service / truth - 1)
    rank = rank_correlation(log_speeds(service), log_speeds(truth))
    return Score(float(errors.mean()), rank, errors.mean(axis=1).tolist())


def log_speeds(service: Floats) -> Floats:
    """Return the logarithm of each node's speed, up to a constant."""
    speeds: Floats = -np.log(service).mean(axis=1)
    return speeds


def rank_correlation(one: Floats, other: Floats) -> float:
    """Return Spearman's rank correlation, or 0 if one side does not distinguish nodes.

    Values that differ by a rounding error count as equal.

    >>> rank_correlation(np.array([1.0, 2.0, 9.0]), np.array([5.0, 6.0, 7.0]))
    1.0
    """
    from scipy.stats import spearmanr

    rounded = one.round(12), other.round(12)
    if not all(np.ptp(values) for values in rounded):
        return 0.0
    return float(spearmanr(*rounded).statistic)
