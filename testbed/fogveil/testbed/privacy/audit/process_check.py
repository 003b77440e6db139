"""The process check: from where the agent is, nothing of the others or of the machine is found."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from fogveil.core.errors import InfrastructureError
from fogveil.protocol.enclosure import SOCKETS
from fogveil.protocol.identity import AGENT, BROKER, CLOCK
from fogveil.testbed.launch.local_launcher import LocalLauncher
from fogveil.testbed.launch.testbed import Testbed
from fogveil.testbed.privacy.audit import enclosure_probe
from fogveil.testbed.privacy.audit.findings import Finding, Verdict, judge
from fogveil.testbed.privacy.audit.reachability_probe import ProbeResult, probe_container
from fogveil.testbed.scenario.load import files_read

PROMISE = "process: the agent's process can read nothing of a provider's"
POLL_INTERVAL = 0.002
PROBE_WITHIN = 300.0
LAUNCHER = "the launcher"


def _check_containers(testbed: Testbed, providers: ProbeResult) -> Finding:
    agent = probe_container(testbed, AGENT)
    evidence = (
        f"{agent.tries:,} addresses, folders and keys of the others tried from inside the agent's "
        f"container: nothing answers but the clock, the broker and the boundaries; "
        f"{providers.tries:,} from inside the providers': nothing but the clock and the broker"
    )
    return judge(PROMISE, evidence, [*agent.faults, *providers.faults], agent.tries)


def check_process(
    testbed: Testbed, user: int | None, providers: ProbeResult | None = None
) -> Finding:
    """Try, from where the agent runs and as its user, to find anything of the others.

    With containers, try it from inside; `providers` is what was tried from inside theirs before
    the agent started.
    """
    if providers is not None:
        return _check_containers(testbed, providers)
    namespaces = testbed.split.site.namespaces
    if namespaces == "none" and user is None:
        return Finding(
            PROMISE,
            Verdict.NOT_SHOWN,
            "all participants run as one user, and this system encloses none of them: that needs "
            "namespaces or a launcher that is root",
        )
    abstract = f"fogveil-audit-{secrets.token_hex(8)}"
    with (
        socket.create_server(("127.0.0.1", 0)) as port,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hidden,
    ):
        hidden.bind(f"\0{abstract}")
        hidden.listen()
        targets = _targets(testbed) | {"abstract": abstract, "port": port.getsockname()[1]}
        if namespaces == "none":
            assert user is not None
            attempts, faults = _try_as_user(user, targets)
            where = f"as the agent's user {user}"
        else:
            attempts, faults = _try_inside(testbed, user, targets)
            where = "from inside the agent's namespaces as its user"
    evidence = (
        f"{where}: {attempts} attempts to read files, folders, memory, environment and command "
        f"lines of {len(targets['processes'])} others, the scenario and the kernel's statistics of "
        "sockets, to trace processes, to reach sockets and to write to the system, all in vain"
    )
    return judge(PROMISE, evidence, faults, attempts, "the agent had ended before it was tried")


def _targets(testbed: Testbed) -> dict[str, Any]:
    """Return everything that the agent must not find, by whose it is."""
    split, roster = testbed.split, testbed.split.roster
    paths = {str(path): "the experimenter" for path in files_read}
    processes = {LAUNCHER: os.getpid()}
    if testbed.broker and testbed.broker.pid:
        processes[BROKER] = testbed.broker.pid
    for name in (*testbed.participants, BROKER):
        if name != AGENT:
            folder = split.folder_of(name).absolute()
            paths |= {str(path): name for path in (folder, *sorted(folder.rglob("*")))}
        if name in testbed.participants and name != AGENT:
            processes[name] = testbed.participants[name].process.pid
    enclosed = split.site.namespaces != "none"
    assert isinstance(testbed.launcher, LocalLauncher)
    sockets, dialled = testbed.launcher.sockets, (CLOCK, BROKER, *roster.fogs, roster.cloud)
    return {
        "enclosed": enclosed,
        "paths": paths,
        "processes": processes,
        "sockets": SOCKETS,
        "dialled": sorted(sockets.names_of(dialled)) if sockets else [],
        "writes": ["/", "/usr", str(Path(sys.prefix) / "lib")] if enclosed else [],
    }


def _try_inside(
    testbed: Testbed, user: int | None, targets: dict[str, Any]
) -> tuple[int, list[str]]:
    """Try in a process that joins all namespaces of the agent, which is held meanwhile."""
    agent = testbed.participants[AGENT].process
    while agent.poll() is None and not _has_no_capabilities(agent.pid):
        time.sleep(POLL_INTERVAL)  # it is being enclosed, and gives up its privileges at the end
    if agent.poll() is not None:
        return 0, []
    try:
        done = subprocess.run(  # noqa: S603 (our own module)
            [
                shutil.which("nsenter") or "nsenter",
                *("--target", str(agent.pid), "--mount", "--pid", "--net", "--ipc", "--uts"),
                *(_user_options(user)),
                *(sys.executable, "-P", "-c", Path(enclosure_probe.__file__).read_text("utf-8")),
            ],
            input=json.dumps(targets),
            capture_output=True,
            text=True,
            timeout=PROBE_WITHIN,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        sentence = f"the agent's namespaces could not be examined within {PROBE_WITHIN:g} s"
        raise InfrastructureError(sentence) from error
    try:
        attempts, faults = json.loads(done.stdout)
    except ValueError as error:
        last = done.stderr.strip().rpartition("\n")[2]
        raise InfrastructureError(f"the agent's namespaces cannot be examined: {last}") from error
    return attempts, faults


def _has_no_capabilities(pid: int) -> bool:
    """Return whether a process has given up all that root may do."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:  # it has ended
        return False
    words = status.split()
    held = [words[words.index(f"Cap{which}:") + 1] for which in ("Eff", "Prm", "Bnd")]
    return not any(int(each, 16) for each in held)


def _user_options(user: int | None) -> tuple[str, ...]:
    if user is None:
        return ("--user", "--preserve-credentials")
    return ("--setuid", str(user), "--setgid", str(user))


def _try_as_user(user: int, targets: dict[str, Any]) -> tuple[int, list[str]]:
    """Try in a child process that becomes the user; return the attempts and what succeeded."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            with os.fdopen(writer, "w") as out:
                json.dump(enclosure_probe.try_all(targets), out)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        result = pipe.read()
    os.waitpid(child, 0)
    attempts, faults = json.loads(result)
    return attempts, faults
