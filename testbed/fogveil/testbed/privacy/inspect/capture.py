"""Capturing the packets of a testbed on this machine with dumpcap, as Wireshark does."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fogveil.broker import parent_death
from fogveil.core.errors import InfrastructureError

PROGRAM = "dumpcap"
INTERFACE = "lo" if sys.platform.startswith("linux") else "lo0"
FIRST_PORT, LAST_PORT = 20_000, 32_000
"""Below the ephemeral ports, so that no client takes one between choice and use."""
TRIES = 100
START_TIMEOUT = 30.0
"""Seconds."""
QUIET, STOP_TIMEOUT = 1.0, 15.0
"""Seconds without a new packet after which all are written, and the longest wait for that."""


def free_ports(number: int) -> tuple[int, ...]:
    """Return consecutive free ports, so that one short capture filter covers them all."""
    for _ in range(TRIES):
        first = random.randrange(FIRST_PORT, LAST_PORT - number)  # noqa: S311 (no secret)
        ports = tuple(range(first, first + number))
        if all(map(_is_free, ports)):
            return ports
    raise InfrastructureError(f"no {number} consecutive ports are free")


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@contextmanager
def packet_capture(path: Path, ports: tuple[int, ...]) -> Iterator[None]:
    """Capture the packets of these ports into a file, for as long as the context lasts."""
    program = shutil.which(PROGRAM, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        raise InfrastructureError(
            f"--packets needs {PROGRAM}, which is not installed: apt install tshark, or install "
            "Wireshark"
        )
    path.unlink(missing_ok=True)
    process = subprocess.Popen(  # noqa: S603 (a program found by which, and no shell)
        [
            *(sys.executable, "-I", "-S", parent_death.__file__, str(os.getpid())),
            "",  # as this user
            *(program, "-q", "-i", INTERFACE, "-w", str(path)),
            *("-f", f"tcp portrange {ports[0]}-{ports[-1]}"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C must end the testbed first, then the capture
    )
    try:
        _wait_until_started(process, path)
        yield
        _wait_until_quiet(path)
    finally:
        process.send_signal(signal.SIGINT)  # makes it flush
        try:
            _, output = process.communicate(timeout=STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            _, output = process.communicate()
    _check_dropped(path, output.decode(errors="replace"))


def _wait_until_started(process: subprocess.Popen[bytes], path: Path) -> None:
    """Wait until packets are captured."""
    assert process.stderr is not None
    os.set_blocking(process.stderr.fileno(), False)
    output = b""
    deadline = time.monotonic() + START_TIMEOUT
    while b"File: " not in output:
        output += process.stderr.read() or b""
        if process.poll() is not None:
            output += process.stderr.read() or b""
            raise InfrastructureError(f"{path}: packets cannot be captured: {_reason(output)}")
        if time.monotonic() > deadline:
            raise InfrastructureError(f"{PROGRAM} did not start within {START_TIMEOUT:g} s")
        time.sleep(0.02)
    os.set_blocking(process.stderr.fileno(), True)


def _reason(output: bytes) -> str:
    """Return why the program failed, from what it wrote to standard error."""
    lines = [line.strip() for line in output.decode(errors="replace").splitlines()]
    lines = [line for line in lines if line and not line.startswith("Capturing on")]
    reason = lines[0].removeprefix(f"{PROGRAM}: ") if lines else f"{PROGRAM} gave no reason"
    if "permission to capture" in reason:
        return "this needs root, or the permission to capture (on Debian: the group wireshark)"
    return reason


def _wait_until_quiet(path: Path) -> None:
    """Wait until the last packet was written."""
    deadline = time.monotonic() + STOP_TIMEOUT
    size, since = -1, time.monotonic()
    while time.monotonic() < min(since + QUIET, deadline):
        now = path.stat().st_size
        if now != size:
            size, since = now, time.monotonic()
        time.sleep(0.05)


def _check_dropped(path: Path, output: str) -> None:
    """Refuse an incomplete capture, by the program's final statistics."""
    _, _, counts = output.rpartition("Packets received/dropped on interface")
    _, _, numbers = counts.partition(": ")
    dropped = numbers.partition(" ")[0].partition("/")[2]
    if dropped.isdigit() and int(dropped):
        raise InfrastructureError(f"{path}: incomplete, {int(dropped):,} packets were dropped")
