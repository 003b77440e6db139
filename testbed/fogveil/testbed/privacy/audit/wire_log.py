"""What a wire tap recorded: every connection between two participants, byte for byte.

A log can be written to a folder and read back, so that a run is judged again without a testbed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from fogveil.testbed.privacy.audit.tls_transcript import Transcript

Plane = Literal["boundary", "clock", "mqtt"]

INDEX = "connections.json"


@dataclass
class Stream:
    """One direction of a connection: its bytes, and when they came in which portions."""

    content: bytearray = field(default_factory=bytearray)
    chunks: list[tuple[float, int]] = field(default_factory=list)
    """The monotonic time and the size of each portion that was relayed."""

    def add(self, at: float, data: bytes) -> None:
        """Append a portion."""
        self.content += data
        self.chunks.append((at, len(data)))

    def time_of(self, offset: int) -> float:
        """Return when the byte at an offset was relayed."""
        end = 0
        for at, size in self.chunks:
            end += size
            if offset < end:
                return at
        raise IndexError(offset)


@dataclass
class Handshake:
    """What one end of a connection showed the tap when TLS was set up."""

    chain: list[bytes] = field(default_factory=list)
    """The certificates (DER) that it presented, its own first."""
    version: str = ""
    cipher: str = ""
    alpn: str = ""
    said: Transcript = field(default_factory=Transcript)
    """All that it said in the handshake and beside its data."""


@dataclass
class Connection:
    """A connection from a caller through the tap to a callee."""

    caller: str
    callee: str
    plane: Plane
    opened: float
    """Monotonic time."""
    closed: float | None = None
    failure: str = ""
    """Why no connection came about, if so."""
    cut: bool = False
    """Whether the end of what either side sent may be missing from the log."""
    server_name: str = ""
    """The host name that the caller asked for in its TLS hello."""
    caller_tls: Handshake = field(default_factory=Handshake)
    callee_tls: Handshake = field(default_factory=Handshake)
    up: Stream = field(default_factory=Stream)
    """From the caller to the callee."""
    down: Stream = field(default_factory=Stream)
    """From the callee to the caller."""

    @property
    def client(self) -> str:
        """The caller, as the HTTP/2 parser calls it."""
        return self.caller

    @property
    def server(self) -> str:
        """The callee, as the HTTP/2 parser calls it."""
        return self.callee

    client_closed_at: int | None = field(default=None, repr=False)
    """For the HTTP/2 parser: a tap reads all that is sent, so there is no such offset."""

    def __str__(self) -> str:
        return f"the {self.plane} connection of {self.caller} to {self.callee}"


@dataclass
class WireLog:
    """All connections of one run, in the order in which they were opened."""

    run: str = ""
    connections: list[Connection] = field(default_factory=list)
    accepted: list[tuple[str, str]] = field(default_factory=list)
    """The caller and the callee of everything that was accepted, also where no TLS followed."""

    def between(self, caller: str, callee: str) -> list[Connection]:
        """Return the connections from a caller to a callee."""
        return [c for c in self.connections if (c.caller, c.callee) == (caller, callee)]

    def on(self, plane: Plane) -> Iterator[Connection]:
        """Yield the connections of a plane."""
        return (c for c in self.connections if c.plane == plane)

    def received_by(self, name: str) -> Iterator[tuple[str, Connection, Stream]]:
        """Yield the peer, the connection and the stream of everything that reached a participant.

        What comes from the broker has the broker as its peer, whoever published it.
        """
        for connection in self.connections:
            if connection.caller == name:
                yield connection.callee, connection, connection.down
            if connection.callee == name:
                yield connection.caller, connection, connection.up

    def save(self, folder: Path) -> None:
        """Write the log into a folder that only its user can read."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        index: list[dict[str, Any]] = []
        for number, connection in enumerate(self.connections):
            facts = asdict(connection)
            for name, stream in (("up", connection.up), ("down", connection.down)):
                (folder / f"{number:04}.{name}").write_bytes(stream.content)
                facts[name] = stream.chunks
            for name in ("caller_tls", "callee_tls"):
                _apply(facts[name], bytes.hex)
            index.append(facts)
        text = json.dumps({"run": self.run, "connections": index, "accepted": self.accepted})
        (folder / INDEX).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> WireLog:
        """Read a log back."""
        index: dict[str, Any] = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        log = cls(index["run"], accepted=[(caller, callee) for caller, callee in index["accepted"]])
        for number, facts in enumerate(index["connections"]):
            for name in ("up", "down"):
                content = bytearray((folder / f"{number:04}.{name}").read_bytes())
                facts[name] = Stream(content, [(at, size) for at, size in facts[name]])
            for name in ("caller_tls", "callee_tls"):
                _apply(facts[name], bytes.fromhex)
                facts[name] = Handshake(**facts[name] | {"said": Transcript(**facts[name]["said"])})
            log.connections.append(Connection(**facts))
        return log


def _apply(handshake: dict[str, Any], form: Callable[[Any], Any]) -> None:
    """Turn the bytes in a handshake into text, or back."""
    handshake["chain"] = [*map(form, handshake["chain"])]
    for name in ("messages", "alerts"):
        handshake["said"][name] = [*map(form, handshake["said"][name])]
