"""What the tests of the broker share: brokers, certificates, a client that can misbehave."""

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

from fogveil.broker import tls
from fogveil.broker.acl import BrokerSecurity
from fogveil.broker.address import Address
from fogveil.broker.client import BrokerClient
from fogveil.broker.launcher import RunningBroker, start_broker
from fogveil.broker.mqtt_packets import (
    Connack,
    Connect,
    EmptyPacket,
    Framer,
    Packet,
    PacketType,
    Publish,
    Suback,
    Subscribe,
    decode,
    encode,
)
from fogveil.broker.topics import Topics
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import AGENT, SOURCES, Identity, broker_identity
from fogveil.protocol.roster import Roster
from fogveil.testbed.launch.certificates import Mint

TIMEOUT = 90.0
"""Seconds after which a test that waits for something fails."""
KINDS = ("mosquitto", "builtin")


def run(
    main: Coroutine[Any, Any, Any],
    loop: Callable[[], Any] = uvloop.new_event_loop,
    timeout: float = TIMEOUT,
) -> Any:
    """Run on the participants' event loop, with a timeout, and check that no socket stays open."""
    before = open_sockets()
    with asyncio.Runner(loop_factory=loop) as runner:
        result = runner.run(asyncio.wait_for(main, timeout))
    assert open_sockets() <= before
    return result


async def take(client: BrokerClient, count: int) -> list[tuple[str, bytes]]:
    """Return the next messages."""
    messages: list[tuple[str, bytes]] = []
    if count:
        async for message in client.messages():
            messages.append(message)
            if len(messages) == count:
                break
    return messages


def open_sockets() -> set[str]:
    """Return the inodes of this process's TCP sockets."""
    tcp = {line.split()[9] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]}
    opened = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            opened.add(descriptor.readlink().name.removeprefix("socket:[").removesuffix("]"))
    return opened & tcp


class RawClient:
    """A client that sends any packets, also such as violate the protocol."""

    def __init__(self, address: str, context: ssl.SSLContext | None = None) -> None:
        broker = Address.parse(address)
        self.socket = socket.create_connection((broker.host, broker.port), timeout=TIMEOUT)
        if context:
            self.socket = context.wrap_socket(self.socket)
        self._packets = self._read()

    def connect(
        self,
        client_id: str,
        keepalive: int = 60,
        will: Publish | None = None,
        user: str | None = None,
    ) -> RawClient:
        self.send(Connect(client_id, keepalive, user=user, will=will))
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

    def receive_until_pong(self) -> list[Packet]:
        """Send a ping, and return all packets before its answer."""
        self.send(EmptyPacket(PacketType.PINGREQ))
        return list(iter(self.receive, EmptyPacket(PacketType.PINGRESP)))

    def is_closed_by_broker(self) -> bool:
        with suppress(ConnectionResetError, ssl.SSLError):
            while self.socket.recv(65536):
                pass
        return True

    def drop(self) -> None:
        self.socket.close()

    def _read(self) -> Iterator[Packet]:
        framer = Framer()
        while data := self.socket.recv(65536):
            for header, body in framer.feed(data):
                yield decode(header, body)
        raise ConnectionResetError("closed by the broker")


class CertificateStore:
    """The certificates of one run, issued as they are needed."""

    def __init__(self, run: str, roster: Roster, folder: Path) -> None:
        self.run, self.roster = run, roster
        self.broker = broker_identity(run)
        self.mint = Mint(run)
        self._folder = folder
        self._issued: dict[Identity, Credentials] = {}

    def __getitem__(self, identity: Identity) -> Credentials:
        if identity not in self._issued:
            self._issued[identity] = self.mint.issue(identity, self._folder / identity.host)
        return self._issued[identity]

    def start(self, kind: str, folder: Path) -> RunningBroker:
        security = BrokerSecurity.for_run(self.run, self.roster, self[self.broker])
        return start_broker(kind, folder, security=security)

    def client(self, address: str, identity: Identity, **options: Any) -> BrokerClient:
        return BrokerClient(
            address, identity.name, credentials=self[identity], broker=self.broker, **options
        )

    def raw(self, address: str, identity: Identity) -> RawClient:
        return RawClient(address, tls.client_context(self.broker, self[identity]))


STRANGERS = ("nobody", "foreign authority", "expired", "not yet valid", "another run")


def strangers_to(
    store: CertificateStore, victim: Identity, folder: Path
) -> dict[str, Credentials | None]:
    """Return the credentials of clients that claim an identity and cannot prove it."""
    now, day = datetime.now(UTC), timedelta(days=1)
    issue, foreign, other = store.mint.issue, Mint(victim.run), Mint("07e4")
    credentials = (
        None,
        foreign.issue(victim, folder / "foreign"),
        issue(victim, folder / "expired", (now - 2 * day, now - day)),
        issue(victim, folder / "early", (now + day, now + 2 * day)),
        other.issue(replace(victim, run="07e4"), folder / "other"),
    )
    return dict(zip(STRANGERS, credentials, strict=True))


class BrokerSetup:
    """A broker with a reader, a writer and a bystander, with certificates or without.

    Without certificates their topics and names differ in every test.
    """

    def __init__(self, broker: RunningBroker, store: CertificateStore | None) -> None:
        self.broker, self.address, self._store = broker, broker.address, store
        self._prefix = os.urandom(8).hex()
        if store:
            topics = Topics(store.run)
            self.topics, self.filter = [topics.workload("writer")], topics.all_workloads
        else:
            self.topics = [f"{self._prefix}/{number}" for number in range(3)]
            self.filter = f"{self._prefix}/+"
        self.topic = self.topics[0]

    @classmethod
    def start(cls, name: str, folder: Path) -> BrokerSetup:
        """Start the broker that is named KIND or KIND-tls."""
        kind, _, secure = name.partition("-")
        if not secure:
            return cls(start_broker(kind, folder), None)
        roster = Roster(("writer", "bystander"), ("fog",), "cloud")
        store = CertificateStore("5eed", roster, folder / "identities")
        return cls(store.start(kind, folder), store)

    def again(self) -> BrokerSetup:
        return BrokerSetup(self.broker, self._store)

    def client(self, who: str, **options: Any) -> BrokerClient:
        if self._store is None:
            return BrokerClient(self.address, f"{self._prefix}-{who}", **options)
        return self._store.client(self.address, self._identity(who), **options)

    def raw(self, who: str) -> RawClient:
        """Return a client that has not sent CONNECT yet."""
        if self._store is None:
            return RawClient(self.address)
        return self._store.raw(self.address, self._identity(who))

    def raw_client(self, who: str) -> RawClient:
        return self.raw(who).connect(f"{self._prefix}-{who}")

    def _identity(self, who: str) -> Identity:
        if who == "reader":
            return Identity("5eed", AGENT, AGENT)
        return Identity("5eed", SOURCES, who)


SETUPS = [f"{kind}{tls}" for kind in KINDS for tls in ("", "-tls")]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def takes_connections(address: str) -> bool:
    broker = Address.parse(address)
    with suppress(OSError), socket.create_connection((broker.host, broker.port), timeout=1):
        return True
    return False
