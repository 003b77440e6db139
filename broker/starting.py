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

from broker import mosquitto, tls
from broker.access import Access, Guard, Participants
from broker.address import SCHEMES, Address
from broker.knocking import knock
from fogveil.errors import InputError, SurroundingsError
from fogveil.identity import Credentials, Identity

Kind = Literal["mosquitto", "builtin", "external"]
CHOICES = "auto, mosquitto, builtin or mqtt[s]://host[:port]"
HOST = "127.0.0.1"
LOG = "broker.log"
ACCESS = "access.json"
START_WITHIN = 10.0
STOP_WITHIN = 3.0
ATTEMPTS = 5
"""Ports that are tried before we give up."""
BETWEEN_KNOCKS = 0.01


@dataclass(slots=True)
class RunningBroker:
    """A broker that accepts connections at `address`."""

    kind: Kind
    address: str
    process: subprocess.Popen[bytes] | None = None
    identity: Identity | None = None
    """What it proves to its clients, where it is ours and the run has identities."""

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


def check_choice(choice: str) -> None:
    """Refuse what names no broker."""
    if choice.startswith(SCHEMES):
        Address.parse(choice)
    elif choice not in {"auto", "mosquitto", "builtin"}:
        raise InputError(f"broker: expected {CHOICES}, not {choice!r}")


def start_broker(
    choice: str,
    folder: Path,
    *,
    credentials: Credentials | None = None,
    participants: Participants | None = None,
    port: int = 0,
    user: int | None = None,
) -> RunningBroker:
    """Start the chosen broker with its files in `folder`, and return when it takes connections.

    `auto` is mosquitto where it is installed, else the built-in broker. With credentials of its own
    it speaks TLS, and lets each of the participants do what `broker.access` says; without, anybody
    may do anything. A broker that is there already is used as it is: who may do what there is its
    owner's business. A launcher that is root may name a user for it to run as.

    It dies with its launcher; call this from the main thread, or from one that outlives the broker,
    because Linux takes the end of the thread for the end of the launcher.
    """
    if credentials and not participants:
        raise ValueError("who shows a certificate has to be one of the participants")
    check_choice(choice)
    if choice.startswith(SCHEMES):
        address = Address.parse(choice)
        knock(address, tls.for_participant(None, None) if address.tls else None)
        return RunningBroker("external", choice)
    guard = None
    if credentials and participants:
        guard = Guard(participants.broker, credentials, Access.of(participants))
    executable = None
    if choice == "mosquitto":
        executable = mosquitto.required()
    elif choice == "auto":
        executable = mosquitto.find()
        if executable and guard and not mosquitto.find_plugin(executable):
            executable = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            broker = _start(executable, folder, port, log, guard, user)
        finally:
            os.close(log)
    except OSError as error:
        raise SurroundingsError(
            f"broker: cannot be started in {folder}: {error.strerror or error}"
        ) from error
    if broker is None:
        raise SurroundingsError(f"broker: it does not start: see {folder / LOG}")
    return broker


def _start(
    executable: str | None,
    folder: Path,
    port: int,
    log: int,
    guard: Guard | None,
    user: int | None,
) -> RunningBroker | None:
    """Try until a broker answers: a port can be lost to somebody else at the last moment."""
    for _ in range(1 if port else ATTEMPTS):
        with reserve(port) as reserved:
            address = Address(HOST, reserved.getsockname()[1], tls=guard is not None)
            if executable is None:
                process = _launch_builtin(folder, address, log, guard, user)
            else:
                process = mosquitto.launch(executable, folder, address, log, guard, user)
            broker = RunningBroker(
                "mosquitto" if executable else "builtin",
                str(address),
                process,
                guard.identity if guard else None,
            )
            answers = False
            try:
                answers = _answers(broker, address, guard)
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


def _launch_builtin(
    folder: Path, address: Address, log: int, guard: Guard | None, user: int | None
) -> subprocess.Popen[bytes]:
    options = ["--port", str(address.port), "--lifeline"]
    if user is not None:
        options += ["--user", str(user)]
    if guard:
        guard.access.write(folder / ACCESS)
        options += ["--access", str(folder / ACCESS), "--identity", str(guard.credentials.folder)]
    return subprocess.Popen(  # noqa: S603 - no shell, and nothing a stranger chose
        # -P: a folder of the same name where the user happens to stand is not meant.
        [sys.executable, "-P", "-m", "broker", *options],
        stdin=subprocess.PIPE,  # its end is the end of the broker
        stdout=log,
        stderr=log,
        start_new_session=True,  # Ctrl-C in a terminal is for the launcher alone
    )


def _answers(broker: RunningBroker, address: Address, guard: Guard | None) -> bool:
    """Wait until the broker takes a connection; say no if it ends instead."""
    # Its own certificate serves: it lets whoever shows it connect, and do nothing.
    context = tls.for_participant(guard.identity, guard.credentials) if guard else None
    deadline = time.monotonic() + START_WITHIN
    while broker.alive():
        try:
            knock(address, context, patience=1.0)
        except SurroundingsError:
            if time.monotonic() > deadline:
                raise
            time.sleep(BETWEEN_KNOCKS)
        else:
            return True
    return False
