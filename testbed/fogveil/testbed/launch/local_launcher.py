"""Launching participants as processes of this machine."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

from fogveil.broker.acl import BrokerSecurity
from fogveil.broker.address import Address
from fogveil.broker.launcher import BrokerEnclosure, RunningBroker, start_broker
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.enclosure import Enclosure
from fogveil.protocol.identity import AGENT, BROKER, CLOCK
from fogveil.protocol.namespaces import EnclosedProcess, Namespaces, pid_of
from fogveil.protocol.product_copy import module_arguments, module_command
from fogveil.protocol.roster import Roster
from fogveil.testbed.launch.interface import PROGRAMS, Event, Stream
from fogveil.testbed.launch.output_reader import Decode, OutputReader
from fogveil.testbed.launch.participant_config import LOOPBACK, UNIX, Plan, Site, local_site
from fogveil.testbed.launch.process_environment import (
    end_processes_of,
    participants_environment,
)
from fogveil.testbed.launch.protection import exposures, has_networks, namespaces_for, warn_of
from fogveil.testbed.launch.socket_folders import SocketFolders
from fogveil.testbed.scenario.load import files_read

READ_WITHIN = 2.0
"""Seconds in which the output of an ended process is read: a child of its may keep a pipe open."""


class LocalProcess:
    """A participant's process."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], output: OutputReader) -> None:
        self._name, self._process, self._output = name, process, output
        self._ended: float | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        return pid_of(self._process)

    @property
    def command(self) -> tuple[str, ...]:
        """What was started."""
        return tuple(map(str, cast("list[str]", self._process.args)))

    def poll(self) -> int | None:
        """Return its exit code once it has ended and its output was read."""
        code = self._process.poll()
        if code is not None and self._output.is_open(self._name):
            self._ended = self._ended or time.monotonic()
            if time.monotonic() < self._ended + READ_WITHIN:
                return None
        return code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code."""
        return self._process.wait(timeout)

    def terminate(self) -> None:
        """Ask it to end."""
        self._process.terminate()

    def kill(self) -> None:
        """End it by force."""
        self._process.kill()

    def send_signal(self, number: int, /) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def send_line(self, line: bytes, /) -> None:
        """Write a line to its standard input; one that has ended reads nothing."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):  # closed at either end
            os.write(self._process.stdin.fileno(), line)


class LocalSite(Site):
    """The machine that the launcher runs on, with enclosed participants."""

    def __init__(
        self,
        listeners: Mapping[str, str],
        namespaces: Namespaces,
        sockets: SocketFolders | None = None,
    ) -> None:
        super().__init__(listeners)
        self.namespaces, self.sockets = namespaces, sockets
        self.becomes_user = False


class LocalLauncher:
    """Starts a process for each participant, enclosed in namespaces where the system allows it.

    Enclosed participants meet at Unix sockets; otherwise, and where packets are captured, on
    loopback.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._namespaces: Namespaces = "none"
        self.sockets: SocketFolders | None = None
        """The sockets of the participants; None where they meet on loopback."""
        self._roster: Roster | None = None
        self._hidden: tuple[str, ...] = ()
        self._held: dict[str, EnclosedProcess | None] = {}
        """Who is to wait once it is enclosed, with its process once that has started."""
        self._output = OutputReader()
        self._closing = ExitStack()
        self._closing.callback(self._output.close)

    def prepare(self, _run: str, roster: Roster, folder: Path) -> Site:
        """Find out how participants can be kept apart, and create folders for their sockets."""
        plan = self._plan
        self._roster = roster
        self._namespaces = namespaces = namespaces_for(plan)
        secrets = sorted(files_read)
        warn_of(exposures(plan, namespaces, secrets))
        if namespaces == "none":
            return local_site(plan, roster)
        self._hidden = (str(folder.resolve()), *map(str, secrets))
        names = (CLOCK, *roster.fogs, roster.cloud)
        if not has_networks(plan, namespaces):
            site = local_site(plan, roster)
            return LocalSite({name: site.listen(name) for name in names}, namespaces)
        self.sockets = SocketFolders((*names, BROKER))
        self._hidden += (str(self.sockets.root),)
        self._closing.callback(self.sockets.remove)
        listeners = {name: UNIX + self.sockets.inside(name) for name in names}
        return LocalSite(listeners, namespaces, self.sockets)

    def start_broker(
        self,
        folder: Path,
        run: str,
        roster: Roster,
        credentials: Credentials | None,
        user: int | None,
    ) -> RunningBroker:
        """Start the broker that the plan names, and wait until it accepts connections."""
        enclosed = None
        if self.sockets:
            enclosed = BrokerEnclosure(
                self._namespaces,
                self._enclosure(BROKER, folder, user),
                self.sockets.inside(BROKER),
                self.sockets.outside(BROKER),
            )
        self._launch_broker = partial(
            start_broker,
            self._plan.broker,
            folder.resolve(),
            security=BrokerSecurity.for_run(run, roster, credentials) if credentials else None,
            user=user,
            enclosed=enclosed,
            product=self._plan.product,
        )
        self._broker = self._launch_broker()
        self._closing.callback(self._stop_broker)
        return self._broker

    def _stop_broker(self) -> None:
        self._broker.stop()

    def restart_broker(self) -> RunningBroker:
        """End what is left of the broker, and start it again where it was."""
        before = self._broker
        before.stop(gently=False)
        if before.socket:
            Path(before.socket).unlink(missing_ok=True)
            self._broker = self._launch_broker()
        elif before.kind != "external":
            self._broker = self._launch_broker(port=Address.parse(before.address).port)
        return self._broker

    def start(self, name: str, role: str, config: Path, user: int | None) -> LocalProcess:
        """Start a participant.

        In namespaces, and from a copy of the product, it is that user before its own code begins;
        else it becomes that user by itself once it has read its settings.
        """
        module, product = PROGRAMS[role], self._plan.product
        arguments = ["--config", str(config.resolve())]
        options: dict[str, Any] = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "env": participants_environment(),
            # Ctrl-C reaches the launcher alone, which ends the others. (Sessions of their own would
            # do that, too, but Linux shares the CPU out by sessions, and badly among many.)
            "process_group": 0,
        }
        process: subprocess.Popen[bytes]
        if self._namespaces == "none":
            if user is not None and role == AGENT:
                self._closing.callback(end_processes_of, user)
            if product and user is not None:
                arguments = ["--config", config.name]  # it starts in its folder
            command = [*module_command(module, product, user, config.parent), *arguments]
            # The end of its standard input tells the participant that the launcher is gone.
            process = subprocess.Popen(command, stdin=subprocess.PIPE, **options)  # noqa: S603
        else:
            enclosure = self._enclosure(name, config.parent, user)
            network = self.sockets is not None
            arguments = [*module_arguments(module, product), *arguments]
            process = EnclosedProcess(
                self._namespaces, enclosure, arguments, network=network, **options
            )
            if name in self._held:
                self._held[name] = process
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            self._closing.callback(stream.close)
        self._output.add(name, process.stdout, _always("stdout"))
        self._output.add(name, process.stderr, _always("stderr"))
        return LocalProcess(name, process, self._output)

    def hold(self, name: str) -> None:
        """Let a participant that is started later wait once it is enclosed, where it is at all."""
        self._held[name] = None

    def let_go(self, name: str) -> None:
        """Let a participant go on that is held."""
        if process := self._held.pop(name):
            process.let_go()

    def _enclosure(self, name: str, folder: Path, user: int | None) -> Enclosure:
        """Return what a participant finds of this machine."""
        sockets = self.sockets
        return Enclosure(
            folder=str(folder.resolve()),
            user=user,
            sockets=sockets.dialled(name, self._callees(name)) if sockets else (),
            own_socket=sockets.own(name, user) if sockets and name in sockets else None,
            readable=(str(self._plan.product),) if self._plan.product else (),
            hidden=self._hidden,
            held=name in self._held,
        )

    def _callees(self, name: str) -> tuple[str, ...]:
        """Return whom a participant dials."""
        assert self._roster is not None
        if name in (CLOCK, BROKER):
            return ()
        providers = (*self._roster.fogs, self._roster.cloud) if name == AGENT else ()
        return (CLOCK, BROKER, *providers)

    def fixed_port(self, _name: str) -> None:
        """Return None: a process reports its port, even one that the plan has asked for."""

    def dial_address(self, name: str, port: int | None) -> str:
        """Return the path of its socket as participants see it, or its port on loopback."""
        return UNIX + self.sockets.inside(name) if self.sockets else f"{LOOPBACK}:{port}"

    def reach_address(self, name: str, port: int | None) -> str:
        """Return the path of its socket on this machine, or its port on loopback."""
        return UNIX + self.sockets.outside(name) if self.sockets else f"{LOOPBACK}:{port}"

    def events(self, timeout: float) -> Iterable[Event]:
        """Return the lines that participants wrote."""
        return self._output.lines(timeout)

    def close(self) -> None:
        """Close the participants' streams, then end the broker."""
        self._closing.close()


def _always(stream: Stream) -> Decode:
    """Return a decoder for a pipe that carries one stream alone."""
    return lambda chunk: ((stream, chunk),)
