"""Capturing the packets of a testbed on this machine, with the program that Wireshark uses."""

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

from broker import tether
from fogveil.errors import SurroundingsError

PROGRAM = "dumpcap"
INTERFACE = "lo" if sys.platform.startswith("linux") else "lo0"
FIRST, LAST = 20_000, 32_000
"""Ports below those that systems give to clients: nobody takes them between choice and use."""
TRIES = 100
STARTING = 30.0
"""Seconds in which the capture must have begun."""
SETTLING, LATEST = 1.0, 15.0
"""Seconds without a further packet after which the last one was written, and to wait for that."""


def free_ports(number: int) -> tuple[int, ...]:
    """Choose ports in a row that are free, so that one short filter names them all."""
    for _ in range(TRIES):
        first = random.randrange(FIRST, LAST - number)  # noqa: S311 (no secret)
        ports = tuple(range(first, first + number))
        if all(map(_is_free, ports)):
            return ports
    raise SurroundingsError(f"no {number} ports in a row are free")


def _is_free(port: int) -> bool:
    with socket.socket() as trying:
        trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trying.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@contextmanager
def capturing(path: Path, ports: tuple[int, ...]) -> Iterator[None]:
    """Capture what goes over these ports into a file, for as long as the context lasts."""
    program = shutil.which(PROGRAM, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        raise SurroundingsError(
            f"--packets needs {PROGRAM}, which is not installed: apt install tshark, or "
            "Wireshark's package of another system"
        )
    path.unlink(missing_ok=True)
    process = subprocess.Popen(  # noqa: S603 (a path we looked up, and no shell)
        [
            *(sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), ""),  # as this user
            *(program, "-q", "-i", INTERFACE, "-w", str(path)),
            *("-f", f"tcp portrange {ports[0]}-{ports[-1]}"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the testbed; the capture sees its end
    )
    try:
        _begun(process, path)
        yield
        _settled(path)
    finally:
        process.send_signal(signal.SIGINT)  # lets it write the rest
        try:
            _, said = process.communicate(timeout=LATEST)
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
    _check_dropped(path, said.decode(errors="replace"))


def _begun(process: subprocess.Popen[bytes], path: Path) -> None:
    """Wait until packets are captured."""
    assert process.stderr is not None
    os.set_blocking(process.stderr.fileno(), False)
    said = b""
    deadline = time.monotonic() + STARTING
    while b"File: " not in said:
        said += process.stderr.read() or b""
        if process.poll() is not None:
            said += process.stderr.read() or b""
            raise SurroundingsError(f"{path}: packets cannot be captured: {_reason(said)}")
        if time.monotonic() > deadline:
            raise SurroundingsError(f"{PROGRAM} did not begin within {STARTING:g} s")
        time.sleep(0.02)
    os.set_blocking(process.stderr.fileno(), True)


def _reason(said: bytes) -> str:
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    words = [line for line in lines if not line.startswith("Capturing on")]
    reason = words[0].removeprefix(f"{PROGRAM}: ") if words else "it said nothing"
    if "permission to capture" in reason:
        return "this takes root, or the right to capture (on Debian: the group wireshark)"
    return reason


def _settled(path: Path) -> None:
    """Wait until the last packet was written."""
    deadline = time.monotonic() + LATEST
    size, since = -1, time.monotonic()
    while time.monotonic() < min(since + SETTLING, deadline):
        now = path.stat().st_size
        if now != size:
            size, since = now, time.monotonic()
        time.sleep(0.05)


def _check_dropped(path: Path, said: str) -> None:
    """Refuse a capture that is not whole, by what the program says at its end."""
    _, _, counts = said.rpartition("Packets received/dropped on interface")
    _, _, numbers = counts.partition(": ")
    dropped = numbers.partition(" ")[0].partition("/")[2]
    if dropped.isdigit() and int(dropped):
        raise SurroundingsError(f"{path}: {int(dropped):,} packets were lost, so it is not whole")
