"""Calls a policy; an error in a user's policy becomes one sentence for that user."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from operator import index
from threading import current_thread, main_thread
from types import FrameType

from fogveil.agent.policy import LatencyChange, Observation, Policy
from fogveil.agent.policy_errors import describe_error, policy_error
from fogveil.core.errors import InputError

TICKS = 4
"""How often a call is looked at in the time that it may take."""


class _TooLongError(BaseException):
    """Raised inside a policy that does not return; a policy's `except Exception` lets it pass."""


class _Watch:
    """The call that a policy is in, for the alarm that ends one which does not return."""

    call: Observation | None = None
    seen: Observation | None = None
    since = 0.0


_watch = _Watch()


def call_place(policy: Policy, observation: Observation, nodes: int) -> int:
    """Return the node that the policy chooses, checked to be one of `nodes`."""
    _watch.call = observation
    try:
        node = index(policy.place(observation))
    except (Exception, SystemExit, _TooLongError) as error:
        _blame_user_policy(policy, "place", observation, error)
        raise
    _watch.call = None
    if not 0 <= node < nodes:
        raise InputError(
            f"policy {type(policy).__name__} placed a workload on node {node}: "
            f"expected 0 to {nodes - 1}"
        )
    available = observation.available
    if available is not None and node not in available:
        raise InputError(
            f"policy {type(policy).__name__} placed a workload on {policy.view.nodes[node]} at "
            f"time {observation.time:.6g}, which takes no jobs then: choose one of "
            "Observation.available"
        )
    return node


def call_update(policy: Policy, change: LatencyChange, observation: Observation) -> None:
    """Tell a policy of changed latencies, before the first decision at which they hold."""
    _watch.call = observation
    try:
        policy.update(change.applied_to(policy.view))
    except (Exception, SystemExit, _TooLongError) as error:
        _blame_user_policy(policy, "update", observation, error)
        raise
    _watch.call = None


def call_learn(policy: Policy, observation: Observation, node: int) -> None:
    """Pass on what was disclosed to a policy that decides ahead."""
    _watch.call = observation
    try:
        policy.learn(observation, node)
    except (Exception, SystemExit, _TooLongError) as error:
        _blame_user_policy(policy, "learn", observation, error)
        raise
    _watch.call = None


def _blame_user_policy(
    policy: Policy, method: str, observation: Observation, error: BaseException
) -> None:
    _watch.call = None
    kind = type(policy)
    if not is_users(kind):  # a bug of ours
        return
    where = f"at time {observation.time:.6g}"
    if isinstance(error, _TooLongError):
        sentence = (
            f"policy {kind.__name__} did not return from {method} {where} within "
            f"{kind.answers_within:g} s; if it does not hang, raise its answers_within"
        )
    else:
        sentence = f"policy {kind.__name__} failed {where}: {describe_error(error)}"
    raise policy_error(sentence, error) from error


def is_users(kind: type[Policy]) -> bool:
    """Return whether a policy's class is a user's, and none of ours."""
    return not kind.__module__.startswith("fogveil.")


@contextmanager
def watching(policy: Policy) -> Iterator[None]:
    """End a call of a user's policy that takes longer than its `answers_within`.

    An alarm raises an error where the policy is. It needs the main thread, and a policy that
    returns to Python now and then: a library's endless loop in C is not ended.
    """
    kind = type(policy)
    if not is_users(kind) or current_thread() is not main_thread():
        yield
        return

    def look(_number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if _watch.call is None or _watch.call is not _watch.seen:
            _watch.seen, _watch.since = _watch.call, now
        elif now - _watch.since >= kind.answers_within:
            raise _TooLongError

    _watch.call = _watch.seen = None
    before = signal.signal(signal.SIGALRM, look)
    period = kind.answers_within / TICKS
    signal.setitimer(signal.ITIMER_REAL, period, period)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
