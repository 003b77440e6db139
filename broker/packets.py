"""MQTT 3.1.1 packets as plain values: from bytes and to bytes, without any I/O.

The built-in broker needs what MQTT calls QoS 0 and 1; the handshake of QoS 2 is left out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

LIMIT = 4 * 2**20
"""Bytes of payload that clients and brokers agree to relay in one message."""
PACKET_LIMIT = LIMIT + 2**17
"""Bytes of a whole packet: a payload at the limit, with the longest topic there is, fits."""

PROTOCOL = "MQTT"
LEVEL = 4
"""The protocol level that stands for MQTT 3.1.1."""
MOST_QOS = 2
LENGTH_BYTES = 4
REFUSED = 0x80
"""What a SUBACK says of a filter that was not granted."""


class ProtocolError(ValueError):
    """The peer does not speak MQTT as we do: its connection has to be closed."""


class Kind(IntEnum):
    """The packet types, as the upper half of a packet's first byte gives them."""

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


class Answer(IntEnum):
    """What a CONNACK says."""

    ACCEPTED = 0
    WRONG_VERSION = 1
    WRONG_CLIENT_ID = 2
    UNAVAILABLE = 3
    WRONG_PASSWORD = 4
    NOT_AUTHORISED = 5


class Publish(NamedTuple):
    """A message; `packet` is its number where QoS 1 wants it acknowledged, else 0."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    duplicate: bool = False
    packet: int = 0


class Connect(NamedTuple):
    """A client's first packet. The will is published if it goes without a DISCONNECT."""

    client: str
    keepalive: int = 0
    clean: bool = True
    user: str | None = None
    password: bytes | None = None
    will: Publish | None = None
    level: int = LEVEL


class Connack(NamedTuple):
    """The broker's answer to a CONNECT."""

    answer: int
    session_present: bool = False


class Subscribe(NamedTuple):
    """Filters with the QoS that is asked for each."""

    packet: int
    filters: tuple[tuple[str, int], ...]


class Suback(NamedTuple):
    """The QoS granted for each filter of a SUBSCRIBE, or REFUSED."""

    packet: int
    granted: bytes


class Unsubscribe(NamedTuple):
    """Filters that are wanted no longer."""

    packet: int
    filters: tuple[str, ...]


class Acknowledgement(NamedTuple):
    """A PUBACK or UNSUBACK."""

    kind: Kind
    packet: int


class Signal(NamedTuple):
    """A packet that is nothing but its type."""

    kind: Kind


Packet = Publish | Connect | Connack | Subscribe | Suback | Unsubscribe | Acknowledgement | Signal

_ACKNOWLEDGEMENTS = (Kind.PUBACK, Kind.UNSUBACK)
_SIGNALS = (Kind.PINGREQ, Kind.PINGRESP, Kind.DISCONNECT)
_FLAGGED = (Kind.SUBSCRIBE, Kind.UNSUBSCRIBE)
"""Types whose lower half byte has to be 2; all others but PUBLISH want 0."""
# The flags of CONNECT.
_USER, _PASSWORD, _WILL_RETAIN, _WILL, _CLEAN, _RESERVED = 0x80, 0x40, 0x20, 0x04, 0x02, 0x01


# --- frames: where packets begin and end in a stream --------------------------------------------


class Frames:
    """Cuts a stream into packets: the first byte and the body of each."""

    def __init__(self, limit: int = PACKET_LIMIT) -> None:
        self._limit = limit
        self._buffer = bytearray()

    @property
    def begun(self) -> int | None:
        """The first byte of a packet that is not complete yet."""
        return self._buffer[0] if self._buffer else None

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the packets that are complete now."""
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while (frame := self._measure(start)) is not None:
                body, end = frame
                head = buffer[start]
                start = end
                yield head, bytes(buffer[body:end])
        finally:
            del buffer[:start]

    def _measure(self, start: int) -> tuple[int, int] | None:
        """Return where the body begins and where it ends, if all of it is there."""
        length = 0
        for count in range(LENGTH_BYTES):
            place = start + 1 + count
            if place >= len(self._buffer):
                return None
            length |= (self._buffer[place] & 0x7F) << (7 * count)
            if self._buffer[place] < 0x80:  # noqa: PLR2004 - the top bit says that more follow
                break
        else:
            raise ProtocolError("the length of a packet has more than four bytes")
        if length > self._limit:
            raise ProtocolError(f"a packet of {length} bytes is too large")
        end = place + 1 + length
        return (place + 1, end) if end <= len(self._buffer) else None


def _frame(head: int, *parts: bytes) -> bytes:
    length = sum(map(len, parts))
    prefix = bytearray((head,))
    while length >= 0x80:  # noqa: PLR2004 - seven bits a byte, as _measure reads them
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    prefix.append(length)
    return b"".join((prefix, *parts))


# --- to bytes -----------------------------------------------------------------------------------


def encode(packet: Packet) -> bytes:
    """Return the packet as it goes over the wire."""
    match packet:
        case Publish(topic, payload, qos, retain, duplicate, number):
            head = Kind.PUBLISH << 4 | duplicate << 3 | qos << 1 | retain
            return _frame(head, _text(topic), _short(number) if qos else b"", payload)
        case Acknowledgement(kind, number):
            return _frame(kind << 4, _short(number))
        case Signal(kind):
            return _frame(kind << 4)
        case Connect():
            return _connect(packet)
        case Connack(answer, present):
            return _frame(Kind.CONNACK << 4, bytes((present, answer)))
        case Subscribe(number, filters):
            wishes = (_text(filter_) + bytes((qos,)) for filter_, qos in filters)
            return _frame(Kind.SUBSCRIBE << 4 | 2, _short(number), *wishes)
        case Suback(number, granted):
            return _frame(Kind.SUBACK << 4, _short(number), granted)
        case Unsubscribe(number, names):
            return _frame(Kind.UNSUBSCRIBE << 4 | 2, _short(number), *map(_text, names))


def _connect(packet: Connect) -> bytes:
    flags = _CLEAN if packet.clean else 0
    fields = [_text(packet.client)]
    if packet.will is not None:
        flags |= _WILL | packet.will.qos << 3 | (_WILL_RETAIN if packet.will.retain else 0)
        fields += [_text(packet.will.topic), _binary(packet.will.payload)]
    if packet.user is not None:
        flags |= _USER
        fields.append(_text(packet.user))
    if packet.password is not None:
        flags |= _PASSWORD
        fields.append(_binary(packet.password))
    fixed = _text(PROTOCOL) + bytes((packet.level, flags)) + _short(packet.keepalive)
    return _frame(Kind.CONNECT << 4, fixed, *fields)


def _short(number: int) -> bytes:
    return number.to_bytes(2, "big")


def _binary(data: bytes) -> bytes:
    return _short(len(data)) + data


def _text(text: str) -> bytes:
    return _binary(text.encode())


# --- from bytes ---------------------------------------------------------------------------------


def decode(head: int, body: bytes) -> Packet:
    """Return the packet, or raise ProtocolError."""
    try:
        kind = Kind(head >> 4)
        if kind is Kind.PUBLISH:
            return _publish(head, _Body(body))
        rest = _Body(body)
        packet = _other(kind, rest)
    except ProtocolError:
        raise
    except (struct.error, IndexError, ValueError) as error:
        raise ProtocolError(f"a malformed packet: {error}") from error
    if rest.left or head & 0x0F != (2 if kind in _FLAGGED else 0):
        raise ProtocolError(f"wrong length or flags of {kind.name}")
    return packet


class _Body:
    """Reads a packet's body from left to right."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._place

    def byte(self) -> int:
        self._place += 1
        return self._data[self._place - 1]

    def short(self) -> int:
        (number,) = struct.unpack_from(">H", self._data, self._place)
        self._place += 2
        return int(number)

    def number(self) -> int:
        found = self.short()
        if not found:
            raise ProtocolError("a packet that needs a number has none")
        return found

    def binary(self) -> bytes:
        length = self.short()
        if length > self.left:
            raise ProtocolError("a field is longer than its packet")
        self._place += length
        return self._data[self._place - length : self._place]

    def text(self) -> str:
        found = self.binary().decode()
        if "\0" in found:
            raise ProtocolError("a text holds the character NUL")
        return found

    def rest(self) -> bytes:
        place, self._place = self._place, len(self._data)
        return self._data[place:]


def _publish(head: int, body: _Body) -> Publish:
    qos = head >> 1 & 3
    if qos > MOST_QOS:
        raise ProtocolError(f"QoS {qos} does not exist")
    topic = _name(body.text())
    number = body.number() if qos else 0
    return Publish(topic, body.rest(), qos, bool(head & 1), bool(head & 8), number)


def _other(kind: Kind, body: _Body) -> Packet:
    if kind in _ACKNOWLEDGEMENTS:
        return Acknowledgement(kind, body.number())
    if kind in _SIGNALS:
        return Signal(kind)
    if kind is Kind.CONNECT:
        return _connection(body)
    if kind is Kind.CONNACK:
        present = body.byte()
        return Connack(body.byte(), bool(present))
    if kind is Kind.SUBACK:
        return Suback(body.number(), body.rest())
    number = body.number()
    if kind is Kind.UNSUBSCRIBE:
        names = [_filter(body.text())]
        while body.left:
            names.append(_filter(body.text()))
        return Unsubscribe(number, tuple(names))
    wishes = [_wish(body)]
    while body.left:
        wishes.append(_wish(body))
    return Subscribe(number, tuple(wishes))


def _wish(body: _Body) -> tuple[str, int]:
    filter_, qos = _filter(body.text()), body.byte()
    if qos > MOST_QOS:
        raise ProtocolError(f"QoS {qos} does not exist")
    return filter_, qos


def _connection(body: _Body) -> Connect:
    protocol = body.text()
    level = body.byte()
    if protocol != PROTOCOL or level != LEVEL:
        # Another version may lay the rest out differently; the broker answers, then closes.
        body.rest()
        return Connect("", level=0 if protocol != PROTOCOL else level)
    flags, keepalive = body.byte(), body.short()
    client = body.text()
    will = None
    if flags & _WILL:
        qos = flags >> 3 & 3
        if qos > MOST_QOS:
            raise ProtocolError(f"QoS {qos} does not exist")
        will = Publish(_name(body.text()), body.binary(), qos, bool(flags & _WILL_RETAIN))
    elif flags & (_WILL_RETAIN | 3 << 3):
        raise ProtocolError("flags for a will that is not there")
    if flags & _RESERVED or (flags & _PASSWORD and not flags & _USER):
        raise ProtocolError("wrong flags in CONNECT")
    user = body.text() if flags & _USER else None
    password = body.binary() if flags & _PASSWORD else None
    return Connect(client, keepalive, bool(flags & _CLEAN), user, password, will)


def _name(topic: str) -> str:
    if not topic or "+" in topic or "#" in topic:
        raise ProtocolError(f"{topic!r} is no name of a topic")
    return topic


def _filter(text: str) -> str:
    levels = text.split("/")
    hashes = [level for level in levels[:-1] if "#" in level]
    mixed = [level for level in levels if len(level) > 1 and ("+" in level or "#" in level)]
    if not text or hashes or mixed:
        raise ProtocolError(f"{text!r} is no topic filter")
    return text
