"""The rewards of the environment: three by name, or a function of the user's.

A reward is paid at the step that places a workload, by what is then known of it. The delay of a
workload is known then: nodes that run ahead of the run tell when it will be served by the
workloads placed so far. It changes only if a later one gets in before it (by a shorter way, or by
being shorter where the shortest is served first), and "marginal" pays for that change at the step
that causes it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from numbers import Real
from typing import Any, NamedTuple

from fogveil.agent.learning.parl import queue_reward
from fogveil.agent.policy import Observation
from fogveil.core.errors import InputError


class Outcome(NamedTuple):
    """What a placement led to, as the experimenter knows it: the argument of a reward function."""

    seen: Observation
    """The decision: time, job, cluster, category, and what the level permits of the nodes."""
    node: int
    """The node that was chosen."""
    latency: float
    """From the cluster to the node."""
    waiting: float
    service: float
    delay: float
    """Of the workload's Fog loop: latency, waiting, service and the way back."""
    delay_to_others: float
    """What the placement adds to the delays of workloads placed before, together."""
    queued_before: int
    """Jobs queued at all nodes when the decision was taken, the Cloud's included."""
    queued_after: int
    """The same at the next decision; at the last one of an episode, `queued_before`."""
    last: bool
    """Whether it was the last decision of the episode."""


RewardFunction = Callable[[Outcome], float]


def queue(outcome: Outcome) -> float:
    """Return the paper's reward: the decrease of queued jobs until the next decision."""
    return float(queue_reward(outcome.queued_before, outcome.queued_after))


def delay(outcome: Outcome) -> float:
    """Return the negative delay of the workload's own Fog loop."""
    return -outcome.delay


def marginal(outcome: Outcome) -> float:
    """Return the negative delay that the placement adds to the sum over all workloads placed.

    The rewards of an episode add up to the negative delay of all its workloads.
    """
    return -(outcome.delay + outcome.delay_to_others)


REWARDS: dict[str, RewardFunction] = {"queue": queue, "delay": delay, "marginal": marginal}


def find_reward(reward: str | RewardFunction) -> RewardFunction:
    """Return the reward function of a name, or the user's own."""
    if callable(reward):
        return reward
    if reward not in REWARDS:
        raise InputError(
            f"no reward is called {reward!r}: expected one of {', '.join(REWARDS)}, "
            "or a function of an Outcome"
        )
    return REWARDS[reward]


def checked_reward(value: Any) -> float:
    """Return what a reward function returned; refuse what is no number."""
    if not isinstance(value, Real) or not isfinite(value):
        raise InputError(f"the reward function returned {value!r}: expected a finite number")
    return float(value)
