"""MQTT 3.1.1 packets as plain values: parsing and serializing without I/O.

QoS 2 can be parsed, but its handshake (PUBREC, PUBREL, PUBCOMP) is not included.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

PAYLOAD_LIMIT = 4 * 2**20
"""Bytes of the largest payload that clients and brokers relay."""
PACKET_LIMIT = PAYLOAD_LIMIT + 2**17
"""Bytes of the largest packet: a payload at the limit with the longest possible topic."""

PROTOCOL_NAME = "MQTT"
PROTOCOL_LEVEL = 4
"""The level that stands for MQTT 3.1.1."""
MAX_QOS = 2
MAX_LENGTH_BYTES = 4
REFUSED = 0x80
"""The return code of a filter that was not granted, in a SUBACK."""


class ProtocolError(ValueError):
    """The peer violates MQTT, and its connection has to be closed."""


class PacketType(IntEnum):
    """The types of packets, which stand in the upper four bits of a packet's first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14


class ReturnCode(IntEnum):
    """The return codes of a CONNACK."""

    ACCEPTED = 0
    WRONG_VERSION = 1
    WRONG_CLIENT_ID = 2
    UNAVAILABLE = 3
    WRONG_PASSWORD = 4
    NOT_AUTHORISED = 5


class Publish(NamedTuple):
    """A message; QoS 1 has a packet id, by which it is acknowledged, QoS 0 has 0."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    duplicate: bool = False
    packet_id: int = 0


class Connect(NamedTuple):
    """A client's first packet; its will is published if it goes without a DISCONNECT."""

    client_id: str
    keepalive: int = 0
    clean: bool = True
    user: str | None = None
    password: bytes | None = None
    will: Publish | None = None
    level: int = PROTOCOL_LEVEL


class Connack(NamedTuple):
    """The broker's answer to a CONNECT."""

    code: int
    session_present: bool = False


class Subscribe(NamedTuple):
    """A request for subscriptions: filters, each with the QoS requested for it."""

    packet_id: int
    filters: tuple[tuple[str, int], ...]


class Suback(NamedTuple):
    """The answer to a SUBSCRIBE: the QoS granted for each filter, or REFUSED."""

    packet_id: int
    codes: bytes


class Unsubscribe(NamedTuple):
    """A request to end subscriptions."""

    packet_id: int
    filters: tuple[str, ...]


class Acknowledgement(NamedTuple):
    """A PUBACK or UNSUBACK."""

    type: PacketType
    packet_id: int


class EmptyPacket(NamedTuple):
    """A packet without a body: PINGREQ, PINGRESP or DISCONNECT."""

    type: PacketType


Packet = (
    Publish | Connect | Connack | Subscribe | Suback | Unsubscribe | Acknowledgement | EmptyPacket
)

_ACKNOWLEDGEMENTS = (PacketType.PUBACK, PacketType.UNSUBACK)
_EMPTY = (PacketType.PINGREQ, PacketType.PINGRESP, PacketType.DISCONNECT)
_FLAGGED = (PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE)
"""Types whose header flags have to be 2; those of all others but PUBLISH have to be 0."""
# The flags of CONNECT.
_USER, _PASSWORD, _WILL_RETAIN, _WILL, _CLEAN, _RESERVED = 0x80, 0x40, 0x20, 0x04, 0x02, 0x01


# --- framing -------------------------------------------------------------------------------------


class Framer:
    """Splits a stream of bytes into packets, each given as its first byte and its body."""

    def __init__(self, limit: int = PACKET_LIMIT) -> None:
        self._limit = limit
        self._buffer = bytearray()

    @property
    def incomplete(self) -> int | None:
        """The first byte of a packet that is not complete yet."""
        return self._buffer[0] if self._buffer else None

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Add bytes, and yield the packets that are complete with them."""
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while (bounds := self._body_bounds(start)) is not None:
                body, end = bounds
                header = buffer[start]
                start = end
                yield header, bytes(buffer[body:end])
        finally:
            del buffer[:start]

    def _body_bounds(self, start: int) -> tuple[int, int] | None:
        """Return where the body of the packet at `start` begins and ends, if it is complete."""
        length = 0
        for count in range(MAX_LENGTH_BYTES):
            position = start + 1 + count
            if position >= len(self._buffer):
                return None
            length |= (self._buffer[position] & 0x7F) << (7 * count)
            if self._buffer[position] < 0x80:  # noqa: PLR2004 - the top bit: more bytes follow
                break
        else:
            raise ProtocolError("the length of a packet has more than four bytes")
        if length > self._limit:
            raise ProtocolError(f"a packet of {length} bytes is too large")
        end = position + 1 + length
        return (position + 1, end) if end <= len(self._buffer) else None


def _frame(header: int, *parts: bytes) -> bytes:
    length = sum(map(len, parts))
    prefix = bytearray((header,))
    while length >= 0x80:  # noqa: PLR2004 - seven bits a byte, as _body_bounds reads them
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    prefix.append(length)
    return b"".join((prefix, *parts))


# --- serializing ---------------------------------------------------------------------------------


def encode(packet: Packet) -> bytes:
    """Return the bytes of a packet."""
    match packet:
        case Publish(topic, payload, qos, retain, duplicate, packet_id):
            header = PacketType.PUBLISH << 4 | duplicate << 3 | qos << 1 | retain
            return _frame(header, _text(topic), _uint16(packet_id) if qos else b"", payload)
        case Acknowledgement(type_, packet_id):
            return _frame(type_ << 4, _uint16(packet_id))
        case EmptyPacket(type_):
            return _frame(type_ << 4)
        case Connect():
            return _encode_connect(packet)
        case Connack(code, session_present):
            return _frame(PacketType.CONNACK << 4, bytes((session_present, code)))
        case Subscribe(packet_id, requests):
            filters = (_text(filter_) + bytes((qos,)) for filter_, qos in requests)
            return _frame(PacketType.SUBSCRIBE << 4 | 2, _uint16(packet_id), *filters)
        case Suback(packet_id, codes):
            return _frame(PacketType.SUBACK << 4, _uint16(packet_id), codes)
        case Unsubscribe(packet_id, names):
            return _frame(PacketType.UNSUBSCRIBE << 4 | 2, _uint16(packet_id), *map(_text, names))


def _encode_connect(packet: Connect) -> bytes:
    flags = _CLEAN if packet.clean else 0
    fields = [_text(packet.client_id)]
    if packet.will is not None:
        flags |= _WILL | packet.will.qos << 3 | (_WILL_RETAIN if packet.will.retain else 0)
        fields += [_text(packet.will.topic), _binary(packet.will.payload)]
    if packet.user is not None:
        flags |= _USER
        fields.append(_text(packet.user))
    if packet.password is not None:
        flags |= _PASSWORD
        fields.append(_binary(packet.password))
    fixed = _text(PROTOCOL_NAME) + bytes((packet.level, flags)) + _uint16(packet.keepalive)
    return _frame(PacketType.CONNECT << 4, fixed, *fields)


def _uint16(number: int) -> bytes:
    return number.to_bytes(2, "big")


def _binary(data: bytes) -> bytes:
    return _uint16(len(data)) + data


def _text(text: str) -> bytes:
    return _binary(text.encode())


# --- parsing -------------------------------------------------------------------------------------


def decode(header: int, body: bytes) -> Packet:
    """Return the packet with this first byte and body, or raise ProtocolError."""
    try:
        type_ = PacketType(header >> 4)
        if type_ is PacketType.PUBLISH:
            return _decode_publish(header, _BodyReader(body))
        reader = _BodyReader(body)
        packet = _decode_other(type_, reader)
    except ProtocolError:
        raise
    except (struct.error, IndexError, ValueError) as error:
        raise ProtocolError(f"malformed packet: {error}") from error
    if reader.remaining or header & 0x0F != (2 if type_ in _FLAGGED else 0):
        raise ProtocolError(f"wrong length or flags of {type_.name}")
    return packet


class _BodyReader:
    """Reads the fields of a packet's body one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def remaining(self) -> int:
        return len(self._data) - self._position

    def byte(self) -> int:
        self._position += 1
        return self._data[self._position - 1]

    def uint16(self) -> int:
        (number,) = struct.unpack_from(">H", self._data, self._position)
        self._position += 2
        return int(number)

    def packet_id(self) -> int:
        number = self.uint16()
        if not number:
            raise ProtocolError("a packet id is 0")
        return number

    def binary(self) -> bytes:
        length = self.uint16()
        if length > self.remaining:
            raise ProtocolError("a field is longer than its packet")
        self._position += length
        return self._data[self._position - length : self._position]

    def text(self) -> str:
        text = self.binary().decode()
        if "\0" in text:
            raise ProtocolError("a text contains the character NUL")
        return text

    def rest(self) -> bytes:
        start, self._position = self._position, len(self._data)
        return self._data[start:]


def _decode_publish(header: int, body: _BodyReader) -> Publish:
    qos = _valid_qos(header >> 1 & 3)
    topic = _valid_topic(body.text())
    packet_id = body.packet_id() if qos else 0
    return Publish(topic, body.rest(), qos, bool(header & 1), bool(header & 8), packet_id)


def _decode_other(type_: PacketType, body: _BodyReader) -> Packet:
    if type_ in _ACKNOWLEDGEMENTS:
        return Acknowledgement(type_, body.packet_id())
    if type_ in _EMPTY:
        return EmptyPacket(type_)
    if type_ is PacketType.CONNECT:
        return _decode_connect(body)
    if type_ is PacketType.CONNACK:
        session_present = body.byte()
        return Connack(body.byte(), bool(session_present))
    if type_ is PacketType.SUBACK:
        return Suback(body.packet_id(), body.rest())
    packet_id = body.packet_id()
    if type_ is PacketType.UNSUBSCRIBE:
        names = [_valid_filter(body.text())]
        while body.remaining:
            names.append(_valid_filter(body.text()))
        return Unsubscribe(packet_id, tuple(names))
    requests = [_decode_request(body)]
    while body.remaining:
        requests.append(_decode_request(body))
    return Subscribe(packet_id, tuple(requests))


def _decode_request(body: _BodyReader) -> tuple[str, int]:
    return _valid_filter(body.text()), _valid_qos(body.byte())


def _decode_connect(body: _BodyReader) -> Connect:
    protocol = body.text()
    level = body.byte()
    if protocol != PROTOCOL_NAME or level != PROTOCOL_LEVEL:
        # Other versions may have other fields; the broker refuses them by a CONNACK.
        body.rest()
        return Connect("", level=0 if protocol != PROTOCOL_NAME else level)
    flags, keepalive = body.byte(), body.uint16()
    client_id = body.text()
    will = None
    if flags & _WILL:
        qos = _valid_qos(flags >> 3 & 3)
        topic = _valid_topic(body.text())
        will = Publish(topic, body.binary(), qos, bool(flags & _WILL_RETAIN))
    elif flags & (_WILL_RETAIN | 3 << 3):
        raise ProtocolError("flags of a will without a will")
    if flags & _RESERVED or (flags & _PASSWORD and not flags & _USER):
        raise ProtocolError("wrong flags in CONNECT")
    user = body.text() if flags & _USER else None
    password = body.binary() if flags & _PASSWORD else None
    return Connect(client_id, keepalive, bool(flags & _CLEAN), user, password, will)


def _valid_qos(qos: int) -> int:
    if qos > MAX_QOS:
        raise ProtocolError(f"QoS {qos} does not exist")
    return qos


def _valid_topic(topic: str) -> str:
    if not topic or "+" in topic or "#" in topic:
        raise ProtocolError(f"{topic!r} is not a topic")
    return topic


def _valid_filter(text: str) -> str:
    levels = text.split("/")
    early_hash = any("#" in level for level in levels[:-1])
    mixed = any(len(level) > 1 and ("+" in level or "#" in level) for level in levels)
    if not text or early_hash or mixed:
        raise ProtocolError(f"{text!r} is not a topic filter")
    return text
