"""Reading captured packets: the two directions of every TCP connection, byte for byte.

Written here rather than taken from a library: it is small, and scapy or dpkt would be a dependency
of every installation for the sake of one option.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from fogveil.core.errors import InputError

SECTION, INTERFACE, SIMPLE, ENHANCED = 0x0A0D0D0A, 1, 3, 6
"""Block types of a pcapng file."""
TRUNCATED = "the packets were truncated by the capture: capture them whole (-s 0)"
LINK_HEADERS = {0: 4, 1: 14, 12: 0, 101: 0, 113: 16, 276: 20}
"""Bytes before the IP header, by link type: BSD loopback, Ethernet, raw IP, Linux "any"."""
TCP = 6
FIN, SYN, RESET = 1, 2, 4

Address = str
"""As gRPC writes it: ipv4:127.0.0.1:4312 or ipv6:%5B::1%5D:4312."""


class Segment(NamedTuple):
    """A TCP segment."""

    source: Address
    target: Address
    sequence: int
    """The sequence number of its first byte."""
    flags: int
    payload: bytes


@dataclass
class Direction:
    """One direction of a connection, reassembled."""

    first: int
    """The sequence number of its first byte."""
    content: bytearray = field(default_factory=bytearray)
    out_of_order: dict[int, bytes] = field(default_factory=dict)
    """Segments after a gap that is not filled yet, by their offset."""

    def add(self, segment: Segment) -> None:
        """Add a segment: the next one, one after a gap, or a retransmission."""
        offset = (segment.sequence - self.first) & 0xFFFFFFFF
        if offset > 0x7FFFFFFF:  # noqa: PLR2004 (half of all numbers: before the first)
            return
        if segment.payload:
            known = self.out_of_order.get(offset, b"")
            self.out_of_order[offset] = max(known, segment.payload, key=len)
        for begin in sorted(self.out_of_order):
            if begin > len(self.content):
                break
            self.content += self.out_of_order.pop(begin)[len(self.content) - begin :]

    @property
    def has_gap(self) -> bool:
        """Whether bytes are missing in the middle."""
        return bool(self.out_of_order)


@dataclass
class Connection:
    """A TCP connection from a client to a listening server."""

    client: Address
    server: Address
    up: Direction
    """From the client to the server."""
    down: Direction | None = None
    """From the server to the client; None if no packet of it was captured."""
    client_closed_at: int | None = None
    """Bytes that the server had sent when the client closed: the client reads no more."""

    @property
    def has_gap(self) -> bool:
        """Whether packets are missing."""
        return self.down is None or self.down.has_gap or self.up.has_gap


def connections(path: Path, servers: set[Address]) -> list[Connection]:
    """Return the captured connections to some listening addresses."""
    result: list[Connection] = []
    latest: dict[tuple[Address, Address], Connection] = {}
    for segment in segments(path):
        if segment.target in servers:
            ends = segment.source, segment.target
            if segment.flags & SYN:
                known = latest.get(ends)
                # A retransmitted SYN opens no other connection.
                if known is None or known.up.first != segment.sequence + 1:
                    latest[ends] = Connection(*ends, Direction(segment.sequence + 1))
                    result.append(latest[ends])
            elif ends in latest:
                _add_from_client(latest[ends], segment)
            else:
                raise InputError(
                    f"{path}: the capture began after the connection from {segment.source}"
                )
        elif segment.source in servers and (segment.target, segment.source) in latest:
            connection = latest[segment.target, segment.source]
            if segment.flags & SYN:
                connection.down = connection.down or Direction(segment.sequence + 1)
            elif connection.down:
                connection.down.add(segment)
    return result


def _add_from_client(connection: Connection, segment: Segment) -> None:
    connection.up.add(segment)
    if connection.client_closed_at is None and segment.flags & (FIN | RESET):
        connection.client_closed_at = len(connection.down.content) if connection.down else 0


def segments(path: Path) -> Iterator[Segment]:
    """Yield the TCP segments of a capture."""
    for link, packet in _packets(path):
        if link not in LINK_HEADERS:
            raise InputError(f"{path}: packets of link type {link} cannot be read")
        segment = _parse_segment(packet[LINK_HEADERS[link] :])
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
        raise InputError(f"{path}: is not a packet capture, or a broken one") from error


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
            return  # the file ends in the middle of a block
        if kind == INTERFACE:
            links.append(struct.unpack_from(f"{order}H", content, at + 8)[0])
        elif kind == ENHANCED:
            interface, _, _, captured, original = struct.unpack_from(f"{order}5I", content, at + 8)
            packet = content[at + 28 : at + 28 + captured]
            yield links[interface], _check_whole(path, packet, original)
        elif kind == SIMPLE:
            (original,) = struct.unpack_from(f"{order}I", content, at + 8)
            packet = content[at + 12 : at + size - 4][:original]
            yield links[0], _check_whole(path, packet, original)
        at += size


def _pcap(path: Path, content: bytes) -> Iterator[tuple[int, bytes]]:
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<"}.get(content[:4])
    order = order or {b"\xa1\xb2\xc3\xd4": ">", b"\xa1\xb2\x3c\x4d": ">"}[content[:4]]
    link = struct.unpack_from(f"{order}I", content, 20)[0] & 0xFFFF
    at = 24
    while at + 16 <= len(content):
        _, _, captured, original = struct.unpack_from(f"{order}4I", content, at)
        at += 16
        if at + captured > len(content):
            return
        yield link, _check_whole(path, content[at : at + captured], original)
        at += captured


def _check_whole(path: Path, packet: bytes, size: int) -> bytes:
    """Return a packet, or refuse it if it is shorter than it was on the wire."""
    if len(packet) < size:
        raise InputError(f"{path}: {TRUNCATED}")
    return packet


def _parse_segment(packet: bytes) -> Segment | None:
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
    from_port, to_port, sequence, _, offset, flags = struct.unpack_from("!HHIIBB", body)
    payload = body[(offset >> 4) * 4 :]
    return Segment(
        grpc_address(source, from_port), grpc_address(target, to_port), sequence, flags, payload
    )


def grpc_address(host: bytes | str, port: int) -> Address:
    """Return an address as gRPC writes it."""
    address = ip_address(host)
    if address.version == 4:  # noqa: PLR2004 (IP's version)
        return f"ipv4:{address}:{port}"
    return f"ipv6:%5B{address}%5D:{port}"
