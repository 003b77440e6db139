"""Reading gRPC from a plaintext connection: calls with their headers, messages and trailers."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import hpack
from hyperframe.exceptions import HyperframeError
from hyperframe.frame import ContinuationFrame, DataFrame, Frame, GoAwayFrame, HeadersFrame

from fogveil.core.errors import InputError
from fogveil.protocol.recording import REQUEST, RESPONSE

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_NAMES = (
    *("DATA", "HEADERS", "PRIORITY", "RST_STREAM", "SETTINGS"),
    *("PUSH_PROMISE", "PING", "GOAWAY", "WINDOW_UPDATE", "CONTINUATION"),
)
"""By frame type, as RFC 9113 names them."""
FRAME_HEADER = 9
"""Bytes."""
MESSAGE_PREFIX = struct.Struct("!BI")
"""Before each gRPC message: whether it is compressed, and its length."""
LARGEST_TABLE = 2**20
"""Bytes of headers that an encoder may refer back to."""

Header = tuple[str, str]


@dataclass
class Call:
    """One gRPC call."""

    path: str = ""
    headers: dict[str, list[Header]] = field(default_factory=lambda: {REQUEST: [], RESPONSE: []})
    """By direction, trailers included."""
    content: dict[str, bytearray] = field(
        default_factory=lambda: {REQUEST: bytearray(), RESPONSE: bytearray()}
    )
    """The DATA of each direction."""

    def messages(self, kind: str) -> Iterator[bytes]:
        """Yield the messages of a direction; a truncated or compressed rest comes last, raw."""
        content, at = self.content[kind], 0
        while at + MESSAGE_PREFIX.size <= len(content):
            compressed, size = MESSAGE_PREFIX.unpack_from(content, at)
            begin = at + MESSAGE_PREFIX.size
            if compressed or begin + size > len(content):
                break
            yield bytes(content[begin : begin + size])
            at = begin + size
        if at < len(content):
            yield bytes(content[at:])


@dataclass
class GrpcConnection:
    """All calls on one HTTP/2 connection."""

    calls: list[Call] = field(default_factory=list)
    frames: Counter[str] = field(default_factory=Counter)
    """The number of frames, by name."""
    goaways: list[str] = field(default_factory=list)
    """Debug texts of GOAWAY frames."""
    unread_trailers: list[Header] = field(default_factory=list)
    """Trailers sent after the client had closed: gRPC generates them, and nobody reads them."""


class Direction(Protocol):
    """The bytes of one direction of a connection."""

    content: bytearray


class Connection(Protocol):
    """A connection whose bytes are known, from captured packets or from a wire tap."""

    client_closed_at: int | None

    @property
    def client(self) -> str:
        """Who opened it."""

    @property
    def server(self) -> str:
        """Who listened."""

    @property
    def up(self) -> Direction:
        """From the client to the server."""

    @property
    def down(self) -> Direction | None:
        """From the server to the client, if anything is known of it."""


def read_connection(connection: Connection) -> GrpcConnection:
    """Parse both directions of a connection."""
    parsed = GrpcConnection()
    calls: dict[int, Call] = {}
    content = bytes(connection.up.content)
    if not content:
        return parsed  # opened and closed without a byte
    if not content.startswith(PREFACE):
        raise InputError(
            f"{connection.client} does not speak plaintext HTTP/2 to {connection.server}: packets "
            "can be read only of a testbed that was started with --insecure"
        )
    try:
        _read_direction(content[len(PREFACE) :], REQUEST, calls, parsed)
        if connection.down:
            closed_at = connection.client_closed_at
            _read_direction(bytes(connection.down.content), RESPONSE, calls, parsed, closed_at)
    except (HyperframeError, hpack.HPACKError) as error:
        raise InputError(
            f"the connection from {connection.client} to {connection.server} has invalid HTTP/2: "
            f"{error}"
        ) from error
    parsed.calls = [calls[stream] for stream in sorted(calls)]
    return parsed


def _read_direction(
    content: bytes,
    kind: str,
    calls: dict[int, Call],
    parsed: GrpcConnection,
    closed_at: int | None = None,
) -> None:
    """Add one direction to the calls; nobody reads headers from the offset `closed_at` on."""
    for at, frame, _, headers in read_frames(content):
        parsed.frames[frame_name(frame)] += 1
        if isinstance(frame, GoAwayFrame):
            parsed.goaways.append(_text(frame.additional_data))
        if not isinstance(frame, DataFrame | HeadersFrame | ContinuationFrame):
            continue
        call = calls.setdefault(frame.stream_id, Call())
        if isinstance(frame, DataFrame):
            call.content[kind] += frame.data
        for header in headers:
            read = closed_at is None or at < closed_at
            (call.headers[kind] if read else parsed.unread_trailers).append(header)
            if header[0] == ":path":
                call.path = header[1]


class ReadFrame(NamedTuple):
    """A frame of one direction."""

    at: int
    """Its offset."""
    frame: Frame
    raw: bytes
    headers: list[Header]
    """The headers of the block that ends with it."""


def read_frames(content: bytes) -> Iterator[ReadFrame]:
    """Yield the complete frames of one direction, without the client's preface."""
    decoder = hpack.Decoder()
    decoder.max_allowed_table_size = LARGEST_TABLE
    block = b""
    view, at = memoryview(content), 0
    while at + FRAME_HEADER <= len(view):
        begin = at + FRAME_HEADER
        frame, size = Frame.parse_frame_header(view[at:begin])
        end = begin + size
        if end > len(view):
            return
        frame.parse_body(view[begin:end])
        headers: list[Header] = []
        if isinstance(frame, HeadersFrame | ContinuationFrame):
            block = frame.data if isinstance(frame, HeadersFrame) else block + frame.data
            if "END_HEADERS" in frame.flags:
                decoded = decoder.decode(block, raw=True)
                headers = [(_text(name), _text(value)) for name, value in decoded]
        yield ReadFrame(at, frame, bytes(view[at:end]), headers)
        at = end


def frame_name(frame: Frame) -> str:
    """Return a frame's type as the standard names it."""
    number = frame.type if frame.type is not None else -1
    return FRAME_NAMES[number] if 0 <= number < len(FRAME_NAMES) else f"type {number}"


def _text(raw: bytes | str) -> str:
    return raw if isinstance(raw, str) else raw.decode(errors="backslashreplace")
