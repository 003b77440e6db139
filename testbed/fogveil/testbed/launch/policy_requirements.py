"""What a policy needs, found out without running its code in the launcher."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from select import select
from typing import NamedTuple

from pydantic_core import from_json

import fogveil.agent.policies as policies
from fogveil.agent.policy import Level, Policy
from fogveil.agent.policy_errors import FRAMES_SHOWN, LONGEST_FRAME
from fogveil.agent.policy_files import PolicyFiles, read_policy_files
from fogveil.core.errors import InputError
from fogveil.core.plain import to_plain
from fogveil.core.safe_text import safe_text
from fogveil.protocol.enclosure import Enclosure
from fogveil.protocol.namespaces import available_namespaces, enclosing_command
from fogveil.protocol.product_copy import module_arguments, module_command
from fogveil.testbed.launch.process_environment import participants_environment, users_of
from fogveil.testbed.scenario.load import files_read
from fogveil.testbed.scenario.world import World

ANSWER_WITHIN = 120.0
"""Seconds in which a policy must have been loaded and created."""
END_WITHIN = 2.0
"""Seconds that its process has to end by itself after its answer."""
LONGEST_ANSWER = 2**16
"""Bytes."""


class PolicyRequirements(NamedTuple):
    """What a policy declares about itself."""

    needs: Level
    decides_ahead: bool
    """Whether its decisions need no count of the same window."""
    watches_cloud: bool
    """Whether it observes the Cloud's count beside the others."""

    @classmethod
    def of(cls, kind: type[Policy]) -> PolicyRequirements:
        """Return what a policy's class declares."""
        return cls(kind.needs, kind.decides_ahead, kind.watches_cloud)

    def check_window(self, window: int, spec: str) -> None:
        """Refuse a window of several decisions to a policy that needs a count for each."""
        ahead = self.decides_ahead and self.needs is not Level.FULL
        if window > 1 and not (ahead or self.needs is Level.NONE):
            raise InputError(
                f"--window {window}: {spec} looks at counts before each decision, so its windows "
                "are of one decision"
            )


def requirements_of(spec: str, world: World, product: Path | None = None) -> PolicyRequirements:
    """Return what a policy declares; refuse one that cannot run in this world.

    A user's policy is loaded by a process of the installation, or of a copy of the product.
    """
    if policies.is_foreign(spec):
        # A missing file is refused at once, and one that only we can read is read here.
        files = read_policy_files(policies.parse_file_spec(spec)[0])
        return _ask_inspector(spec, files, json.dumps(to_plain(world.agent)), product)
    policies.load(spec, world.agent)
    kind = policies.find(spec)
    return PolicyRequirements.of(kind)


@lru_cache
def _ask_inspector(
    spec: str, files: PolicyFiles, view: str, product: Path | None
) -> PolicyRequirements:
    """Load a user's policy in a process without secrets, enclosed as the agent will be."""
    user = users_of(secrets.token_hex(16), ["policy"]).get("policy")
    namespaces = available_namespaces()
    preamble, module = b"", "fogveil.agent.policy_inspector"
    if namespaces == "none":
        command = module_command(module, product, user, Path("/"))
        user = user if product is None else None  # a copy is that user before it runs
    else:
        command = enclosing_command(namespaces, network=True) + module_arguments(module, product)
        hidden = tuple(map(str, files_read))
        readable = (str(product),) if product else ()
        enclosure = Enclosure(folder="", user=user, hidden=hidden, readable=readable)
        preamble, user = enclosure.encode(), None
    sources = {name: content.hex() for name, content in files.contents}
    question = {"spec": spec, "files": sources, "view": json.loads(view), "user": user}
    with subprocess.Popen(  # noqa: S603 (our own module)
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # what the policy prints
        env=participants_environment(),
    ) as process:
        try:
            answer = _parse_answer(_ask(process, preamble + json.dumps(question).encode()))
        except subprocess.TimeoutExpired as error:
            raise InputError(f"policy {spec} did not start within {ANSWER_WITHIN:g} s") from error
        finally:
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_WITHIN)
            process.kill()
    if answer is None:
        raise InputError(
            f"policy {spec} cannot start: its process ended with code {process.returncode}"
        )
    if isinstance(answer, InputError):
        raise answer
    return answer


def _ask(process: subprocess.Popen[bytes], question: bytes) -> bytes:
    """Return the first line that a process answers, up to a limit: it may write without end."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.write(question)
        process.stdin.close()
    deadline, answer = time.monotonic() + ANSWER_WITHIN, b""
    while b"\n" not in answer and len(answer) < LONGEST_ANSWER:
        if not select((process.stdout,), (), (), max(0.0, deadline - time.monotonic()))[0]:
            raise subprocess.TimeoutExpired(process.args, ANSWER_WITHIN)
        if not (piece := os.read(process.stdout.fileno(), LONGEST_ANSWER)):
            break
        answer += piece
    return answer.partition(b"\n")[0]


def _parse_answer(text: bytes) -> PolicyRequirements | InputError | None:
    """Return what the policy declares, or why it is refused; None where neither is said."""
    try:
        match from_json(text):
            case {"refused": str(sentence), "frames": list(frames)}:
                refusal = InputError(safe_text(sentence))
                for frame in frames[:FRAMES_SHOWN]:
                    refusal.add_note(safe_text(str(frame), LONGEST_FRAME))
                return refusal
            case {"needs": str(word), "ahead": bool(ahead), "cloud": bool(cloud)}:
                return PolicyRequirements(Level.parse(word), ahead, cloud)
    except (ValueError, KeyError):  # the policy's code has answered in the inspector's place
        pass
    return None
