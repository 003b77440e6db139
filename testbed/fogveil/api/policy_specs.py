"""Policies as users give them: names, files, classes and objects."""

from __future__ import annotations

import inspect
from pathlib import Path

import fogveil.agent.policies as policies
from fogveil.agent.policy import Level, Policy
from fogveil.core.errors import InputError

AnyPolicy = str | Path | type[Policy] | Policy
"""A name, a trained agent's file, `file.py:Class`, a class or an object."""


def check_policy(policy: object) -> None:
    """Refuse what is no policy in any of these forms."""
    is_class = inspect.isclass(policy) and issubclass(policy, Policy)
    if not is_class and not isinstance(policy, str | Path | Policy):
        raise InputError(f"policy {policy!r}: expected a name, a file, or a subclass of Policy")


def as_policy(policy: AnyPolicy) -> str | type[Policy] | Policy:
    """Return a policy as the embedded engine takes it."""
    return str(policy) if isinstance(policy, Path) else policy


def as_spec(policy: AnyPolicy) -> str:
    """Return a policy as text, by which the agent's process finds it."""
    if isinstance(policy, str | Path):
        return str(policy)
    kind = policy if inspect.isclass(policy) else type(policy)
    if kind.__module__.startswith("fogveil."):
        for name, entry in policies.POLICIES.items():
            if entry.load() is kind:
                return name
    try:
        file = inspect.getsourcefile(kind)
    except TypeError:
        file = None
    if not file or not Path(file).is_file() or not inspect.isclass(policy):
        raise InputError(
            f"policy {kind.__name__}: the agent's process must be able to read it: put the class "
            "into a file of its own and give it as 'file.py:Class'"
        )
    return f"{file}:{kind.__name__}"


def label_of(policy: AnyPolicy) -> str:
    """Return a short name of a policy."""
    if isinstance(policy, str | Path):
        return policies.label_of(str(policy))
    return policy.__name__ if inspect.isclass(policy) else type(policy).__name__


def needs_of(policy: AnyPolicy) -> Level:
    """Return the disclosure level that a policy needs."""
    if isinstance(policy, str | Path):
        return policies.find(str(policy)).needs
    return policy.needs
