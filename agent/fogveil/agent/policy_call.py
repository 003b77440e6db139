"""Calls a policy; an error in a user's policy becomes one sentence for that user."""

from __future__ import annotations

from operator import index

from fogveil.agent.policies import describe_error
from fogveil.agent.policy import Observation, Policy
from fogveil.core.errors import InputError


def call_place(policy: Policy, observation: Observation, nodes: int) -> int:
    """Return the node that the policy chooses, checked to be one of `nodes`."""
    try:
        node = index(policy.place(observation))
    except (Exception, SystemExit) as error:
        _blame_user_policy(policy, observation, error)
        raise
    if not 0 <= node < nodes:
        raise InputError(
            f"policy {type(policy).__name__} placed a workload on node {node}: "
            f"expected 0 to {nodes - 1}"
        )
    return node


def call_learn(policy: Policy, observation: Observation, node: int) -> None:
    """Pass on what was disclosed to a policy that decides ahead."""
    try:
        policy.learn(observation, node)
    except (Exception, SystemExit) as error:
        _blame_user_policy(policy, observation, error)
        raise


def _blame_user_policy(policy: Policy, observation: Observation, error: BaseException) -> None:
    kind = type(policy)
    if not kind.__module__.startswith("fogveil."):  # else it is a bug of ours
        raise InputError(
            f"policy {kind.__name__} failed at time {observation.time:.6g}: {describe_error(error)}"
        ) from error
