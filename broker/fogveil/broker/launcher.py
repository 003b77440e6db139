"""Start the broker that the user chose, and stop it."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fogveil.broker import builtin, mosquitto, tls
from fogveil.broker.acl import BrokerSecurity
from fogveil.broker.address import PORTS, SCHEMES, Address
from fogveil.broker.healthcheck import check_reachable
from fogveil.core.errors import InfrastructureError, InputError
from fogveil.core.files import give_to, open_private
from fogveil.core.safe_text import safe_text
from fogveil.protocol.enclosure import Enclosure
from fogveil.protocol.identity import Identity
from fogveil.protocol.namespaces import EnclosedProcess, Namespaces, pid_of
from fogveil.protocol.product_copy import module_arguments, module_command

Kind = Literal["mosquitto", "builtin", "external"]
CHOICES = "auto, mosquitto, builtin or mqtt[s]://host[:port]"
HOST = "127.0.0.1"
LOG = "broker.log"
LOG_READ = 2**20
"""Bytes that are read of it."""
ACCESS = "access.json"
START_TIMEOUT = 60.0
STOP_TIMEOUT = 3.0
ATTEMPTS = 5
"""Ports to try before giving up."""
POLL_INTERVAL = 0.01
RELAY = "fogveil.broker.relay"


@dataclass(frozen=True, slots=True)
class BrokerEnclosure:
    """Namespaces for a broker, whose only listener is then a Unix socket."""

    namespaces: Namespaces
    enclosure: Enclosure
    socket: str
    """The path of the socket, as the broker and its clients see it."""
    reached_at: str
    """The path of the socket, as this process sees it."""

    def start(self, arguments: list[str], log: int) -> EnclosedProcess:
        """Start a module or a program enclosed."""
        return EnclosedProcess(
            self.namespaces,
            self.enclosure,
            arguments,
            network=True,
            stdout=log,
            stderr=log,
            umask=0o077,
            start_new_session=True,  # Ctrl-C in a terminal is for the launcher alone
        )


@dataclass(slots=True)
class RunningBroker:
    """A broker that accepts connections at `address`."""

    kind: Kind
    address: str
    process: subprocess.Popen[bytes] | None = None
    """The broker, or the relay to an external one; None where an external one needs none."""
    identity: Identity | None = None
    """What it proves to its clients; None where it is external or the run has no identities."""
    socket: str | None = None
    """The path, on this machine, of the Unix socket at which an enclosed broker listens."""

    @property
    def reach_address(self) -> str:
        """Where this process reaches it."""
        if self.socket is None:
            return self.address
        return Address.parse(self.address)._replace(socket=self.socket).url

    @property
    def pid(self) -> int | None:
        """Its process id; None where it is external."""
        if self.process is None or self.kind == "external":
            return None
        return pid_of(self.process)

    def alive(self) -> bool:
        """Return whether its process, or the relay to it, runs; else it is taken to run."""
        return self.process is None or self.process.poll() is None

    def stop(self, *, gently: bool = True) -> None:
        """Terminate its process, and kill it after 3 seconds, or at once.

        An external broker is left alone.
        """
        process = self.process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM if gently else signal.SIGKILL)
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdin is not None:
            process.stdin.close()


def cut_off_clients(folder: Path) -> list[str]:
    """Return whose connections the broker in a folder closed for having sent or asked too much."""
    try:
        with (folder / LOG).open("rb") as log:
            text = log.read(LOG_READ).decode(errors="replace")
    except OSError:
        return []
    patterns = (mosquitto.CUT_OFF, builtin.CUT_OFF)
    found = [(match.start(), match[1]) for each in patterns for match in each.finditer(text)]
    return [safe_text(name) for _, name in sorted(found)]


def check_choice(choice: str) -> None:
    """Raise InputError where a choice names no broker."""
    if choice.startswith(SCHEMES):
        Address.parse(choice)
    elif choice not in {"auto", "mosquitto", "builtin"}:
        raise InputError(f"broker: expected {CHOICES}, not {choice!r}")


def start_broker(
    choice: str,
    folder: Path,
    *,
    security: BrokerSecurity | None = None,
    port: int = 0,
    user: int | None = None,
    enclosed: BrokerEnclosure | None = None,
    product: Path | None = None,
) -> RunningBroker:
    """Start the chosen broker with its files in `folder`; return when it accepts connections.

    `auto` is mosquitto where it is installed, else the built-in broker. With `security` it speaks
    TLS and enforces the access list; without, every client may do everything. An address names an
    external broker, which is used as it is configured. As root, `user` is the user to run as.
    With `enclosed` the broker, or a relay to the external one, is reached through a Unix socket.
    The built-in broker runs from the copy of the product where one is given.

    The broker ends with its launcher. Call this from the main thread, or from one that outlives the
    broker, because Linux reports the end of the thread as the end of the launcher.
    """
    check_choice(choice)
    if choice.startswith(SCHEMES):
        address = Address.parse(choice)
        check_reachable(address, tls.client_context(None, None) if address.tls else None)
        return (
            _start_relay(address, folder, user, enclosed)
            if enclosed
            else RunningBroker("external", choice)
        )
    executable = None
    if choice == "mosquitto":
        executable = mosquitto.require()
    elif choice == "auto":
        executable = mosquitto.find()
        if executable and security and not mosquitto.find_plugin(executable):
            executable = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open_private(folder / LOG, "ab") as log:
            if enclosed:
                broker = _start_enclosed(
                    executable, folder, log.fileno(), security, user, enclosed, product
                )
            else:
                broker = _start(executable, folder, port, log.fileno(), security, user, product)
    except OSError as error:
        raise InfrastructureError(
            f"broker: cannot be started in {folder}: {error.strerror or error}"
        ) from error
    if broker is None:
        raise InfrastructureError(f"broker: it does not start: see {folder / LOG}")
    return broker


def _start(
    executable: str | None,
    folder: Path,
    port: int,
    log: int,
    security: BrokerSecurity | None,
    user: int | None,
    product: Path | None,
) -> RunningBroker | None:
    """Start brokers until one answers: another process may take a free port before it does."""
    for _ in range(1 if port else ATTEMPTS):
        with reserve(port) as reserved:
            address = Address(HOST, reserved.getsockname()[1], tls=security is not None)
            if executable is None:
                process = _launch_builtin(folder, address, log, security, user, product)
            else:
                process = mosquitto.launch(executable, folder, address, log, security, user)
            broker = RunningBroker(
                "mosquitto" if executable else "builtin",
                str(address),
                process,
                security.identity if security else None,
            )
            ready = False
            try:
                ready = _wait_until_ready(broker, address, security)
            finally:
                if not ready:
                    broker.stop()
        if ready:
            return broker
    return None


def _start_enclosed(
    executable: str | None,
    folder: Path,
    log: int,
    security: BrokerSecurity | None,
    user: int | None,
    enclosed: BrokerEnclosure,
    product: Path | None,
) -> RunningBroker | None:
    """Start a broker in namespaces of its own; None if it ends before it answers."""
    secure = security is not None
    address = Address("broker", PORTS["mqtts" if secure else "mqtt"], tls=secure)
    address = address._replace(socket=enclosed.socket)
    if executable is None:
        arguments = [*module_arguments("fogveil.broker", product)]
        arguments += _builtin_options(folder, security)
        arguments += ["--socket", enclosed.socket]
    else:
        plugin = mosquitto.require_plugin(executable) if security else None
        mosquitto.write_files(folder, address, security, plugin)
        arguments = [executable, "-c", mosquitto.CONFIGURATION]
    give_to(user, folder)
    broker = RunningBroker(
        "mosquitto" if executable else "builtin",
        str(address),
        enclosed.start(arguments, log),
        security.identity if security else None,
        enclosed.reached_at,
    )
    ready = False
    try:
        ready = _wait_until_ready(broker, Address.parse(broker.reach_address), security)
    finally:
        if not ready:
            broker.stop()
    if not ready:
        return None
    os.chmod(enclosed.reached_at, 0o666)  # noqa: PTH101, S103 (who reaches the folder may connect)
    return broker


def _start_relay(
    address: Address, folder: Path, user: int | None, enclosed: BrokerEnclosure
) -> RunningBroker:
    """Start a relay from a Unix socket to an external broker, whose network we share."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--socket", enclosed.reached_at, "--host", address.host, "--port", str(address.port)]
    if user is not None:
        options += ["--user", str(user)]
    with open_private(folder / LOG, "ab") as log:
        process = subprocess.Popen(  # noqa: S603 - no shell, and no argument from outside
            [*module_command(RELAY), *options],
            stdin=subprocess.PIPE,  # the lifeline
            stdout=log.fileno(),
            stderr=log.fileno(),
            start_new_session=True,  # Ctrl-C in a terminal is for the launcher alone
        )
    inside = address._replace(socket=enclosed.socket)
    broker = RunningBroker("external", inside.url, process, socket=enclosed.reached_at)
    deadline = time.monotonic() + START_TIMEOUT
    while not Path(enclosed.reached_at).exists():
        if not broker.alive() or time.monotonic() > deadline:
            broker.stop()
            raise InfrastructureError(f"broker: the relay to it does not start: see {folder / LOG}")
        time.sleep(POLL_INTERVAL)
    return broker


def reserve(port: int = 0) -> socket.socket:
    """Return a socket that holds a port (0: any free one) without listening on it.

    While it is open the system gives the port to nobody as a free one. The broker, which asks for
    it by number and sets SO_REUSEADDR as this socket does, still gets it.
    """
    reserved = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((HOST, port))
    except (OSError, OverflowError) as error:
        reserved.close()
        in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        reason = "is taken" if in_use else f"cannot be used: {error}"
        raise InfrastructureError(f"broker: port {port} {reason}") from error
    return reserved


def _launch_builtin(
    folder: Path,
    address: Address,
    log: int,
    security: BrokerSecurity | None,
    user: int | None,
    product: Path | None,
) -> subprocess.Popen[bytes]:
    moves = user is not None and product is not None  # it is that user before it runs, and there
    options = _builtin_options(folder, security, start=folder if moves else None)
    options += ["--port", str(address.port)]
    if moves:
        give_to(user, folder)
    elif user is not None:
        options += ["--user", str(user)]
    return subprocess.Popen(  # noqa: S603 - no shell, and no argument from outside
        [*module_command("fogveil.broker", product, user, folder), *options],
        stdin=subprocess.PIPE,  # the lifeline
        stdout=log,
        stderr=log,
        start_new_session=True,  # Ctrl-C in a terminal is for the launcher alone
    )


def _builtin_options(
    folder: Path, security: BrokerSecurity | None, start: Path | None = None
) -> list[str]:
    """Return its options, with paths relative to where it starts if that is given."""
    options = ["--lifeline"]
    if security:
        # It may start in another folder than ours.
        access, identity = (folder / ACCESS).resolve(), security.credentials.folder.resolve()
        security.access.write(access)
        if start:
            start = start.resolve()
            access, identity = access.relative_to(start), identity.relative_to(start)
        options += ["--access", str(access), "--identity", str(identity)]
    return options


def _wait_until_ready(
    broker: RunningBroker, address: Address, security: BrokerSecurity | None
) -> bool:
    """Wait until the broker accepts a connection; return False if its process ends before."""
    # The broker's own certificate serves: that identity may connect, and has no rights.
    context = tls.client_context(security.identity, security.credentials) if security else None
    deadline = time.monotonic() + START_TIMEOUT
    while broker.alive():
        try:
            check_reachable(address, context, timeout=10.0)
        except InfrastructureError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_INTERVAL)
        else:
            return True
    return False
