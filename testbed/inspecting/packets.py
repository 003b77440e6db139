"""Reading captured packets: the two directions of every TCP connection, byte for byte."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from fogveil.errors import InputError

SECTION, INTERFACE, SIMPLE, ENHANCED = 0x0A0D0D0A, 1, 3, 6
"""The blocks of a pcapng file that matter here."""
SNAPPED = "packets were cut off when they were captured: capture them whole (-s 0)"
LINKS = {0: 4, 1: 14, 12: 0, 101: 0, 113: 16, 276: 20}
"""Bytes before the IP header, by the kind of link: BSD loopback, Ethernet, raw, Linux "any"."""
TCP = 6
FIN, SYN, RESET = 1, 2, 4

Address = str
"""As gRPC spells it: ipv4:127.0.0.1:4312 or ipv6:%5B::1%5D:4312."""


class Segment(NamedTuple):
    """A TCP segment."""

    source: Address
    target: Address
    number: int
    flags: int
    payload: bytes


@dataclass
class Direction:
    """One direction of a connection, put in order."""

    first: int
    """The sequence number of its first byte."""
    content: bytearray = field(default_factory=bytearray)
    early: dict[int, bytes] = field(default_factory=dict)
    """What came before what precedes it, by its place."""

    def take(self, segment: Segment) -> None:
        """Add a segment: in order, before its time, or once more."""
        place = (segment.number - self.first) & 0xFFFFFFFF
        if place > 0x7FFFFFFF:  # noqa: PLR2004 (half of all numbers: before the first)
            return
        if segment.payload:
            self.early[place] = max(self.early.get(place, b""), segment.payload, key=len)
        for early in sorted(self.early):
            if early > len(self.content):
                break
            self.content += self.early.pop(early)[len(self.content) - early :]

    @property
    def gap(self) -> bool:
        """Whether bytes are missing in the middle."""
        return bool(self.early)


@dataclass
class Connection:
    """A TCP connection, from who opened it to who listens."""

    client: Address
    server: Address
    up: Direction
    down: Direction | None = None
    left: int | None = None
    """Bytes that the server had said when the client closed its side: it hears no more."""


def connections(path: Path, servers: set[Address]) -> list[Connection]:
    """Read the connections to some listening addresses out of a capture."""
    found: list[Connection] = []
    latest: dict[tuple[Address, Address], Connection] = {}
    for segment in segments(path):
        if segment.target in servers:
            ends = segment.source, segment.target
            if segment.flags & SYN:
                known = latest.get(ends)
                if known is None or known.up.first != segment.number + 1:  # else sent again
                    latest[ends] = Connection(*ends, Direction(segment.number + 1))
                    found.append(latest[ends])
            elif ends in latest:
                _say(latest[ends], segment)
            else:
                raise InputError(f"{path}: begins after the connection from {segment.source} did")
        elif segment.source in servers and (segment.target, segment.source) in latest:
            connection = latest[segment.target, segment.source]
            if segment.flags & SYN:
                connection.down = connection.down or Direction(segment.number + 1)
            elif connection.down:
                connection.down.take(segment)
    return found


def _say(connection: Connection, segment: Segment) -> None:
    connection.up.take(segment)
    if connection.left is None and segment.flags & (FIN | RESET):
        connection.left = len(connection.down.content) if connection.down else 0


def segments(path: Path) -> Iterator[Segment]:
    """Yield the TCP segments of a capture."""
    for link, packet in _packets(path):
        if link not in LINKS:
            raise InputError(f"{path}: packets of link type {link} cannot be read")
        segment = _segment(packet[LINKS[link] :])
        if segment:
            yield segment


def _packets(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the link type and the bytes of each packet."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        if content[:4] == struct.pack("<I", SECTION):
            yield from _pcapng(path, content)
        else:
            yield from _pcap(path, content)
    except (struct.error, IndexError, KeyError) as error:
        raise InputError(f"{path}: is not a capture of packets, or a broken one") from error


def _pcapng(path: Path, content: bytes) -> Iterator[tuple[int, bytes]]:
    at, order = 0, "<"
    links: list[int] = []
    while at + 12 <= len(content):
        kind, size = struct.unpack_from(f"{order}II", content, at)
        if kind == SECTION:
            order = "<" if content[at + 8 : at + 12] == b"\x4d\x3c\x2b\x1a" else ">"
            (size,) = struct.unpack_from(f"{order}I", content, at + 4)
            links = []
        if size < 12 or at + size > len(content):  # noqa: PLR2004 (an empty block)
            return  # it was cut off while it was written
        if kind == INTERFACE:
            links.append(struct.unpack_from(f"{order}H", content, at + 8)[0])
        elif kind == ENHANCED:
            interface, _, _, kept, whole = struct.unpack_from(f"{order}5I", content, at + 8)
            yield links[interface], _whole(path, content[at + 28 : at + 28 + kept], whole)
        elif kind == SIMPLE:
            (whole,) = struct.unpack_from(f"{order}I", content, at + 8)
            yield links[0], _whole(path, content[at + 12 : at + size - 4][:whole], whole)
        at += size


def _pcap(path: Path, content: bytes) -> Iterator[tuple[int, bytes]]:
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<"}.get(content[:4])
    order = order or {b"\xa1\xb2\xc3\xd4": ">", b"\xa1\xb2\x3c\x4d": ">"}[content[:4]]
    link = struct.unpack_from(f"{order}I", content, 20)[0] & 0xFFFF
    at = 24
    while at + 16 <= len(content):
        _, _, kept, whole = struct.unpack_from(f"{order}4I", content, at)
        at += 16
        if at + kept > len(content):
            return
        yield link, _whole(path, content[at : at + kept], whole)
        at += kept


def _whole(path: Path, packet: bytes, whole: int) -> bytes:
    if len(packet) < whole:
        raise InputError(f"{path}: {SNAPPED}")
    return packet


def _segment(packet: bytes) -> Segment | None:
    if not packet:
        return None
    version = packet[0] >> 4
    if version == 4 and packet[9] == TCP:  # noqa: PLR2004 (IP's version)
        head, end = (packet[0] & 15) * 4, int.from_bytes(packet[2:4])
        source, target = packet[12:16], packet[16:20]
    elif version == 6 and packet[6] == TCP:  # noqa: PLR2004
        head, end = 40, 40 + int.from_bytes(packet[4:6])
        source, target = packet[8:24], packet[24:40]
    else:
        return None
    body = packet[head : end or None]
    from_port, to_port, number, _, offset, flags = struct.unpack_from("!HHIIBB", body)
    payload = body[(offset >> 4) * 4 :]
    return Segment(spell(source, from_port), spell(target, to_port), number, flags, payload)


def spell(host: bytes | str, port: int) -> Address:
    """Spell an address as gRPC does."""
    address = ip_address(host)
    if address.version == 4:  # noqa: PLR2004 (IP's version)
        return f"ipv4:{address}:{port}"
    return f"ipv6:%5B{address}%5D:{port}"
