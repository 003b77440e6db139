"""A wire log, read: HTTP/2 frames and gRPC calls, MQTT packets, and every byte that is neither."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import hpack
from hyperframe.exceptions import HyperframeError
from hyperframe.frame import DataFrame, HeadersFrame

from fogveil.broker.mqtt_packets import (
    EmptyPacket,
    Framer,
    Packet,
    PacketType,
    ProtocolError,
    Publish,
    decode,
    encode,
)
from fogveil.core.errors import InfrastructureError
from fogveil.testbed.privacy.audit.wire_log import Connection, Stream, WireLog
from fogveil.testbed.privacy.inspect.http2 import (
    MESSAGE_PREFIX,
    PREFACE,
    Header,
    ReadFrame,
    read_frames,
)

CUT_FRAME, CUT_PACKET = "bytes at the end are no complete frame", "the last packet is incomplete"
"""What is wrong with a stream that ends half-way."""


class Message(NamedTuple):
    """A gRPC message."""

    flag: int
    """1 where it is compressed."""
    payload: bytes


@dataclass
class HalfCall:
    """One direction of one HTTP/2 stream."""

    blocks: list[list[Header]] = field(default_factory=list)
    """Headers, then trailers."""
    content: bytearray = field(default_factory=bytearray)

    @cached_property
    def messages(self) -> list[Message]:
        """The complete messages."""
        return self._parsed[0]

    @property
    def rest(self) -> bytes:
        """The bytes after the last complete message."""
        return self._parsed[1]

    @cached_property
    def _parsed(self) -> tuple[list[Message], bytes]:
        messages, at, content = [], 0, self.content
        while at + MESSAGE_PREFIX.size <= len(content):
            flag, size = MESSAGE_PREFIX.unpack_from(content, at)
            begin = at + MESSAGE_PREFIX.size
            if begin + size > len(content):
                break
            messages.append(Message(flag, bytes(content[begin : begin + size])))
            at = begin + size
        return messages, bytes(content[at:])


class GrpcSide:
    """One direction of a gRPC connection."""

    def __init__(self, sender: str, receiver: str, content: bytes, preface: bytes) -> None:
        self.sender, self.receiver = sender, receiver
        self.frames: list[ReadFrame] = []
        self.calls: dict[int, HalfCall] = {}
        """By stream."""
        self.fault = ""
        """Why the rest could not be read."""
        if content and not content.startswith(preface):
            self.fault = "it does not begin as HTTP/2 does"
            return
        at = len(preface)
        try:
            for read in read_frames(content[at:]):
                self.frames.append(read)
                at += len(read.raw)
                self._add(read)
        except (HyperframeError, hpack.HPACKError, ValueError) as error:
            self.fault = f"invalid HTTP/2: {error}"
        if content and at < len(content) and not self.fault:
            self.fault = f"{len(content) - at} {CUT_FRAME}"

    def _add(self, read: ReadFrame) -> None:
        frame = read.frame
        if isinstance(frame, DataFrame):
            self._call(frame.stream_id).content += frame.data
        elif isinstance(frame, HeadersFrame) or read.headers:
            self._call(frame.stream_id).blocks.append(read.headers)

    def _call(self, stream: int) -> HalfCall:
        return self.calls.setdefault(stream, HalfCall())


class GrpcTraffic:
    """Both directions of a gRPC connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        caller, callee = connection.caller, connection.callee
        self.up = GrpcSide(caller, callee, bytes(connection.up.content), PREFACE)
        self.down = GrpcSide(callee, caller, bytes(connection.down.content), b"")

    def method(self, stream: int) -> str:
        """Return the path that a stream was opened with."""
        call = self.up.calls.get(stream)
        headers = dict(call.blocks[0]) if call and call.blocks else {}
        return headers.get(":path", "")

    def half_calls(self) -> Iterator[tuple[GrpcSide, int, HalfCall]]:
        """Yield every direction of every call, in the order of streams."""
        for stream in sorted({*self.up.calls, *self.down.calls}):
            for side in (self.up, self.down):
                if stream in side.calls:
                    yield side, stream, side.calls[stream]


class ReadPacket(NamedTuple):
    """An MQTT packet."""

    packet: Packet | None
    """None where the bytes are no packet of MQTT 3.1.1 as it is used here."""
    raw_header: int
    body: bytes
    fault: str

    @property
    def is_canonical(self) -> bool:
        """Whether its body is the one that its meaning encodes to."""
        return self.packet is not None and encode(self.packet).endswith(self.body)


class MqttSide:
    """One direction of an MQTT connection."""

    def __init__(self, sender: str, receiver: str, stream: Stream) -> None:
        self.sender, self.receiver = sender, receiver
        self.packets: list[ReadPacket] = []
        self.fault = ""
        framer = Framer()
        size = 0
        try:
            for header, body in framer.feed(bytes(stream.content)):
                self.packets.append(_read_packet(header, body))
                size += 1 + _length_size(len(body)) + len(body)
        except ProtocolError as error:
            self.fault = str(error)
        if not self.fault and framer.incomplete is None and size != len(stream.content):
            self.fault = "the length of a packet is encoded in more bytes than needed"
        elif not self.fault and framer.incomplete is not None:
            self.fault = CUT_PACKET

    @property
    def has_disconnected(self) -> bool:
        """Whether a client said last that it leaves."""
        last = self.packets[-1].packet if self.packets else None
        return last == EmptyPacket(PacketType.DISCONNECT)

    def publishes(self) -> Iterator[Publish]:
        """Yield the messages."""
        return (read.packet for read in self.packets if isinstance(read.packet, Publish))


class MqttTraffic:
    """Both directions of an MQTT connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.up = MqttSide(connection.caller, connection.callee, connection.up)
        self.down = MqttSide(connection.callee, connection.caller, connection.down)


class Traffic:
    """A whole run."""

    def __init__(self, log: WireLog) -> None:
        self.log = log
        self.grpc = [GrpcTraffic(c) for c in log.connections if c.plane != "mqtt"]
        self.mqtt = [MqttTraffic(c) for c in log.connections if c.plane == "mqtt"]

    def require_ends(self) -> None:
        """Fail if the log lacks the end of a connection: then it is no evidence of anything."""
        read: list[GrpcTraffic | MqttTraffic] = [*self.grpc, *self.mqtt]
        faults = [(each.connection, side.fault) for each in read for side in (each.up, each.down)]
        missing = [each for each, fault in faults if fault.endswith((CUT_FRAME, CUT_PACKET))]
        missing += [each.connection for each in self.mqtt if not each.up.has_disconnected]
        if lost := dict.fromkeys(str(each) for each in missing if each.cut):
            raise InfrastructureError(
                f"the wire tap lost the end of {'; '.join(lost)}: audit again, if the machine is "
                "very busy when it is less so"
            )

    @cached_property
    def messages(self) -> dict[tuple[str, str, str], list[Message]]:
        """All gRPC messages by sender, receiver and method, in order."""
        found: dict[tuple[str, str, str], list[Message]] = {}
        for traffic in self.grpc:
            for side, stream, call in traffic.half_calls():
                flow = side.sender, side.receiver, traffic.method(stream)
                found.setdefault(flow, []).extend(call.messages)
        return {flow: messages for flow, messages in found.items() if messages}

    @cached_property
    def published(self) -> dict[tuple[str, str], list[Publish]]:
        """All MQTT messages that reached the broker, by sender and topic, in order."""
        return self._publishes("up")

    @cached_property
    def delivered(self) -> dict[tuple[str, str], list[Publish]]:
        """All MQTT messages that the broker delivered, by receiver and topic, in order."""
        return self._publishes("down")

    def _publishes(self, direction: str) -> dict[tuple[str, str], list[Publish]]:
        found: dict[tuple[str, str], list[Publish]] = {}
        for traffic in self.mqtt:
            for packet in getattr(traffic, direction).publishes():
                key = traffic.connection.caller, packet.topic
                found.setdefault(key, []).append(packet)
        return found


def _read_packet(header: int, body: bytes) -> ReadPacket:
    try:
        return ReadPacket(decode(header, body), header, body, "")
    except ProtocolError as error:
        return ReadPacket(None, header, body, str(error))


def _length_size(length: int) -> int:
    """Return how many bytes encode a packet's length."""
    return max(1, (length.bit_length() + 6) // 7)
