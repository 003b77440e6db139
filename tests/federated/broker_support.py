"""What the tests of the broker share: a client that can misbehave, and waiting without guessing."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvloop

from broker.address import Address
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

PATIENCE = 20.0
"""Seconds after which a test fails that waits for something."""
KINDS = ("mosquitto", "builtin")


def run(main: Coroutine[Any, Any, Any], loop: Callable[[], Any] = uvloop.new_event_loop) -> Any:
    """Run on the participants' event loop, with a limit, and check that nothing stays open."""
    before = open_sockets()
    with asyncio.Runner(loop_factory=loop) as runner:
        result = runner.run(asyncio.wait_for(main, PATIENCE))
    assert open_sockets() <= before
    return result


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

    def __init__(self, address: str) -> None:
        where = Address.parse(address)
        self.socket = socket.create_connection((where.host, where.port), timeout=PATIENCE)
        self._packets = self._read()

    def connect(self, client: str, keepalive: int = 60, will: Publish | None = None) -> RawClient:
        self.send(Connect(client, keepalive, will=will))
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
        with suppress(ConnectionResetError):
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
