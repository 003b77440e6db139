"""Starting the broker that a user chose, and stopping it."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from broker import mosquitto
from broker.address import SCHEME, Address
from broker.probe import probe
from fogveil.errors import InputError, SurroundingsError

Kind = Literal["mosquitto", "builtin", "external"]
CHOICES = "auto, mosquitto, builtin or mqtt://host[:port]"
HOST = "127.0.0.1"
LOG = "broker.log"
START_WITHIN = 10.0
STOP_WITHIN = 3.0
ATTEMPTS = 5
"""Ports that are tried before we give up."""
BETWEEN_PROBES = 0.01


@dataclass(slots=True)
class RunningBroker:
    """A broker that accepts connections at `address`."""

    kind: Kind
    address: str
    process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process, where it is ours."""
        return None if self.process is None else self.process.pid

    def alive(self) -> bool:
        """Say whether its process runs; one that is not ours shows its loss to its clients only."""
        return self.process is None or self.process.poll() is None

    def stop(self) -> None:
        """End it, by force if it takes more than 3 seconds; a broker that is not ours goes on."""
        process = self.process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdin is not None:
            process.stdin.close()


def start_broker(choice: str, folder: Path, *, port: int = 0) -> RunningBroker:
    """Start the chosen broker with its files in `folder`, and return when it takes connections.

    `auto` is mosquitto where it is installed, else the built-in broker. It dies with its launcher;
    call this from the main thread, or from one that outlives the broker, because Linux takes the
    end of the thread for the end of the launcher.
    """
    if choice.startswith(SCHEME):
        address = Address.parse(choice)
        probe(address)
        return RunningBroker("external", choice)
    if choice not in {"auto", "mosquitto", "builtin"}:
        raise InputError(f"broker: expected {CHOICES}, not {choice!r}")
    executable = mosquitto.required() if choice == "mosquitto" else None
    if choice == "auto":
        executable = mosquitto.find()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            broker = _start(executable, folder, port, log)
        finally:
            os.close(log)
    except OSError as error:
        raise SurroundingsError(
            f"broker: cannot be started in {folder}: {error.strerror or error}"
        ) from error
    if broker is None:
        raise SurroundingsError(f"broker: it does not start: see {folder / LOG}")
    return broker


def _start(executable: str | None, folder: Path, port: int, log: int) -> RunningBroker | None:
    """Try until a broker answers: a port can be lost to somebody else at the last moment."""
    for _ in range(1 if port else ATTEMPTS):
        with reserve(port) as reserved:
            address = Address(*reserved.getsockname())
            if executable is None:
                broker = RunningBroker("builtin", str(address), _launch_builtin(address, log))
            else:
                process = mosquitto.launch(executable, folder, address, log)
                broker = RunningBroker("mosquitto", str(address), process)
            answers = False
            try:
                answers = _answers(broker, address)
            finally:
                if not answers:
                    broker.stop()
        if answers:
            return broker
    return None


def reserve(port: int = 0) -> socket.socket:
    """Take a port (0: any that is free) without listening on it.

    While the socket is open nobody is given the port by chance; the broker, which asks for it by
    number and lets addresses be reused, as we do, still gets it.
    """
    taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((HOST, port))
    except (OSError, OverflowError) as error:
        taken.close()
        in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        reason = "is taken" if in_use else f"cannot be used: {error}"
        raise SurroundingsError(f"broker: port {port} {reason}") from error
    return taken


def _launch_builtin(address: Address, log: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - no shell, and nothing a stranger chose
        # -P: a folder of the same name where the user happens to stand is not meant.
        [sys.executable, "-P", "-m", "broker", "--port", str(address.port), "--lifeline"],
        stdin=subprocess.PIPE,  # its end is the end of the broker
        stdout=log,
        stderr=log,
        start_new_session=True,  # Ctrl-C in a terminal is for the launcher alone
    )


def _answers(broker: RunningBroker, address: Address) -> bool:
    """Wait until the broker takes a connection; say no if it ends instead."""
    deadline = time.monotonic() + START_WITHIN
    while broker.alive():
        try:
            probe(address, patience=1.0)
        except SurroundingsError:
            if time.monotonic() > deadline:
                raise
            time.sleep(BETWEEN_PROBES)
        else:
            return True
    return False
