"""How participants are kept apart on this machine, and what is said where they are not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from fogveil.protocol.namespaces import Namespaces, available_namespaces
from fogveil.testbed.launch.participant_config import Plan

SHARED_NETWORK = (
    "participants share this machine's network, as fixed ports need it: a policy can read "
    "from the kernel how many bytes each provider has sent, and infer completions"
)
_said: set[str] = set()


def namespaces_for(plan: Plan) -> Namespaces:
    """Return which namespaces the participants of a plan run in."""
    return available_namespaces() if plan.separate_users else "none"


def has_networks(plan: Plan, namespaces: Namespaces) -> bool:
    """Return whether each participant has a network of its own, and is dialled at a Unix socket.

    Packets are captured on loopback, and ports that somebody asks for are there to be dialled.
    """
    return namespaces != "none" and plan.secure and not plan.ports


def exposures(plan: Plan, namespaces: Namespaces, secrets: Iterable[Path]) -> list[str]:
    """Return a sentence for each thing that a policy could find out about the others."""
    if not plan.separate_users or not plan.secure:
        return []  # asked for, and said by whoever asks
    if namespaces != "none":
        if has_networks(plan, namespaces):
            return []
        return [SHARED_NETWORK]
    reason = "the system allows no namespaces, or `unshare` and `setpriv` are missing"
    seen = "the process table with all command lines, and how many bytes each provider has sent"
    if os.geteuid() == 0:
        sentences = [f"participants are not enclosed ({reason}): a policy can see {seen}"]
        readable = [str(path) for path in secrets if _others_can_read(path)]
        if readable:
            sentences.append(
                f"a policy can read all secrets in {', '.join(readable)}: chmod 600 what is yours"
            )
        return sentences
    sentence = (
        f"participants are not enclosed ({reason}) and all run as you: a policy can read the "
        f"configuration, key and journal of every provider, the scenario, {seen}; what it starts "
        "can outlive the run. Run policies that you trust, use --docker, or start fogveil as root"
    )
    return [sentence]


def warn_of(sentences: Iterable[str]) -> None:
    """Write each sentence to standard error, once."""
    for sentence in sentences:
        if sentence not in _said:
            _said.add(sentence)
            sys.stderr.write(f"NOT PROTECTED: {sentence}.\n")
            sys.stderr.flush()


def _others_can_read(path: Path) -> bool:
    try:
        if not path.stat().st_mode & 0o004:
            return False
        return all(parent.stat().st_mode & 0o001 for parent in path.resolve().parents)
    except OSError:
        return False
