"""Reading what was recorded: messages decoded field by field, and whether that explains them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from grpc_reflection.v1alpha import reflection_pb2

from broker.topics import PREFIX, Topics
from fogveil.errors import InputError
from fogveil.recording import DELIVERY, MESSAGES, REQUEST
from fogveil.v1 import boundary_pb2, clock_pb2, full_pb2, total_pb2, workload_pb2

SERVICES = (boundary_pb2, clock_pb2, full_pb2, total_pb2, reflection_pb2)
"""Whose methods can be decoded: importing them puts them into the pool."""
DELIVERED = {
    "workload": workload_pb2.Workloads.DESCRIPTOR,
    "placement": workload_pb2.Placements.DESCRIPTOR,
    "aggregate": workload_pb2.Aggregates.DESCRIPTOR,
    "feedback": workload_pb2.Feedback.DESCRIPTOR,
    "keys": total_pb2.KeyAnnouncement.DESCRIPTOR,
}
"""What the broker delivers, by the first word of the topic."""
TWICE = "/grpc.reflection.v1.", "/grpc.reflection.v1alpha."
"""Two names of one service, of which one is described here."""


class Crossing(NamedTuple):
    """A message that crossed from one participant to another."""

    at: float
    simulated: float
    sender: str
    receiver: str
    method: str
    kind: str
    """request or response; else what went beside the messages (fogveil.recording has the words)."""
    payload: bytes
    """Of a message."""
    text: Any = None
    """Of what went beside the messages."""
    address: str | None = None
    """Where the call came from, as the server noted it with the call's metadata."""

    @property
    def is_message(self) -> bool:
        """Whether it has bytes to decode."""
        return self.kind in MESSAGES or self.kind == DELIVERY

    @property
    def message(self) -> Any:
        """The message, decoded by the protocol's own description."""
        described = described_by(self.method, self.kind)
        if described is None:
            raise DecodeError(f"no message of ours goes by {self.method}")
        return GetMessageClass(described).FromString(self.payload)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that are set, by their names."""
        found: dict[str, Any] = MessageToDict(self.message, preserving_proto_field_name=True)
        return found

    @property
    def spelled(self) -> str:
        """The method as people write it, or the topic without the run's name."""
        if self.kind == DELIVERY:
            return _topic(self.method)[1]
        return spell_method(self.method)

    @property
    def origin(self) -> str:
        """Who said it: of what the broker delivered, whom the topic names."""
        if self.kind != DELIVERY:
            return self.sender
        run, _ = _topic(self.method)
        return Topics(run).publisher(self.method) or self.sender

    @property
    def unexplained(self) -> str:
        """What of a message no field of the protocol explains, or "".

        The fields, encoded again, must give the same bytes: else something hides beside them, or in
        the way they are encoded.
        """
        if not self.is_message:
            return ""
        described = described_by(self.method, self.kind)
        if described is None:
            return f"{len(self.payload)} bytes of a method that the protocol does not have"
        try:
            message = self.message
        except DecodeError:
            return f"{len(self.payload)} bytes that are no {described.name}"
        message.DiscardUnknownFields()
        if message.SerializeToString(deterministic=True) == self.payload:
            return ""
        unknown = list(_unknown(self.message))
        return ", ".join(unknown) or f"{described.name} in an encoding of its own"


def _unknown(message: Message, path: str = "") -> Iterator[str]:
    unknown = UnknownFieldSet(message)
    for field in (unknown[place] for place in range(len(unknown))):
        yield f"{path}field {field.field_number}: {field.data!r}"
    for described, value in message.ListFields():
        if described.message_type:
            for inner in value if described.is_repeated else (value,):
                yield from _unknown(inner, f"{path}{described.name}.")


def spell_method(method: str) -> str:
    """Spell a method as people write it.

    >>> spell_method("/fogveil.v1.QueueService/Watch")
    'QueueService.Watch'
    """
    service, _, name = method.strip("/").rpartition("/")
    return f"{service.rpartition('.')[2]}.{name}"


def _topic(topic: str) -> tuple[str, str]:
    """Split a topic into the run and the rest."""
    run, _, rest = topic.removeprefix(f"{PREFIX}/").partition("/")
    return run, rest or topic


@cache
def described_by(method: str, kind: str) -> Descriptor | None:
    """Return the description of the messages of a method, or of a topic."""
    if kind == DELIVERY:
        return DELIVERED.get(_topic(method)[1].partition("/")[0])
    service, _, name = method.replace(*TWICE).strip("/").rpartition("/")
    try:
        found = descriptor_pool.Default().FindServiceByName(service).methods_by_name[name]
    except KeyError:
        return None
    described: Descriptor = found.input_type if kind == REQUEST else found.output_type
    return described


def read_traffic(path: Path) -> Iterator[Crossing]:
    """Read a participant's recording."""
    return Tail(path).new()


class Tail:
    """A recording that may still grow: hands out what was added since it was last asked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        """Bytes of whole lines."""

    def new(self) -> Iterator[Crossing]:
        """Yield what is there by now; a line that is half written stays for the next time."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    self._read += len(line)
                    yield _crossing(line)
        except OSError as error:
            raise InputError(f"{self._path}: cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{self._path}: is not a recording of messages") from error


def _crossing(line: bytes) -> Crossing:
    told = json.loads(line)
    return Crossing(
        float(told["at"]),
        float(told["simulated"]),
        told["from"],
        told["to"],
        told["method"],
        told["kind"],
        bytes.fromhex(told.get("bytes", "")),
        told.get("text"),
        told.get("address"),
    )
