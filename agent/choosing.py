"""Asking a policy: what goes wrong in somebody's own policy becomes one sentence."""

from __future__ import annotations

from operator import index

from agent.policies import spell
from agent.policy import Observation, Policy
from fogveil.errors import InputError


def choose(policy: Policy, seen: Observation, nodes: int) -> int:
    """Return the node that the policy places a workload on."""
    try:
        node = index(policy.place(seen))
    except (Exception, SystemExit) as error:
        _explain(policy, seen, error)
        raise
    if not 0 <= node < nodes:
        raise InputError(
            f"policy {type(policy).__name__} placed a workload on node {node}: "
            f"expected 0 to {nodes - 1}"
        )
    return node


def learn(policy: Policy, seen: Observation, node: int) -> None:
    """Let a policy that decides ahead take in what was disclosed."""
    try:
        policy.learn(seen, node)
    except (Exception, SystemExit) as error:
        _explain(policy, seen, error)
        raise


def _explain(policy: Policy, seen: Observation, error: BaseException) -> None:
    kind = type(policy)
    if not kind.__module__.startswith("agent."):  # else it is a mistake of ours
        raise InputError(
            f"policy {kind.__name__} failed at time {seen.time:.6g}: {spell(error)}"
        ) from error
