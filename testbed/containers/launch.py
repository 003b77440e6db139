"""Bringing a testbed up as containers: what differs from processes, and nothing else."""

from __future__ import annotations

import os
import selectors
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread, current_thread, main_thread
from typing import Any

import requests
from docker.errors import DockerException

from broker.access import Access, Guard, Participants
from broker.address import SCHEMES, Address
from broker.mosquitto import CONFIGURATION, PLUGIN, write_files
from broker.starting import ACCESS, LOG
from fogveil.errors import InputError
from fogveil.identity import BROKER, CLOCK, Credentials, Identity
from testbed.containers.engine import (
    INSIDE,
    MOSQUITTO,
    PROVIDER,
    TESTBED,
    Contained,
    Engine,
    Mount,
    told,
)
from testbed.containers.layout import EVERYWHERE, Layout
from testbed.federated.apart import users_of
from testbed.federated.launch import COLOURS, PAUSED, Participant, RelayingBroker, Testbed
from testbed.federated.split import Plan, Split, seats
from testbed.world import World

PLUGIN_PLACE = Path("/usr/lib") / PLUGIN
"""Where the public image of mosquitto has its plugin."""
FRAME = struct.Struct(">BxxxL")
"""Before every piece of a container's output: which stream it is of, and how long."""
CHANNELS = {1: "out", 2: "err"}
BUILTIN, AUTO = "builtin", ("auto", "mosquitto")

Say = Callable[[str], None]


class ContainedBroker:
    """A broker in a container, reached by the name that the networks give it."""

    def __init__(self, kind: str, address: str, identity: Identity | None) -> None:
        self.kind, self.address, self.identity = kind, address, identity
        self.process: Contained | None = None

    @property
    def pid(self) -> int | None:
        """Its process on the engine's machine."""
        return self.process.pid if self.process else None

    def alive(self) -> bool:
        """Say whether it runs."""
        return self.process is None or self.process.poll() is None

    def stop(self) -> None:
        """Nothing: its container is removed along with the others."""


class ContainerTestbed(Testbed):
    """All containers and networks of one run; a context that removes them all, whatever happens."""

    def __init__(
        self,
        world: World,
        plan: Plan,
        folder: Path,
        *,
        hold: bool = False,
        say: Say = lambda _words: None,
    ) -> None:
        if plan.broker.startswith(SCHEMES):
            raise InputError(
                f"--broker {plan.broker}: the containers' networks have no way out; choose auto, "
                "mosquitto or builtin"
            )
        super().__init__(world, plan, folder, hold=hold)
        self._say = say
        self._engine: Engine | None = None
        self._happened: SimpleQueue[tuple[str, str]] = SimpleQueue()
        self._frames: dict[str, bytes] = {}

    # --- up --------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._engine = engine = Engine(self.run, self._folder)
        for image in (PROVIDER, TESTBED):
            engine.provide(image, self._say)
        if self._plan.broker in AUTO:
            engine.fetch(MOSQUITTO, self._say)
        with told("the testbed cannot be brought up"):
            self.layout = engine.lay_out(self._lay_out)
            listening = Engine(self.run)
            events = listening.events()
            self._at_the_end += [events.close, listening.close]
            Thread(target=self._listen_to, args=(events,), daemon=True).start()
            super()._start()

    def _lay_out(self, block: IPv4Network) -> Layout:
        return Layout(seats(self._world, self._plan.source_processes), block)

    def _divide(self, folder: Path) -> Split:
        taking_part = seats(self._world, self._plan.source_processes)
        users = users_of(self.run, [*taking_part.all, CLOCK, BROKER])
        return Split(self._world, self._plan, folder, self.run, self.layout, users)

    def _relay(self, folder: Path) -> RelayingBroker:
        own = self.split.identify(BROKER, BROKER, folder / "identity")
        taking_part = self.split.seats
        participants = Participants(
            self.run, taking_part.sources, taking_part.fogs, taking_part.cloud
        )
        image, command, broker = prepare_broker(
            self._plan.broker, folder, self.layout, participants if own else None
        )
        self.split.hand_over(BROKER)
        started = self._contain(BROKER, image, command, folder)
        assert isinstance(started.process, Contained)
        broker.process = started.process
        return broker

    def _found_at(self, name: str) -> str:
        return self.layout.dial(name)

    def _reached_at(self, name: str) -> str:
        self._wait_for_port(name)
        return self.layout.reached_at(name)

    def _begin(self, name: str, module: str, config: Path) -> Participant:
        image = PROVIDER if name in self.layout.providers else TESTBED
        command = ["python", "-P", "-m", module, "--config", config.name]
        return self._contain(name, image, command, config.parent)

    def _contain(self, name: str, image: str, command: list[str], folder: Path) -> Participant:
        assert self._engine is not None
        user = self.split.users.get(name)
        mine = (os.getuid(), os.getgid()) if user is None else (user, user)
        made = self._engine.create(self.layout, name, image, command, Mount(folder, mine))
        process = Contained(self._engine, made)
        participant = Participant(name, process, next(COLOURS))
        os.set_blocking(process.stream.fileno(), False)
        self._selector.register(process.stream, selectors.EVENT_READ, (participant, "frames"))
        self._at_the_end.append(process.hang_up)
        return participant

    # --- what containers say, and what happens to them ------------------------------------------

    def _take(self, participant: Participant, channel: str, data: bytes) -> None:
        """Tell apart what a container wrote to its two streams: they come as one."""
        if channel != "frames":
            super()._take(participant, channel, data)
            return
        rest = self._frames.get(participant.name, b"") + data
        while len(rest) >= FRAME.size:
            stream, size = FRAME.unpack_from(rest)
            if len(rest) < FRAME.size + size:
                break
            super()._take(participant, CHANNELS[stream], rest[FRAME.size : FRAME.size + size])
            rest = rest[FRAME.size + size :]
        self._frames[participant.name] = rest

    def _heard(self, participant: Participant, channel: str, line: str) -> None:
        if participant.name == BROKER:  # who connects when, as a broker on this machine logs it
            with (self.split.folder_of(BROKER) / LOG).open("a", encoding="utf-8") as log:
                log.write(f"{line}\n")
            return
        super()._heard(participant, channel, line)

    def _hung_up(self, participant: Participant) -> None:
        assert isinstance(participant.process, Contained)
        participant.process.hung_up = True

    def _pump(self, timeout: float) -> None:
        super()._pump(timeout)
        try:
            while True:
                name, what = self._happened.get_nowait()
                if name in self.participants:
                    self.participants[name].health = what
                self.note("engine", f"{name}: {what}")
        except Empty:
            pass

    def _listen_to(self, events: Any) -> None:
        """Take down what the engine tells of our containers; a thread, for the telling blocks."""
        try:
            for event in events:
                action = event["Action"]
                name = event["Actor"]["Attributes"].get("org.fogveil.participant", "?")
                if action.startswith("health_status: "):
                    self._happened.put((name, action.removeprefix("health_status: ")))
                elif action in ("pause", "unpause", "kill", "oom"):
                    self._happened.put((name, {"pause": PAUSED}.get(action, action)))
        except (DockerException, requests.exceptions.RequestException, OSError, ValueError):
            pass  # the engine is gone: who speaks with the containers finds out

    # --- down ------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End every container that is left, and remove all that was made."""
        with undisturbed():
            try:
                super().stop()
            finally:
                if self._engine:
                    self._engine.remove()
                    self._engine.close()


def prepare_broker(
    choice: str, folder: Path, layout: Layout, participants: Participants | None
) -> tuple[str, list[str], ContainedBroker]:
    """Write the broker's files; return its image, its command, and where it will be found."""
    address = Address(layout.service(BROKER), layout.port(BROKER), tls=participants is not None)
    guard = None
    if participants:
        own = Credentials(Path(INSIDE) / "identity")
        guard = Guard(participants.broker, own, Access.of(participants))
    identity = guard.identity if guard else None
    if choice == BUILTIN:
        command = ["python", "-P", "-m", "broker", "--host", EVERYWHERE]
        command += ["--port", str(address.port)]
        if guard:
            guard.access.write(folder / ACCESS)
            command += ["--access", ACCESS, "--identity", "identity"]
        return TESTBED, command, ContainedBroker(BUILTIN, str(address), identity)
    if choice not in AUTO:
        raise InputError(f"broker: expected auto, mosquitto or builtin, not {choice!r}")
    write_files(folder, Address(EVERYWHERE, address.port), guard, PLUGIN_PLACE)
    command = ["mosquitto", "-c", CONFIGURATION]
    return MOSQUITTO, command, ContainedBroker("mosquitto", str(address), identity)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let nobody interrupt what cleans up: it takes seconds, and would leave things behind."""
    if current_thread() is not main_thread():
        yield
        return
    before: dict[Any, Any] = {
        number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
