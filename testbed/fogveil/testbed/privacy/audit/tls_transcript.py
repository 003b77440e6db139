"""What one end of a TLS connection said in the handshake, as the tap's own TLS library read it.

OpenSSL hands over every handshake message in clear, so only the fields of messages are read here:
the packages that do it are scanners or whole TLS stacks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum


class Content(IntEnum):
    """Kinds of what OpenSSL reports: two of TLS, and two of its own about a record."""

    ALERT = 21
    HANDSHAKE = 22
    RECORD_HEADER = 256
    OPENED = 257
    """An encrypted record was decrypted."""


class Kind(IntEnum):
    """Handshake messages (RFC 8446, 4)."""

    CLIENT_HELLO = 1
    SERVER_HELLO = 2
    NEW_SESSION_TICKET = 4
    CERTIFICATE = 11
    CERTIFICATE_VERIFY = 15
    FINISHED = 20


SERVER_NAME, KEY_SHARE = 0, 51
"""Extensions with a value of their own in each connection."""
CHANGE_CIPHER_SPEC, SEALED = 20, 23
"""Types of records: one without meaning, and the encrypted one."""
SEAL = 17
"""Bytes that encryption adds to a record: its type, and an authentication tag."""
RETRY = hashlib.sha256(b"HelloRetryRequest").digest()
"""What stands for the random number where a server asks for another hello."""
HELLOS = (Kind.CLIENT_HELLO, Kind.SERVER_HELLO)


@dataclass
class Transcript:
    """Everything that one end said but its data."""

    messages: list[bytes] = field(default_factory=list)
    """Handshake messages, each with its type and length in front."""
    alerts: list[bytes] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    """The type and version bytes of records, each pair once."""
    changes: int = 0
    """Records of type CHANGE_CIPHER_SPEC."""
    sealed: int = 0
    """Bytes in encrypted records, padding included."""
    padding: int = 0
    """How many of them were padding when data came last."""
    records: int = 0
    """Records that had held data by then."""
    opened: int = field(default=0, repr=False)
    """Records of data that were decrypted."""
    latest: int = field(default=0, repr=False)
    """The length of the latest record."""

    def note(self, content: int, data: bytes) -> None:
        """Take down what the TLS library reports."""
        if content == Content.RECORD_HEADER:
            version = data[:3].hex()
            if version not in self.versions:
                self.versions.append(version)
            self.changes += data[0] == CHANGE_CIPHER_SPEC
            self.latest = int.from_bytes(data[3:5], "big")
        elif content == Content.OPENED:
            self.sealed += self.latest - SEAL
            self.opened += data[0] == SEALED
        elif content == Content.HANDSHAKE:
            self.messages.append(data)
        elif content == Content.ALERT:
            self.alerts.append(data)

    def note_data(self, size: int) -> None:
        """Compare the encrypted records with the bytes of data that came out of them so far."""
        known = sum(len(message) for message in self.messages if message[0] not in HELLOS)
        self.padding = self.sealed - known - sum(map(len, self.alerts)) - size
        self.records = self.opened

    def shape(self, host: str = "") -> list[str]:
        """Return all that the sender chose, without what is drawn at random.

        `host` is the name that the caller has to ask for.
        """
        shapes = [item for message in self.messages for item in _shape(message, host)]
        return [*shapes, f"records {' '.join(self.versions)}", f"{self.changes} changes of cipher"]

    def drawn(self) -> Iterator[tuple[str, bytes]]:
        """Yield the name and the value of everything that is drawn at random."""
        for message in self.messages:
            if message[0] in HELLOS:
                with suppress(ValueError):  # its shape shows that it cannot be read
                    yield from _drawn_in_hello(message)
            elif message[0] == Kind.NEW_SESSION_TICKET:
                yield "session ticket", message
            elif message[0] == Kind.CERTIFICATE_VERIFY:
                yield "signature", message


def _drawn_in_hello(message: bytes) -> Iterator[tuple[str, bytes]]:
    client = message[0] == Kind.CLIENT_HELLO
    hello = _Hello(_Reader(message[4:]), client=client)
    if hello.random != RETRY:
        yield "random number", hello.random
    if client and hello.session:  # a server echoes it
        yield "session id", hello.session
    for number, value in hello.extensions:
        if number == KEY_SHARE:
            yield "key share", value


class _Reader:
    """Reads fields of known lengths, and fields that begin with their length."""

    def __init__(self, content: bytes) -> None:
        self.rest = content

    def take(self, size: int) -> bytes:
        if size > len(self.rest):
            raise ValueError("a message of TLS is shorter than it says")
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def field(self, prefix: int) -> bytes:
        return self.take(int.from_bytes(self.take(prefix), "big"))

    def extensions(self) -> list[tuple[int, bytes]]:
        inner = _Reader(self.field(2) if self.rest else b"")
        found = []
        while inner.rest:
            found.append((int.from_bytes(inner.take(2), "big"), inner.field(2)))
        return found


class _Hello:
    """The hello of either end (RFC 8446, 4.1): they differ in lists of ciphers."""

    def __init__(self, reader: _Reader, *, client: bool) -> None:
        self.version = reader.take(2)
        self.random = reader.take(32)
        self.session = reader.field(1)
        self.ciphers = reader.field(2) if client else reader.take(2)
        self.compression = reader.field(1) if client else reader.take(1)
        self.extensions = reader.extensions()
        self.rest = reader.rest


def _shape(message: bytes, host: str) -> list[str]:
    try:
        return [*_parts(message, host)]
    except ValueError:
        return [f"no message of TLS: {message.hex()}"]


def _parts(message: bytes, host: str) -> Iterator[str]:
    kind, reader = message[0], _Reader(message[4:])
    if kind in HELLOS:
        hello = _Hello(reader, client=kind == Kind.CLIENT_HELLO)
        parts = (hello.version, hello.ciphers, hello.compression, hello.rest)
        fields = " ".join(part.hex() for part in parts)
        yield f"{Kind(kind).name} with a session id of {len(hello.session)} bytes: {fields}"
        for number, value in hello.extensions:
            yield f"extension {_name(number)}: {_blank(kind, number, value, host)}"
    elif kind == Kind.CERTIFICATE:  # the certificates themselves have a check of their own
        context, entries = reader.field(1), _Reader(reader.field(3))
        attached = b""
        while entries.rest:
            entries.field(3)
            attached += entries.field(2)
        yield f"CERTIFICATE {context.hex()} {attached.hex()} {reader.rest.hex()}"
    elif kind == Kind.CERTIFICATE_VERIFY:
        yield f"CERTIFICATE_VERIFY {reader.take(2).hex()}"
    elif kind == Kind.FINISHED:
        yield f"FINISHED of {len(reader.rest)} bytes"
    elif kind == Kind.NEW_SESSION_TICKET:
        lifetime, _age = int.from_bytes(reader.take(4), "big"), reader.take(4)
        minutes = -(-lifetime // 60)  # it is less by the seconds that the handshake took
        nonce, _ticket = reader.field(1), reader.field(2)
        extensions = [f"{_name(number)}={value.hex()}" for number, value in reader.extensions()]
        yield f"NEW_SESSION_TICKET {minutes} {nonce.hex()} {extensions} {reader.rest.hex()}"
    else:
        yield message.hex()


def _name(extension: int) -> str:
    """Return an extension's number; one of sixteen that mean nothing is drawn at random (RFC 8701).

    >>> _name(51), _name(0x4A4A)
    ('51', 'GREASE')
    """
    high, low = divmod(extension, 256)
    return "GREASE" if high == low and low & 0xF == 0xA else str(extension)  # noqa: PLR2004


def _blank(kind: int, number: int, value: bytes, host: str) -> str:
    """Return the value of an extension, without keys and without the host that is expected."""
    if number == SERVER_NAME and host:
        return value.replace(host.encode(), b"HOST").hex()
    if number != KEY_SHARE:
        return value.hex()
    reader = _Reader(value)
    if kind == Kind.CLIENT_HELLO:
        reader = _Reader(reader.field(2))
    groups = []
    while reader.rest:
        group = reader.take(2).hex()
        groups.append(f"{group} of {len(reader.field(2))}")
    return str(groups)
