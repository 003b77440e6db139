"""Reading gRPC off a plaintext connection: calls with their headers, messages and trailers."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import hpack

from fogveil.errors import InputError
from fogveil.recording import REQUEST, RESPONSE
from testbed.inspecting.packets import Connection, Direction

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAMES = (
    *("DATA", "HEADERS", "PRIORITY", "RST_STREAM", "SETTINGS"),
    *("PUSH_PROMISE", "PING", "GOAWAY", "WINDOW_UPDATE", "CONTINUATION"),
)
DATA, HEADERS, GOAWAY, CONTINUATION = (
    FRAMES.index(name) for name in ("DATA", "HEADERS", "GOAWAY", "CONTINUATION")
)
END_HEADERS, PADDED, PRIORITY = 0x4, 0x8, 0x20
LARGEST_TABLE = 2**20
"""Bytes of headers that an encoder may refer back to."""

Header = tuple[str, str]


@dataclass
class Call:
    """One call of a method."""

    path: str = ""
    headers: dict[str, list[Header]] = field(default_factory=lambda: {REQUEST: [], RESPONSE: []})
    """Of both directions; trailers among them."""
    content: dict[str, bytearray] = field(
        default_factory=lambda: {REQUEST: bytearray(), RESPONSE: bytearray()}
    )

    def messages(self, kind: str) -> Iterator[bytes]:
        """Yield the messages of a direction; what was cut off comes last, with its prefix."""
        content, at = self.content[kind], 0
        while at + 5 <= len(content):
            packed, size = struct.unpack_from("!BI", content, at)
            if packed or at + 5 + size > len(content):
                break
            yield bytes(content[at + 5 : at + 5 + size])
            at += 5 + size
        if at < len(content):
            yield bytes(content[at:])


@dataclass
class Spoken:
    """All that was said on a connection."""

    calls: list[Call] = field(default_factory=list)
    frames: Counter[str] = field(default_factory=Counter)
    """How many of each kind."""
    farewells: list[str] = field(default_factory=list)
    """The texts with which a side closed the connection."""
    unheard: list[Header] = field(default_factory=list)
    """Trailers of the server when the client was gone: gRPC makes them, and nobody reads them."""


def read_connection(connection: Connection) -> Spoken:
    """Read what both sides of a connection said."""
    spoken = Spoken()
    calls: dict[int, Call] = {}
    content = bytes(connection.up.content)
    if not content:
        return spoken  # somebody knocked and went
    if not content.startswith(PREFACE):
        raise InputError(
            f"{connection.client} speaks no plain HTTP/2 to {connection.server}: packets can be "
            "read of a testbed that was brought up with --insecure"
        )
    _read(content[len(PREFACE) :], REQUEST, calls, spoken)
    if connection.down:
        _read(bytes(connection.down.content), RESPONSE, calls, spoken, connection.left)
    spoken.calls = [calls[number] for number in sorted(calls)]
    return spoken


def has_gap(*directions: Direction | None) -> bool:
    """Tell whether packets are missing."""
    return any(direction is None or direction.gap for direction in directions)


def _read(
    content: bytes, kind: str, calls: dict[int, Call], spoken: Spoken, left: int | None = None
) -> None:
    decoder = hpack.Decoder()
    decoder.max_allowed_table_size = LARGEST_TABLE
    block = b""
    for at, frame, flags, stream, payload in _frames(content):
        spoken.frames[FRAMES[frame] if frame < len(FRAMES) else f"type {frame}"] += 1
        if frame == GOAWAY:
            spoken.farewells.append(payload[8:].decode(errors="backslashreplace"))
        if frame not in (DATA, HEADERS, CONTINUATION):
            continue
        call = calls.setdefault(stream, Call())
        if frame == DATA:
            call.content[kind] += _unpadded(payload, flags)
            continue
        if frame == HEADERS:
            block = _unpadded(payload, flags)[5 if flags & PRIORITY else 0 :]
        else:
            block += payload
        if flags & END_HEADERS:
            for name, value in decoder.decode(block, raw=True):
                header = _text(name), _text(value)
                heard = left is None or at < left
                (call.headers[kind] if heard else spoken.unheard).append(header)
                if header[0] == ":path":
                    call.path = header[1]


def _frames(content: bytes) -> Iterator[tuple[int, int, int, int, bytes]]:
    """Yield where each frame begins, its kind, flags and stream, and what it carries."""
    at = 0
    while at + 9 <= len(content):
        high, low, kind, flags, stream = struct.unpack_from("!BHBBI", content, at)
        size = (high << 16) + low
        if at + 9 + size > len(content):
            return
        yield at, kind, flags, stream & 0x7FFFFFFF, content[at + 9 : at + 9 + size]
        at += 9 + size


def _unpadded(payload: bytes, flags: int) -> bytes:
    return payload[1 : len(payload) - payload[0]] if flags & PADDED else payload


def _text(raw: bytes | str) -> str:
    return raw if isinstance(raw, str) else raw.decode(errors="backslashreplace")
