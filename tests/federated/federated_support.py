"""What the tests of federated runs share: scenarios, work done once, views of processes."""

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
from textwrap import dedent, indent
from typing import Any

from support import ROOT, SCENARIOS

import fogveil.agent.policies as policies
from fogveil.agent.decision_record import Decision, read_record
from fogveil.provider_node.journal import read_journal
from fogveil.testbed.engine.embedded import simulate
from fogveil.testbed.launch.federated_run import run_federated
from fogveil.testbed.launch.participant_config import Plan, Split
from fogveil.testbed.launch.process_environment import ENVIRONMENT
from fogveil.testbed.launch.testbed import Testbed
from fogveil.testbed.scenario import Scenario, load_scenario
from fogveil.testbed.scenario.world import build_world

FOGVEIL = str(Path(sys.executable).parent / "fogveil")
PATIENCE = 90.0
"""Seconds after which a waiting test fails, on a machine with much else to do."""
SEED = 0x5EED_5EED_5EED_5EED_5EED_5EED
"""Of runs that are disturbed: with others more jobs may wait when the disturbance comes."""
GONE_WITHIN = 120.0
"""Seconds within which a testbed that lost a participant has ended."""


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
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.05)


def once(factory: Any, name: str, make: Callable[[Path], Any]) -> Any:
    """Return what `make` returns, as JSON: one worker of a test run calls it, all others wait."""
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
def started(
    *arguments: Any, cwd: Path = ROOT, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """Start the command as a person does, in a session of its own; end it with the test."""
    # In the background SIGINT is ignored, also by child processes; in a terminal it is not.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            [FOGVEIL, *map(str, arguments)],
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
            process.kill()  # which does nothing once it has ended


def fogveil(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    with started(*arguments, **options) as process:
        out, err = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def plain(text: str) -> str:
    """Return what a terminal was sent without its colours."""
    return re.sub(r"\x1b\[\d+m", "", text)


def processes_of(log: Path) -> dict[str, int]:
    """Return the participants that a testbed's log names, with their process ids."""
    with suppress(FileNotFoundError):
        lines = re.findall(r"started (.+) as process (\d+)", log.read_text())
        return {name: int(pid) for name, pid in lines}
    return {}


class Up:
    """A testbed that the command started, slow enough to be disturbed; a loss ends it."""

    def __init__(
        self, folder: Path, *arguments: Any, policy: str = "jsq", speed: float = 400
    ) -> None:
        self.out, self.temporary = folder / "out", folder / "tmp"
        self.temporary.mkdir(parents=True)
        options = ("--horizon", 10**6, "--seed", SEED, "--speed", speed, "--out", self.out)
        options += ("--on-loss", "end")
        self._ending = ExitStack()
        self.launcher = self._ending.enter_context(
            started(
                *("up", ROOT / "scenarios/tiny.toml", "--policy", policy, *options, *arguments),
                TMPDIR=str(self.temporary),
            )
        )
        self.processes: dict[str, int] = {}
        self.ports: set[int] = set()

    def wait_until_busy(self) -> None:
        """Wait until jobs are decided and served, and find the processes."""
        wait_until(lambda: self.has_ended or len(self.decisions()) > 30)
        assert not self.has_ended, self.launcher.communicate()
        self.find_processes()

    def find_processes(self) -> None:
        self.processes = processes_of(self.out / "testbed.log")
        # Enclosed ones are children of `unshare`, which is the launcher's child.
        started = [(children(pid) or [pid])[0] for pid in children(self.launcher.pid)]
        self.processes["broker"] = next(pid for pid in started if is_broker(pid))
        self.ports = {port for pid in self.processes.values() for port in listening(pid)}

    @property
    def has_ended(self) -> bool:
        return self.launcher.poll() is not None

    @property
    def log(self) -> str:
        return (self.out / "testbed.log").read_text()

    def send(self, victim: str, number: signal.Signals) -> None:
        os.kill(self.launcher.pid if victim == "launcher" else self.processes[victim], number)

    def left(self) -> list[str]:
        """Return which participants still run."""
        return [name for name, pid in self.processes.items() if is_running(pid)]

    def wait_until_gone(self) -> tuple[int, str]:
        """Wait for the end of all processes; return the launcher's exit code and standard error."""
        deadline = time.monotonic() + GONE_WITHIN
        while (self.left() or not self.has_ended) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not self.left(), "did not end"
        assert self.has_ended, "the launcher did not end"
        error = self.launcher.communicate()[1]
        return self.launcher.returncode, error

    def check_nothing_is_left(self) -> None:
        """Check that no socket listens and no temporary file is left, once processes are gone."""
        for port in self.ports:
            with socket.socket() as probe:
                assert probe.connect_ex(("127.0.0.1", port)) != 0, f"port {port} is still open"
        assert not list(self.temporary.iterdir())

    def decisions(self) -> list[Decision]:
        path = self.out / "participants/agent/decisions-0000.csv"
        return list(read_record(path)) if path.exists() and path.stat().st_size else []

    def check_records(self) -> None:
        """Check that each participant's record exists and holds jobs that were decided."""
        decided = {decision.job for decision in self.decisions()}
        assert len(decided) > 30
        served: set[int] = set()
        for name in ("fog-1", "fog-2", "fog-3"):
            path = self.out / "participants" / name / "journal-0000.csv"
            served |= {job[0] for job, _ in read_journal(path)}
        assert served
        assert served <= decided
        # About as many were served as were decided: no record was lost in a buffer.
        assert len(served) > len(decided) / 2
        assert (self.out / "participants/cloud/journal-0000.csv").exists()
        assert (self.out / "participants/sources/feedback-0000.csv").exists()

    def end(self) -> None:
        """End everything by force, which only a failed test needs."""
        for pid in (*self.processes.values(), *processes_of(self.out / "testbed.log").values()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._ending.close()


@contextmanager
def ending(*several: Up) -> Iterator[None]:
    """End testbeds with the test, so that none leaves a process behind."""
    try:
        yield
    finally:
        for each in several:
            each.end()


def sabotage_participant(folder: Path, monkeypatch: Any, name: str, code: str) -> None:
    """Make one participant run some code when it starts."""
    condition = f"if any(word.endswith('/{name}/config.json') for word in sys.orig_argv):\n"
    (folder / "lies").mkdir()
    (folder / "lies" / "sitecustomize.py").write_text(
        f"import sys\n{condition}{indent(dedent(code), '    ')}"
    )
    path = os.pathsep.join(filter(None, (str(folder / "lies"), os.environ.get("PYTHONPATH"))))
    monkeypatch.setenv("PYTHONPATH", path)


# --- participants started by hand ---------------------------------------------------------------


class Parts:
    """The configurations of a testbed of tiny, to be written and started one by one.

    There are no identities unless asked for, so that a test can impersonate anybody.
    """

    def __init__(
        self,
        folder: Path,
        *,
        broker: str = "",
        secure: bool = False,
        policies: tuple[str, ...] = ("jsq",),
        **overrides: Any,
    ) -> None:
        self.run = "5eed5eed"
        plan = Plan(policies, secure=secure, separate_users=False, patience=180.0)
        world = build_world(make_scenario(**overrides))
        self.split = Split(world, plan, folder, self.run)
        self.split.broker = broker or "mqtt://127.0.0.1:1"

    @staticmethod
    def change(config: Path, **changes: Any) -> Path:
        """Change keys of a configuration."""
        config.write_text(json.dumps({**json.loads(config.read_text()), **changes}))
        return config


MODULES = {"clock": "fogveil.clock", "agent": "fogveil.agent"}


@contextmanager
def participant(config: Path, module: str | None = None) -> Iterator[subprocess.Popen[str]]:
    """Start a participant by hand; end it with the test."""
    name = config.parent.name
    module = module or MODULES.get(name)
    if module is None:
        module = "fogveil.sources" if name.startswith("sources") else "fogveil.provider_node"
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
    """Wait until a participant reports where it listens."""
    line = process.stdout.readline()
    assert line, process.communicate()
    return json.loads(line)["listening"]


def last_words(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a participant's end; return its exit code and the last line of its errors."""
    process.wait(PATIENCE)  # `communicate` would close its standard input, which means something
    errors = process.stderr.read()
    assert "Traceback" not in errors, errors
    return process.returncode, errors.strip().rpartition("\n")[2]


# --- a run that is held half-way -----------------------------------------------------------------

HELD = """
import time
from pathlib import Path
from fogveil.agent.policy import Level, Policy

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
    """Disturb a run of tiny, and compare it with the embedded one; return its log.

    The policy holds the run while `act` is called, and before its first decision while `early` is.
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
            (result,) = run_federated(scenario, plan, out, watch)
        finally:
            over.set()
            acting[0].result()
    assert result["run_hash"] == embedded_hash(scenario, plan.policies[0])
    return (out / "testbed.log").read_text()


# --- processes as Linux shows them ---------------------------------------------------------------


def is_running(pid: int) -> bool:
    """Return whether a process exists and is more than a zombie.

    Its first thread may be a zombie while others, which hold its sockets, have not ended yet.
    """
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
        return state not in "ZX" or len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_broker(pid: int) -> bool:
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    return b"mosquitto" in command or b"fogveil.broker" in command


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
            fields = line.split()
            if fields[3] == "0A":
                yield int(fields[1].rpartition(":")[2], 16), fields[9]
