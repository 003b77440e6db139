"""What the tests of the broker share: a client that can misbehave, and waiting without guessing."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import uvloop

from broker import tls
from broker.access import Participants
from broker.address import Address
from broker.client import Relay
from broker.packets import (
    Connack,
    Connect,
    Frames,
    Kind,
    Packet,
    Publish,
    Signal,
    Suback,
    Subscribe,
    decode,
    encode,
)
from broker.starting import RunningBroker, start_broker
from broker.topics import Topics
from fogveil.identity import Credentials, Identity
from testbed.federated.identities import Mint

PATIENCE = 20.0
"""Seconds after which a test fails that waits for something."""
KINDS = ("mosquitto", "builtin")


def run(
    main: Coroutine[Any, Any, Any],
    loop: Callable[[], Any] = uvloop.new_event_loop,
    patience: float = PATIENCE,
) -> Any:
    """Run on the participants' event loop, with a limit, and check that nothing stays open."""
    before = open_sockets()
    with asyncio.Runner(loop_factory=loop) as runner:
        result = runner.run(asyncio.wait_for(main, patience))
    assert open_sockets() <= before
    return result


async def take(relay: Relay, count: int) -> list[tuple[str, bytes]]:
    """Return the next messages."""
    found: list[tuple[str, bytes]] = []
    if count:
        async for message in relay.messages():
            found.append(message)
            if len(found) == count:
                break
    return found


def open_sockets() -> set[str]:
    """Return this process's TCP sockets, as the kernel knows them."""
    inodes = {line.split()[9] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]}
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(descriptor.readlink().name.removeprefix("socket:[").removesuffix("]"))
    return found & inodes


class RawClient:
    """A client that sends what it is told to, whether that is wise or not."""

    def __init__(self, address: str, secure: ssl.SSLContext | None = None) -> None:
        where = Address.parse(address)
        self.socket = socket.create_connection((where.host, where.port), timeout=PATIENCE)
        if secure:
            self.socket = secure.wrap_socket(self.socket)
        self._packets = self._read()

    def connect(
        self,
        client: str,
        keepalive: int = 60,
        will: Publish | None = None,
        user: str | None = None,
    ) -> RawClient:
        self.send(Connect(client, keepalive, user=user, will=will))
        assert self.receive() == Connack(0)
        return self

    def subscribe(self, *filters: str, qos: int = 0) -> RawClient:
        self.send(Subscribe(1, tuple((filter_, qos) for filter_ in filters)))
        assert self.receive() == Suback(1, bytes([qos] * len(filters)))
        return self

    def send(self, packet: Packet) -> None:
        self.socket.sendall(encode(packet))

    def receive(self) -> Packet:
        return next(self._packets)

    def receive_until_fence(self) -> list[Packet]:
        """Return all packets up to the answer to a ping that is sent now."""
        self.send(Signal(Kind.PINGREQ))
        return list(iter(self.receive, Signal(Kind.PINGRESP)))

    def is_closed_by_broker(self) -> bool:
        with suppress(ConnectionResetError, ssl.SSLError):
            while self.socket.recv(65536):
                pass
        return True

    def drop(self) -> None:
        self.socket.close()

    def _read(self) -> Iterator[Packet]:
        frames = Frames()
        while data := self.socket.recv(65536):
            for head, body in frames.feed(data):
                yield decode(head, body)
        raise ConnectionResetError("closed by the broker")


class Wallet:
    """Everybody's certificates of one run, issued as they are needed."""

    def __init__(self, participants: Participants, folder: Path) -> None:
        self.participants = participants
        self.mint = Mint(participants.run)
        self._folder = folder
        self._issued: dict[Identity, Credentials] = {}

    def __getitem__(self, identity: Identity) -> Credentials:
        if identity not in self._issued:
            place = self._folder / identity.host
            self._issued[identity] = self.mint.issue(identity, place)
        return self._issued[identity]

    def start(self, kind: str, folder: Path) -> RunningBroker:
        broker = self.participants.broker
        return start_broker(kind, folder, credentials=self[broker], participants=self.participants)

    def relay(self, address: str, identity: Identity, **options: Any) -> Relay:
        return Relay(
            address,
            identity.name,
            credentials=self[identity],
            broker_identity=self.participants.broker,
            **options,
        )

    def raw(self, address: str, identity: Identity) -> RawClient:
        broker = self.participants.broker
        return RawClient(address, tls.for_participant(broker, self[identity]))


STRANGERS = ("nobody", "foreign authority", "expired", "not yet valid", "another run")


def strangers_to(wallet: Wallet, victim: Identity, folder: Path) -> dict[str, Credentials | None]:
    """Return those who say that they are somebody, and cannot prove it."""
    now, day = datetime.now(UTC), timedelta(days=1)
    issue, foreign, other = wallet.mint.issue, Mint(victim.run), Mint("07e4")
    found = (
        None,
        foreign.issue(victim, folder / "foreign"),
        issue(victim, folder / "expired", (now - 2 * day, now - day)),
        issue(victim, folder / "early", (now + day, now + 2 * day)),
        other.issue(replace(victim, run="07e4"), folder / "other"),
    )
    return dict(zip(STRANGERS, found, strict=True))


class Venue:
    """A broker with a reader, a writer and a bystander: by certificate, or without.

    Where nobody proves who they are they have topics and names of their own in every test.
    """

    def __init__(self, broker: RunningBroker, wallet: Wallet | None) -> None:
        self.broker, self.address, self._wallet = broker, broker.address, wallet
        self._prefix = os.urandom(8).hex()
        if wallet:
            topics = Topics(wallet.participants.run)
            self.topics, self.filter = [topics.workload("writer")], topics.all_workloads
        else:
            self.topics = [f"{self._prefix}/{number}" for number in range(3)]
            self.filter = f"{self._prefix}/+"
        self.topic = self.topics[0]

    @classmethod
    def start(cls, name: str, folder: Path) -> Venue:
        """Start what is named kind or kind-tls."""
        kind, _, secure = name.partition("-")
        if not secure:
            return cls(start_broker(kind, folder), None)
        participants = Participants("5eed", ("writer", "bystander"), ("fog",), "cloud", "reader")
        wallet = Wallet(participants, folder / "identities")
        return cls(wallet.start(kind, folder), wallet)

    def again(self) -> Venue:
        return Venue(self.broker, self._wallet)

    def relay(self, who: str, **options: Any) -> Relay:
        if self._wallet is None:
            return Relay(self.address, f"{self._prefix}-{who}", **options)
        return self._wallet.relay(self.address, self._identity(who), **options)

    def raw(self, who: str) -> RawClient:
        """Return a client that has not introduced itself yet."""
        if self._wallet is None:
            return RawClient(self.address)
        return self._wallet.raw(self.address, self._identity(who))

    def client(self, who: str) -> RawClient:
        return self.raw(who).connect(f"{self._prefix}-{who}")

    def _identity(self, who: str) -> Identity:
        return Identity("5eed", "agent" if who == "reader" else "sources", who)


VENUES = [f"{kind}{tls}" for kind in KINDS for tls in ("", "-tls")]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Say whether a process exists and is more than a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def takes_connections(address: str) -> bool:
    where = Address.parse(address)
    with suppress(OSError), socket.create_connection((where.host, where.port), timeout=1):
        return True
    return False
