"""Reading what was recorded of gRPC: messages decoded field by field, and what they add up to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass

from fogveil.errors import InputError
from fogveil.recording import MESSAGES
from fogveil.v1 import boundary_pb2, clock_pb2, full_pb2

SERVICES = (boundary_pb2, clock_pb2, full_pb2)
"""Whose methods can be decoded: importing them puts them into the pool."""


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

    @property
    def message(self) -> Any:
        """The message, decoded by the protocol's own description."""
        return GetMessageClass(_described(self.method, self.kind)).FromString(self.payload)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that are set, by their names."""
        found: dict[str, Any] = MessageToDict(self.message, preserving_proto_field_name=True)
        return found


def _described(method: str, kind: str) -> Descriptor:
    service, _, name = method.strip("/").rpartition("/")
    found = descriptor_pool.Default().FindServiceByName(service).methods_by_name[name]
    described: Descriptor = found.input_type if kind == "request" else found.output_type
    return described


def read_traffic(path: Path) -> Iterator[Crossing]:
    """Read a participant's recording."""
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                told = json.loads(line)
                yield Crossing(
                    told["at"],
                    told["simulated"],
                    told["from"],
                    told["to"],
                    told["method"],
                    told["kind"],
                    bytes.fromhex(told.get("bytes", "")),
                    told.get("text"),
                )
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError) as error:
        raise InputError(f"{path}: is not a recording of messages") from error


class Kind(NamedTuple):
    """All messages of one kind."""

    message: str
    fields: tuple[str, ...]
    """Every field that was ever set."""
    number: int
    size: int
    """Bytes of all of them."""


def kinds(crossings: Iterable[Crossing]) -> list[Kind]:
    """Count messages and bytes by kind, and collect the fields."""
    number: Counter[str] = Counter()
    size: Counter[str] = Counter()
    fields: dict[str, set[str]] = {}
    for crossing in crossings:
        if crossing.kind not in MESSAGES:
            continue
        name = _described(crossing.method, crossing.kind).name
        number[name] += 1
        size[name] += len(crossing.payload)
        fields.setdefault(name, set()).update(crossing.fields)
    return [Kind(name, tuple(sorted(fields[name])), number[name], size[name]) for name in number]
