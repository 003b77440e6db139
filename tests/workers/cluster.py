"""What tests of workers share: a cluster on loopback, and sweeps slow enough to disturb."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PATIENCE = 120
FOGVEIL = (sys.executable, "-m", "fogveil.testbed.cli")
SEEDS = 12
POLICY = """
import os, time
from beside import least
from fogveil.agent.policy import Level, Policy

class Slow(Policy):
    needs = Level.COUNT

    def __init__(self, view):
        super().__init__(view)
        with open({log!r}, "a") as log:
            log.write(f"{{os.getpid()}}\\n")
        time.sleep({seconds})

    def place(self, seen):
        return least(seen.counts)
"""
BESIDE = "def least(counts):\n    return min(range(len(counts)), key=counts.__getitem__)\n"
SWEEP = """
scenario = "tiny"
policies = ["slow.py:Slow", "jsq"]
seeds = {seeds}
[set]
horizon = 300
"""


class SlowSweep:
    """A sweep of which each run of a user's policy takes its time and leaves a line in a file."""

    def __init__(self, folder: Path, seconds: float = 0.25) -> None:
        folder.mkdir()
        self.folder, self.log, self.file = folder, folder / "ran", folder / "sweep.toml"
        self.log.touch()
        (folder / "slow.py").write_text(POLICY.format(log=str(self.log), seconds=seconds))
        (folder / "beside.py").write_text(BESIDE)
        self.file.write_text(SWEEP.format(seeds=SEEDS))

    def words(self, workers: object, out: str) -> tuple[str, ...]:
        given = () if workers is None else ("--workers", str(workers))
        return ("sweep", str(self.file), "--out", str(self.folder / out), "--json", *given)

    def run(self, workers: object, out: str) -> subprocess.CompletedProcess[str]:
        return fogveil(*self.words(workers, out), cwd=self.folder)

    def digest(self, workers: object, out: str) -> str:
        return digest_of(self.run(workers, out))

    def finished(self, out: str) -> int:
        return len(list((self.folder / out / "runs").glob("Slow_*.json")))

    def wait_for(self, finished: int, out: str) -> None:
        wait_until(lambda: self.finished(out) >= finished, f"{finished} runs")

    def ran(self) -> Counter[int]:
        """Return how many runs of the slow policy were begun, by process."""
        return Counter(map(int, self.log.read_text().split()))


def digest_of(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout.splitlines()[-1])["digest"])


def fogveil(*words: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*FOGVEIL, *map(str, words)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


@contextmanager
def started(
    *words: object, cwd: Path, log: Path, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the command in a session of its own; kill all of that in the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*FOGVEIL, *map(str, words)],
            cwd=cwd,
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all of its session, at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Cluster:
    """A scheduler of which a test starts and kills workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificates = folder / "certificates"
        self.address = f"127.0.0.1:{free_port()}"
        self.dashboard = free_port()
        self.workers = f"dask://{self.certificates}@{self.address}"
        self.elsewhere = folder / "elsewhere"
        self.elsewhere.mkdir()

    @contextmanager
    def scheduler(self) -> Iterator[subprocess.Popen[bytes]]:
        words = ("workers", "scheduler", self.certificates, "--listen", self.address)
        words += ("--dashboard-port", str(self.dashboard))
        log = self.folder / "scheduler.log"
        with started(*words, cwd=self.elsewhere, log=log) as process:
            wait_until(lambda: "Scheduler at" in log.read_text(), "the scheduler")
            yield process

    @contextmanager
    def host(
        self, name: str, count: int = 1, **environment: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start workers in a session of their own, where none of the driver's files are."""
        words = ("workers", "start", self.certificates / "worker", "--count", count)
        log = self.folder / f"{name}.log"
        with started(*words, cwd=self.elsewhere, log=log, **environment) as process:
            # Once when a worker is told of it, and once when it has joined.
            wait_until(lambda: log.read_text().count("Registered to") >= count, name)
            yield process


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[Cluster]:
    """Start a scheduler with some workers."""
    made = Cluster(folder)
    with made.scheduler(), made.host("host", workers):
        yield made
