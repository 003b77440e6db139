"""Launching participants as containers on networks of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import requests
from docker.errors import DockerException

from fogveil.broker.launcher import LOG as BROKER_LOG
from fogveil.core.files import give_to, open_private
from fogveil.core.safe_text import safe_text
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import BROKER, Identity
from fogveil.protocol.roster import Roster
from fogveil.testbed.launch.docker.broker_setup import (
    BUILTIN,
    BrokerSetup,
    check_broker,
    set_up_broker,
)
from fogveil.testbed.launch.docker.container import ContainerProcess
from fogveil.testbed.launch.docker.engine_client import (
    PARTICIPANT_LABEL,
    ContainerSpec,
    EngineClient,
    engine_errors,
)
from fogveil.testbed.launch.docker.image_build import (
    MOSQUITTO,
    PARTICIPANT_ROLES,
    build_images,
    image_of,
    pull_image,
)
from fogveil.testbed.launch.docker.layout import Layout
from fogveil.testbed.launch.interface import PAUSED, PROGRAMS, Event, HealthChange
from fogveil.testbed.launch.output_reader import OutputReader
from fogveil.testbed.launch.run_folder import LOG_SHARE

HEALTH_EVENT = "health_status: "
HEALTH_OF_ACTION = {"pause": PAUSED, "unpause": "unpause", "kill": "kill", "oom": "oom"}
"""What an action of the engine means for a container's health."""


class BrokerContainer:
    """The broker in its container."""

    def __init__(self, setup: BrokerSetup, process: ContainerProcess) -> None:
        self._setup, self._process = setup, process

    @property
    def kind(self) -> str:
        """Which broker it is."""
        return self._setup.kind

    @property
    def address(self) -> str:
        """Where participants dial it, by the name that the networks give it."""
        return self._setup.address

    @property
    def reach_address(self) -> str:
        """The same: who needs one that this machine can reach takes `at`."""
        return self.address

    @property
    def identity(self) -> Identity | None:
        """What it proves to its clients, where the run has identities."""
        return self._setup.identity

    @property
    def pid(self) -> int:
        """Its process id on the engine's machine."""
        return self._process.pid

    def alive(self) -> bool:
        """Return whether it runs."""
        return self._process.poll() is None

    def anew(self, process: ContainerProcess) -> BrokerContainer:
        """Return the same broker in another container."""
        return BrokerContainer(self._setup, process)

    def at(self, address: str) -> BrokerContainer:
        """Return the same broker with another of its addresses."""
        return BrokerContainer(replace(self._setup, address=address), self._process)


class DockerLauncher:
    """Starts a container for each participant; `layout` says who meets whom on which network."""

    def __init__(self, broker: str, progress: Callable[[str], None] = lambda _line: None) -> None:
        check_broker(broker)
        self._broker_choice, self._progress = broker, progress
        self._engine: EngineClient | None = None
        self._layout: Layout | None = None
        self._output = OutputReader()
        self._containers: dict[str, str] = {}
        """The last container of each participant."""
        self._health: SimpleQueue[HealthChange] = SimpleQueue()
        self._closing = ExitStack()
        self._closing.callback(self._output.close)
        self._broker_log: Path | None = None
        self._broker_written = 0
        """Characters in its log."""

    @property
    def layout(self) -> Layout:
        """The networks and addresses, once they exist."""
        assert self._layout is not None
        return self._layout

    @property
    def engine(self) -> EngineClient:
        """The connection to the engine, once there is one."""
        assert self._engine is not None
        return self._engine

    # --- starting --------------------------------------------------------------------------------

    @engine_errors("the testbed cannot be started")
    def prepare(self, run: str, roster: Roster, folder: Path) -> Layout:
        """Build or pull the images, create the networks, and watch for events."""
        self._engine = engine = EngineClient(run, folder)
        self._closing.callback(engine.close)
        self._closing.callback(engine.remove)
        engine.remove()  # what a launcher that was lost has left of the run
        roles = [*PARTICIPANT_ROLES, *([BROKER] if self._broker_choice == BUILTIN else [])]
        build_images(engine.api, roles, self._progress)
        if self._broker_choice != BUILTIN:
            pull_image(engine.api, MOSQUITTO, self._progress)
        self._layout = engine.create_networks(lambda block: Layout(roster, block))
        self._watch(run)
        return self._layout

    def _watch(self, run: str) -> None:
        """Read the engine's events in a thread, on a connection of their own: reading blocks."""
        connection = EngineClient(run)
        self._closing.callback(connection.close)
        events = connection.events()
        self._closing.callback(events.close)
        Thread(target=self._read_events, args=(events,), daemon=True).start()

    def _read_events(self, events: Any) -> None:
        try:
            for event in events:
                action = event["Action"]
                name = event["Actor"]["Attributes"].get(PARTICIPANT_LABEL, "?")
                if action.startswith(HEALTH_EVENT):
                    self._health.put(HealthChange(name, action.removeprefix(HEALTH_EVENT)))
                elif action in HEALTH_OF_ACTION:
                    self._health.put(HealthChange(name, HEALTH_OF_ACTION[action]))
        except (DockerException, requests.exceptions.RequestException, OSError, ValueError):
            pass  # the engine is gone, which the participants' handles report

    @engine_errors("the broker cannot be started")
    def start_broker(
        self,
        folder: Path,
        run: str,
        roster: Roster,
        credentials: Credentials | None,
        user: int | None,
    ) -> BrokerContainer:
        """Start the broker; participants wait for it by themselves."""
        setup = set_up_broker(
            self._broker_choice, folder, self.layout, run, roster if credentials else None
        )
        self._broker_log = folder / BROKER_LOG
        open_private(self._broker_log, "a").close()
        give_to(user, folder)
        self._start_broker_again = partial(
            self._start, BROKER, setup.image, setup.command, folder, user
        )
        self._broker = BrokerContainer(setup, self._start_broker_again())
        return self._broker

    @engine_errors("the broker cannot be started")
    def restart_broker(self) -> BrokerContainer:
        """End what is left of the broker, and start it again where it was."""
        self._broker = self._broker.anew(self._start_broker_again())
        return self._broker

    @engine_errors("a participant cannot be started")
    def start(self, name: str, role: str, config: Path, user: int | None) -> ContainerProcess:
        """Start a participant's container as its user."""
        command = ["python", "-P", "-m", PROGRAMS[role], "--config", config.name]
        return self._start(name, image_of(role), command, config.parent, user)

    def _start(
        self, name: str, image: str, command: list[str], folder: Path, user: int | None
    ) -> ContainerProcess:
        owner = (os.getuid(), os.getgid()) if user is None else (user, user)
        spec = ContainerSpec(name, image, command, folder, owner)
        if name in self._containers:  # it has crashed, and its name and addresses are needed
            self.engine.remove_container(self._containers[name])
        self._containers[name] = container = self.engine.create_container(self.layout, spec)
        process = ContainerProcess(self.engine.api, container, name, self._output)
        self._closing.callback(process.disconnect)
        return process

    # --- addresses -------------------------------------------------------------------------------

    def fixed_port(self, name: str) -> int:
        """Return the port on which a container listens, the same in every run."""
        return self.layout.port(name)

    def dial_address(self, name: str, port: int | None) -> str:
        """Return a container's address, by its name, which its networks resolve."""
        return f"{self.layout.service(name)}:{port}"

    def reach_address(self, name: str, port: int | None) -> str:
        """Return a container's address in numbers."""
        return f"{self.reach_host(name)}:{port}"

    def reach_host(self, name: str) -> str:
        """Return a container's address, which the engine's machine has a route to."""
        return self.layout.home(name).address(name)

    # --- running ---------------------------------------------------------------------------------

    def events(self, timeout: float) -> Iterator[Event]:
        """Yield what participants wrote and what the engine reports of their containers."""
        for line in self._output.lines(timeout):
            if line.name == BROKER:
                self._log_broker(line.text)
            else:
                yield line
        while True:
            try:
                yield self._health.get_nowait()
            except Empty:
                return

    def _log_broker(self, line: str) -> None:
        """Keep the broker's log where a broker on this machine writes it."""
        assert self._broker_log is not None
        self._broker_written += len(line) + 1
        if self._broker_written > LOG_SHARE:
            return
        with self._broker_log.open("a", encoding="utf-8") as log:
            log.write(f"{safe_text(line)}\n")

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Disconnect from the containers, and remove them with their networks."""
        self._closing.close()
