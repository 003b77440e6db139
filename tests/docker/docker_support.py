"""What the tests of containers share: the command, a wheel, a testbed that runs for a while."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from support import ROOT, SCENARIOS

from fogveil.testbed.launch.docker.engine_client import FOLDER_LABEL, PARTICIPANT_LABEL

TINY = SCENARIOS / "tiny.toml"
COMMAND = [sys.executable, "-P", "-m", "fogveil.testbed.cli"]
STARTS_WITHIN = 240.0
PARTS_OF_WHEEL = (
    *("agent", "broker", "proto", "provider_node", "scenarios", "testbed"),
    *("Dockerfile", "LICENSE", "README.md", "constraints.txt", "pyproject.toml"),
)


def fogveil(*words: str | Path, cwd: Path = ROOT, **options: Any) -> subprocess.CompletedProcess:
    """Run a command to its end."""
    return subprocess.run(
        [*COMMAND, *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        **options,
    )


def build_wheel(folder: Path) -> Path:
    """Build the package's wheel from a copy: building writes beside the sources."""
    source = folder / "source"
    source.mkdir()
    for name in PARTS_OF_WHEEL:
        if (ROOT / name).is_dir():
            unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=unwanted)
        else:
            shutil.copy(ROOT / name, source / name)
    words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source]
    subprocess.run([sys.executable, "-m", "pip", *map(str, words)], check=True, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


class Up:
    """A testbed that runs for long enough to be disturbed."""

    def __init__(self, client, folder: Path, *options: str, speed: float = 20) -> None:
        self.client, self.folder = client, folder
        # In the background SIGINT is ignored, also by child processes; in a terminal it is not.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        words = [
            "up",
            TINY,
            "--policy",
            "jsq",
            "--docker",
            "--speed",
            speed,
            "--out",
            folder,
            *options,
        ]
        self.process = subprocess.Popen(
            [*COMMAND, *map(str, words)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        signal.signal(signal.SIGINT, before)
        self.record = folder / "participants" / "agent" / "decisions-0000.csv"

    def wait_until_busy(self) -> None:
        deadline = time.monotonic() + STARTS_WITHIN
        while not self.record.exists() or self.record.read_text().count("\n") < 5:
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline, "no decision was taken"
            time.sleep(0.1)

    def container(self, name: str):
        labels = {"label": [f"{FOLDER_LABEL}={self.folder}", f"{PARTICIPANT_LABEL}={name}"]}
        (container,) = self.client.containers.list(filters=labels)
        return container

    def is_back(self, name: str) -> bool:
        """Return whether the testbed has recovered from a loss of a participant."""
        return f"| {name} is back after " in (self.folder / "testbed.log").read_text()

    def send(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> tuple[int, str, float]:
        """Wait for the end; return the exit code, standard error, and the seconds that it took."""
        begin = time.monotonic()
        _, error = self.process.communicate(timeout=120)
        return self.process.returncode, error, time.monotonic() - begin

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.communicate(timeout=60)
