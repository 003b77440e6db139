"""Whether the agent's process can read what is a provider's: its folder, key, journal, memory."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from fogveil.identity import AGENT
from testbed.audit.findings import Finding, Verdict, judge
from testbed.federated.launch import Testbed

if TYPE_CHECKING:
    from testbed.containers.confining import Tried

PROMISE = "process: the agent's process reads nothing of a provider"
PTRACE_ATTACH = 16


def around(testbed: Testbed) -> Tried | None:
    """Of containers, try from inside every provider's what is reached there, before the run."""
    from testbed.containers.confining import try_all
    from testbed.containers.launch import ContainerTestbed

    if not isinstance(testbed, ContainerTestbed):
        return None
    return try_all(testbed, testbed.layout.providers)


def _check_containers(testbed: Testbed, before: Tried) -> Finding:
    from testbed.containers.confining import try_from
    from testbed.containers.launch import ContainerTestbed

    assert isinstance(testbed, ContainerTestbed)
    agent = try_from(testbed, AGENT)
    evidence = (
        f"{agent.tries:,} addresses, folders and keys of the others tried from inside the agent's "
        f"container: nothing answers but the clock, the broker and the boundaries; "
        f"{before.tries:,} from inside the providers': nothing but the clock and the broker"
    )
    return judge(PROMISE, evidence, [*agent.faults, *before.faults], agent.tries)


def check_process(testbed: Testbed, user: int | None, before: Tried | None = None) -> Finding:
    """Become the agent's user, and try to read everything of the others.

    Of containers, try that from inside; `before` is what was found before the agent was there.
    """
    if before is not None:
        return _check_containers(testbed, before)
    if user is None:
        return Finding(
            PROMISE,
            Verdict.NOT_SHOWN,
            "same user: only a launcher that is root gives each participant a user of its own",
        )
    targets: list[tuple[str, int, list[str]]] = []
    for name, participant in testbed.participants.items():
        if name == AGENT:
            continue
        folder = testbed.split.folder_of(name)
        paths = [folder, *sorted(folder.rglob("*"))]
        targets.append((name, participant.process.pid, [str(path) for path in paths]))
    tried, got = _as_user(user, targets)
    evidence = (
        f"as the agent's user {user}: {tried} files, folders, memories, environments and traces of "
        f"{len(targets)} other participants tried, all refused"
    )
    return judge(PROMISE, evidence, got, tried)


def _as_user(user: int, targets: list[tuple[str, int, list[str]]]) -> tuple[int, list[str]]:
    """Fork, become the user, try, and tell the parent what could be read."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            with os.fdopen(writer, "w") as out:
                json.dump(_try_all(targets), out)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        text = told.read()
    os.waitpid(child, 0)
    tried, got = json.loads(text)
    return tried, got


def _try_all(targets: list[tuple[str, int, list[str]]]) -> tuple[int, list[str]]:
    got, tried = [], 0
    libc = ctypes.CDLL(None, use_errno=True)
    for name, pid, paths in targets:
        memory = [f"/proc/{pid}/{what}" for what in ("mem", "environ", "maps", "auxv", "fd")]
        for path in (*paths, *memory):
            tried += 1
            if _readable(path):
                got.append(f"{path} of {name} can be read")
        tried += 1
        if libc.ptrace(PTRACE_ATTACH, pid, None, None) == 0:
            got.append(f"the process of {name} can be traced")
    return tried, got


def _readable(path: str) -> bool:
    try:
        if Path(path).is_dir():
            os.listdir(path)  # noqa: PTH208 (a path that may not be one)
        else:
            with Path(path).open("rb") as file:
                file.read(1)
    except OSError:
        return False
    return True
