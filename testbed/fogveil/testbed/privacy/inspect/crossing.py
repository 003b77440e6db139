"""A crossing: one message, or one piece of metadata, that went from a participant to another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from grpc_reflection.v1alpha import reflection_pb2

from fogveil.broker.topics import PREFIX, Topics
from fogveil.protocol.recording import DELIVERY, MESSAGES, REQUEST
from fogveil.v1 import boundary_pb2, clock_pb2, full_pb2, total_pb2, workload_pb2

SERVICES = (boundary_pb2, clock_pb2, full_pb2, total_pb2, reflection_pb2)
"""Services that can be decoded: importing them registers their descriptors."""
TOPIC_MESSAGES = {
    "workload": workload_pb2.Workloads.DESCRIPTOR,
    "placement": workload_pb2.Placements.DESCRIPTOR,
    "aggregate": workload_pb2.Aggregates.DESCRIPTOR,
    "feedback": workload_pb2.Feedback.DESCRIPTOR,
    "keys": total_pb2.KeyAnnouncement.DESCRIPTOR,
}
"""The message type on each MQTT topic, by the topic's first level."""
PADDING = "padding"
"""The field of zeros that brings a provider's messages to a public size."""
REFLECTION_ALIAS = "/grpc.reflection.v1.", "/grpc.reflection.v1alpha."
"""Two names of one service; only the second has a registered descriptor."""


class Crossing(NamedTuple):
    """One message, metadata, trailers or status, as one end of a channel recorded it."""

    at: float
    """Wall-clock time (Unix)."""
    simulated: float
    """Simulated time."""
    sender: str
    receiver: str
    method: str
    """The gRPC method's path, or the MQTT topic."""
    kind: str
    """One of the kinds in `fogveil.protocol.recording`: request, response, metadata, status, …"""
    payload: bytes
    """The bytes of a message; empty for other kinds."""
    text: Any = None
    """The content of metadata, trailers or a status."""
    address: str | None = None
    """The caller's network address, which the server records with the call's metadata."""

    @classmethod
    def parse(cls, line: bytes) -> Crossing:
        """Parse one line of a recording."""
        entry = json.loads(line)
        return cls(
            float(entry["at"]),
            float(entry["simulated"]),
            entry["from"],
            entry["to"],
            entry["method"],
            entry["kind"],
            bytes.fromhex(entry.get("bytes", "")),
            entry.get("text"),
            entry.get("address"),
        )

    @property
    def is_message(self) -> bool:
        """Whether it is a protobuf message, over gRPC or MQTT."""
        return self.kind in MESSAGES or self.kind == DELIVERY

    @property
    def message(self) -> Any:
        """The message, parsed by its descriptor."""
        descriptor = descriptor_for(self.method, self.kind)
        if descriptor is None:
            raise DecodeError(f"the protocol has no message type for {self.method}")
        return GetMessageClass(descriptor).FromString(self.payload)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that are set, by name."""
        message = self.message
        fields: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
        if PADDING in fields:  # zeros, as `unexplained` checks
            fields[PADDING] = f"{sum(map(len, message.padding)):,} bytes"
        return fields

    @property
    def method_name(self) -> str:
        """The method as Service.Method, or the topic without its run prefix."""
        if self.kind == DELIVERY:
            return _split_topic(self.method)[1]
        return short_method_name(self.method)

    @property
    def origin(self) -> str:
        """The sender; of an MQTT delivery, the publisher that the topic implies."""
        if self.kind != DELIVERY:
            return self.sender
        run, _ = _split_topic(self.method)
        return Topics(run).sender(self.method) or self.sender

    @property
    def unexplained(self) -> str:
        """Describe what no field of the protocol explains in a message; "" if there is nothing.

        The parsed fields, serialized again, must give the same bytes, and padding must be zero.
        Otherwise something may be hidden in unknown fields, in the encoding of known ones, or in
        what receivers ignore.
        """
        if not self.is_message:
            return ""
        descriptor = descriptor_for(self.method, self.kind)
        if descriptor is None:
            return f"{len(self.payload)} bytes of a method that the protocol does not have"
        try:
            message = self.message
        except DecodeError:
            return f"{len(self.payload)} bytes that do not parse as {descriptor.name}"
        message.DiscardUnknownFields()
        if message.SerializeToString(deterministic=True) == self.payload:
            padding = getattr(message, PADDING, ())
            return "padding that is not zero" if any(map(any, padding)) else ""
        unknown = list(_unknown_fields(self.message))
        return ", ".join(unknown) or f"{descriptor.name} in a non-canonical encoding"


def _unknown_fields(message: Message, path: str = "") -> Iterator[str]:
    """Describe the unknown fields of a message and of all messages inside it."""
    unknown = UnknownFieldSet(message)
    for field in (unknown[index] for index in range(len(unknown))):
        yield f"{path}field {field.field_number}: {field.data!r}"
    for descriptor, value in message.ListFields():
        if descriptor.message_type:
            for inner in value if descriptor.is_repeated else (value,):
                yield from _unknown_fields(inner, f"{path}{descriptor.name}.")


def short_method_name(method: str) -> str:
    """Return a method's path as Service.Method, without the package.

    >>> short_method_name("/fogveil.v1.QueueService/Watch")
    'QueueService.Watch'
    """
    service, _, name = method.strip("/").rpartition("/")
    return f"{service.rpartition('.')[2]}.{name}"


def _split_topic(topic: str) -> tuple[str, str]:
    """Split a topic into the run and the rest."""
    run, _, rest = topic.removeprefix(f"{PREFIX}/").partition("/")
    return run, rest or topic


@cache
def descriptor_for(method: str, kind: str) -> Descriptor | None:
    """Return the message type of a method's requests or responses, or of a topic."""
    if kind == DELIVERY:
        return TOPIC_MESSAGES.get(_split_topic(method)[1].partition("/")[0])
    service, _, name = method.replace(*REFLECTION_ALIAS).strip("/").rpartition("/")
    try:
        rpc = descriptor_pool.Default().FindServiceByName(service).methods_by_name[name]
    except KeyError:
        return None
    descriptor: Descriptor = rpc.input_type if kind == REQUEST else rpc.output_type
    return descriptor
