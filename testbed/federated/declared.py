"""What a policy says of itself, learned without running somebody else's code in the launcher."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from functools import lru_cache
from typing import NamedTuple

import agent.policies as policies
from agent.policy import Level
from fogveil.errors import InputError
from testbed.federated.apart import participants_environment, users_of
from testbed.world import World

PATIENCE = 120.0
"""Seconds in which a policy must have been made."""


class Declared(NamedTuple):
    """What a policy says of itself."""

    needs: Level
    decides_ahead: bool

    def check_window(self, window: int, spec: str) -> None:
        """Refuse windows that the policy cannot have."""
        ahead = self.decides_ahead and self.needs is not Level.FULL
        if window > 1 and not (ahead or self.needs is Level.NONE):
            raise InputError(
                f"--window {window}: {spec} looks at counts before each decision, so its windows "
                "are of one decision"
            )


def declared(spec: str, world: World) -> Declared:
    """Return what a policy declares; refuse one that cannot run in this world."""
    if policies.is_foreign(spec):
        policies.read_source(policies.code_of(spec)[0])  # a wrong name is refused here and now
        return _ask(spec, json.dumps(world.projection("agent")))
    policies.load(spec, world.agent)
    kind = policies.find(spec)
    return Declared(kind.needs, kind.decides_ahead)


@lru_cache
def _ask(spec: str, view: str) -> Declared:
    user = users_of(secrets.token_hex(16), ["policy"]).get("policy")
    question = json.dumps({"spec": spec, "view": json.loads(view), "user": user})
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "agent.declaring"],
            input=question,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            env=participants_environment(),
        )
    except subprocess.TimeoutExpired as error:
        raise InputError(f"policy {spec} did not start within {PATIENCE:g} s") from error
    try:
        answer = json.loads(done.stdout)
    except ValueError as error:
        raise InputError(
            f"policy {spec} cannot start: its process ended with code {done.returncode}"
        ) from error
    if "refused" in answer:
        raise InputError(answer["refused"])
    return Declared(Level.parse(answer["needs"]), answer["ahead"])
