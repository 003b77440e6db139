"""What the tests of federated runs share: scenarios, work done once, a look at processes."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from support import ROOT, SCENARIOS

import agent.policies as policies
from agent.record import Decision, read_record
from provider_node.journal import read_journal
from testbed.embedded import simulate
from testbed.federated.apart import ENVIRONMENT
from testbed.federated.launch import Testbed
from testbed.federated.run import run_federated
from testbed.federated.split import Plan, Split
from testbed.scenario import Scenario, load_scenario
from testbed.world import build_world

FOGVEIL = str(Path(sys.executable).parent / "fogveil")
PATIENCE = 90.0
"""Seconds after which a test fails that waits for something, on a machine with much else to do."""
GONE_WITHIN = 30.0
"""Seconds in which a testbed that lost somebody has ended."""


def make_scenario(name: str = "tiny", **overrides: Any) -> Scenario:
    """Read a shipped scenario; dots in keys are written as double underscores."""
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    dotted.setdefault("disclosure", "full")
    return load_scenario(SCENARIOS / f"{name}.toml", dotted)


def embedded_hash(scenario: Scenario, policy: str) -> str:
    """Return the run hash that a federated run has to have."""
    world = build_world(scenario)
    return simulate(world, policies.load(policy, world.agent))


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def once(factory: Any, name: str, make: Callable[[Path], Any]) -> Any:
    """Return what `make` returns: one worker of a test run makes it, all others read it."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder = root / name
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = folder / "result.json"
        if not result.exists():
            folder.mkdir(exist_ok=True)
            result.write_text(json.dumps(make(folder)))
        return json.loads(result.read_text())


# --- the command in a process of its own ---------------------------------------------------------


@contextmanager
def started(*words: Any, cwd: Path = ROOT, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command as a person does, in a session of its own; end it with the test."""
    # A test run in the background has SIGINT ignored, as has what it starts; a terminal has it on.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            [FOGVEIL, *map(str, words)],
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, **environment},
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        try:
            yield process
        finally:
            process.kill()  # nothing happens to one that has ended


def fogveil(*words: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    with started(*words, **options) as process:
        out, err = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def plain(text: str) -> str:
    """Return a log without its colours."""
    return re.sub(r"\x1b\[\d+m", "", text)


def processes_of(log: Path) -> dict[str, int]:
    """Return the participants that a testbed's log names, with their process ids."""
    with suppress(FileNotFoundError):
        found = re.findall(r"started (.+) as process (\d+)", plain(log.read_text()))
        return {name: int(pid) for name, pid in found}
    return {}


class Up:
    """A testbed brought up by the command, slowly enough to do something to it."""

    def __init__(self, folder: Path, *words: Any, policy: str = "jsq", speed: float = 400) -> None:
        self.out, self.temporary = folder / "out", folder / "tmp"
        self.temporary.mkdir(parents=True)
        options = ("--horizon", 10**6, "--speed", speed, "--out", self.out, *words)
        self._ending = ExitStack()
        self.launcher = self._ending.enter_context(
            started(
                *("up", ROOT / "scenarios/tiny.toml", "--policy", policy, *options),
                TMPDIR=str(self.temporary),
            )
        )
        self.processes: dict[str, int] = {}
        self.ports: set[int] = set()

    def wait_until_busy(self) -> None:
        """Wait until jobs are decided and served, and note who takes part."""
        wait_until(lambda: self.has_ended or len(self.decisions()) > 20)
        assert not self.has_ended, self.launcher.communicate()
        self.note_processes()

    def note_processes(self) -> None:
        self.processes = processes_of(self.out / "testbed.log")
        self.processes["broker"] = next(
            pid for pid in children(self.launcher.pid) if pid not in self.processes.values()
        )
        self.ports = {port for pid in self.processes.values() for port in listening(pid)}

    @property
    def has_ended(self) -> bool:
        return self.launcher.poll() is not None

    @property
    def log(self) -> str:
        return plain((self.out / "testbed.log").read_text())

    def send(self, victim: str, number: signal.Signals) -> None:
        os.kill(self.launcher.pid if victim == "launcher" else self.processes[victim], number)

    def left(self) -> list[str]:
        """Return which processes are still there."""
        return [name for name, pid in self.processes.items() if is_running(pid)]

    def wait_until_gone(self) -> tuple[int, str]:
        """Wait for the end of all processes; return the exit code and what was said."""
        deadline = time.monotonic() + GONE_WITHIN
        while (self.left() or not self.has_ended) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not self.left(), "did not end"
        assert self.has_ended, "the launcher did not end"
        said = self.launcher.communicate()[1]
        return self.launcher.returncode, said

    def check_nothing_is_left(self) -> None:
        """No listening socket and no temporary file; that processes are gone was waited for."""
        for port in self.ports:
            with socket.socket() as probe:
                assert probe.connect_ex(("127.0.0.1", port)) != 0, f"port {port} is still open"
        assert not list(self.temporary.iterdir())

    def decisions(self) -> list[Decision]:
        path = self.out / "participants/agent/decisions-0000.csv"
        return list(read_record(path)) if path.exists() and path.stat().st_size else []

    def check_records(self) -> None:
        """What each participant recorded is there, readable, and of jobs that were decided."""
        decided = {decision.job for decision in self.decisions()}
        assert len(decided) > 20
        served: set[int] = set()
        for name in ("fog-1", "fog-2", "fog-3"):
            path = self.out / "participants" / name / "journal-0000.csv"
            served |= {job[0] for job, _ in read_journal(path)}
        assert served
        assert served <= decided
        # Served were about as many as were decided: nothing waits in a buffer that was lost.
        assert len(served) > len(decided) / 2
        assert (self.out / "participants/cloud/journal-0000.csv").exists()
        assert (self.out / "participants/sources/feedback-0000.csv").exists()

    def end(self) -> None:
        """End everything by force: only a test that failed needs it."""
        for pid in (*self.processes.values(), *processes_of(self.out / "testbed.log").values()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._ending.close()


@contextmanager
def ending(*several: Up) -> Iterator[None]:
    """See to it that no test leaves a process behind."""
    try:
        yield
    finally:
        for each in several:
            each.end()


# --- participants brought up by hand -------------------------------------------------------------


class Parts:
    """A testbed of tiny that nobody has brought up: its participants' configurations, one by one.

    Identities are left out unless asked for, so that the test can be anybody.
    """

    def __init__(self, folder: Path, *, broker: str = "", secure: bool = False, **overrides: Any):
        self.run = "5eed5eed"
        plan = Plan(("jsq",), secure=secure, separate_users=False, patience=30.0)
        world = build_world(make_scenario(**overrides))
        self.split = Split(world, plan, folder, self.run)
        self.split.broker = broker or "mqtt://127.0.0.1:1"

    @staticmethod
    def change(config: Path, **changes: Any) -> Path:
        """Change keys of a configuration, or where they begin with `own__` of its `own`."""
        given = json.loads(config.read_text())
        for key, value in changes.items():
            own = key.removeprefix("own__")
            (given["own"] if own != key else given)[own] = value
        config.write_text(json.dumps(given))
        return config


MODULES = {"clock": "testbed.federated.clock", "agent": "agent"}


@contextmanager
def participant(config: Path, module: str | None = None) -> Iterator[subprocess.Popen[str]]:
    """Start a participant by hand; end it with the test."""
    name = config.parent.name
    module = module or MODULES.get(name)
    if module is None:
        module = "testbed.federated.sources" if name.startswith("sources") else "provider_node"
    with subprocess.Popen(
        [sys.executable, "-P", "-m", module, "--config", str(config)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **ENVIRONMENT},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def port_of(process: subprocess.Popen[str]) -> int | None:
    """Wait until a participant says where it listens."""
    line = process.stdout.readline()
    assert line, process.communicate()
    return json.loads(line)["listening"]


def last_words(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a participant's end; return its exit code and its only sentence."""
    process.wait(PATIENCE)  # `communicate` would close its standard input, which means something
    said = process.stderr.read()
    assert "Traceback" not in said, said
    return process.returncode, said.strip().rpartition("\n")[2]


# --- a run that is held in the midst of it -------------------------------------------------------

HELD = """
import time
from pathlib import Path
from agent.policy import Level, Policy

class Held(Policy):
    needs = Level.{level}

    def reset(self):
        self.decided = 0

    def place(self, seen):
        self.decided += 1
        if self.decided == 1:
            self.wait("begin")
        if self.decided == 60:
            Path({folder!r}, "held").touch()
            self.wait("go")
        counts = seen.counts or (seen.total or 0,)
        return (sum(counts) + seen.job) % len(self.view.nodes)

    def wait(self, name):
        while not Path({folder!r}, name).exists():
            time.sleep(0.01)
"""


def run_and_disturb(
    folder: Path,
    act: Callable[[Testbed], None],
    level: str = "count",
    early: Callable[[Testbed], None] | None = None,
    **options: Any,
) -> str:
    """Do something in the midst of a run of tiny, and compare it with the embedded one.

    The policy holds the run meanwhile; what is done `early` is done while it begins. Returns the
    log of all participants.
    """
    policy, out = folder / "held.py", folder / "out"
    policy.write_text(HELD.format(level=level.upper(), folder=str(folder)))
    scenario = make_scenario(disclosure=level)
    plan = Plan((f"{policy}:Held",), separate_users=False, **options)
    acting: list[Future[None]] = []
    over = threading.Event()

    def disturb(testbed: Testbed) -> None:
        try:
            if early:
                early(testbed)
            (folder / "begin").touch()
            wait_until(lambda: (folder / "held").exists() or over.is_set())
            act(testbed)
        finally:
            for name in ("begin", "go"):
                (folder / name).touch()

    with ThreadPoolExecutor(1) as pool:

        def watch(testbed: Testbed, _name: str, _report: Any) -> None:
            if not acting:
                acting.append(pool.submit(disturb, testbed))

        try:
            (found,) = run_federated(scenario, plan, out, watch)
        finally:
            over.set()
            acting[0].result()
    assert found["run_hash"] == embedded_hash(scenario, plan.policies[0])
    return plain((out / "testbed.log").read_text())


# --- what Linux knows of processes ---------------------------------------------------------------


def is_running(pid: int) -> bool:
    """Say whether a process exists and is more than a zombie.

    Its first thread may be a zombie while others, which hold its sockets, have yet to end.
    """
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
        return state not in "ZX" or len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def listening(pid: int) -> set[int]:
    """Return the TCP ports that a process listens on."""
    inodes = set()
    with suppress(FileNotFoundError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                inodes.add(descriptor.readlink().name.removeprefix("socket:[").removesuffix("]"))
    return {port for port, inode in _listening_sockets() if inode in inodes}


def _listening_sockets() -> Iterable[tuple[int, str]]:
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                yield int(words[1].rpartition(":")[2], 16), words[9]
