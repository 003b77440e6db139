"""What the agent ever learned from one participant, or from each provider, summed up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError
from rich.console import Console

from fogveil.protocol.identity import AGENT, CLOCK
from fogveil.protocol.recording import DELIVERY, MESSAGES, RESPONSE, STATUS
from fogveil.testbed.privacy.inspect.console import compact_json, print_line, print_table
from fogveil.testbed.privacy.inspect.crossing import Crossing, descriptor_for

NOTHING = "none"


@dataclass
class MessageStats:
    """All messages of one type in one direction."""

    message: str
    sender: str
    receiver: str
    fields: set[str] = field(default_factory=set)
    """The path of every field that was ever set, nested ones included."""
    number: int = 0
    size: int = 0
    """Bytes of all of them."""

    @property
    def field_list(self) -> str:
        """The fields, for people."""
        return ", ".join(sorted(self.fields)) or NOTHING


@dataclass
class ValueRange:
    """All values that a numeric field ever had."""

    number: int = 0
    least: float = float("inf")
    most: float = float("-inf")

    def add(self, value: float) -> None:
        """Add one value."""
        self.number += 1
        self.least = min(self.least, value)
        self.most = max(self.most, value)

    def __str__(self) -> str:
        least, most = (
            f"{value:,.0f}" if value.is_integer() else f"{value:,.6g}"
            for value in (self.least, self.most)
        )
        return f"{self.number:,} values from {least} to {most}"


@dataclass
class DisclosureSummary:
    """Everything that crossed between one participant and the agent, which learns from it."""

    about: str
    by: str = AGENT
    keep_sequence: bool = False
    """Whether to keep every message, in order."""
    messages: dict[tuple[str, str], MessageStats] = field(default_factory=dict)
    """By message type and sender."""
    values: dict[str, ValueRange] = field(default_factory=dict)
    """By numeric field, as in WatchResponse.counts."""
    metadata: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Metadata, trailers and statuses: kind and text."""
    unexplained: int = 0
    """Messages with bytes that no field of the protocol explains."""
    sequence: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    """Simulated time and fields of every message, in order, where they are kept."""
    example: tuple[tuple[bool, float], Crossing] | None = None
    """The message to show, with its rank: the largest value, preferring those with one value."""

    def add(self, crossing: Crossing) -> None:
        """Add a crossing, if it is one between the two."""
        if {crossing.origin, crossing.receiver} != {self.about, self.by}:
            return
        if crossing.kind == DELIVERY and crossing.receiver != self.by:
            return  # placements, from which the agent learns nothing
        if not crossing.is_message:
            if crossing.receiver == self.by:
                self.metadata[crossing.kind, metadata_text(crossing)] += 1
            return
        descriptor = descriptor_for(crossing.method, crossing.kind)
        name = descriptor.name if descriptor else crossing.method_name
        stats = self.messages.setdefault(
            (name, crossing.origin), MessageStats(name, crossing.origin, crossing.receiver)
        )
        stats.number += 1
        stats.size += len(crossing.payload)
        self.unexplained += bool(crossing.unexplained)
        try:
            leaves = list(_leaf_fields(crossing.message))
        except DecodeError:
            return
        stats.fields.update(path for path, _ in leaves)
        if crossing.receiver == self.by:
            if self.keep_sequence:
                self.sequence.append((crossing.simulated, crossing.fields))
            self._add_values(crossing, name, leaves)

    def _add_values(self, crossing: Crossing, name: str, leaves: list[tuple[str, Any]]) -> None:
        numbers = [
            (path, float(value))
            for path, value in leaves
            if isinstance(value, int | float) and not isinstance(value, bool)
        ]
        for path, value in numbers:
            self.values.setdefault(f"{name}.{path}", ValueRange()).add(value)
        if crossing.kind == RESPONSE and numbers:
            rank = len(numbers) == 1, max(value for _, value in numbers)
            if self.example is None or rank > self.example[0]:
                self.example = rank, crossing

    @property
    def received(self) -> list[MessageStats]:
        """The message types that the agent received."""
        return [stats for stats in self.messages.values() if stats.receiver == self.by]

    def to_json(self) -> dict[str, Any]:
        """Return the summary as a JSON object."""
        summary: dict[str, Any] = {
            "learned_by": self.by,
            "about": self.about,
            "messages": [
                {
                    "message": stats.message,
                    "from": stats.sender,
                    "to": stats.receiver,
                    "fields": sorted(stats.fields),
                    "number": stats.number,
                    "bytes": stats.size,
                }
                for stats in self.messages.values()
            ],
            "numbers": {
                path: {"number": values.number, "least": values.least, "most": values.most}
                for path, values in self.values.items()
            },
            "beside": [
                {"kind": kind, "text": text, "number": number}
                for (kind, text), number in self.metadata.items()
            ],
            "unexplained": self.unexplained,
        }
        if self.example:
            crossing = self.example[1]
            summary["one"] = {"bytes": crossing.payload.hex(), "fields": crossing.fields}
        if self.keep_sequence:
            summary["sequence"] = [
                {"simulated": simulated, **fields} for simulated, fields in self.sequence
            ]
        return summary

    def print(self, console: Console) -> None:
        """Print everything that was learned."""
        rows = [
            (
                stats.message,
                f"{stats.sender} → {stats.receiver}",
                stats.field_list,
                f"{stats.number:,}",
                f"{stats.size:,}",
            )
            for stats in self.messages.values()
        ]
        columns = "message", "from → to", "fields", "messages", "bytes"
        print_table(console, columns, rows, numeric=("messages", "bytes"))
        for path, values in self.values.items():
            print_line(console, f"{path}: {values}")
        for (kind, text), number in sorted(self.metadata.items()):
            times = f" ({number:,} times)" if number > 1 else ""
            print_line(console, f"{kind}: {text}{times}")
        if self.example:
            for line in _example_lines(self.example[1]):
                print_line(console, line)
        if self.keep_sequence:
            print_line(console, "All messages, by simulated time:")
            for simulated, fields in self.sequence:
                print_line(console, f"{simulated:12,.3f}  {compact_json(fields)}")


def _leaf_fields(message: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and value of every field that is set and is no message itself."""
    for descriptor, value in message.ListFields():
        for each in value if descriptor.is_repeated else (value,):
            if descriptor.message_type:
                yield from _leaf_fields(each, f"{path}{descriptor.name}.")
            else:
                yield f"{path}{descriptor.name}", each


def metadata_text(crossing: Crossing) -> str:
    """Return metadata, trailers or a status as one line."""
    content = crossing.text
    if crossing.kind == STATUS and isinstance(content, list):
        code, details, *trailers = content
        text = f"{code} {details!r}" if details else str(code)
        return f"{text} {json.dumps(trailers[0])}" if trailers and trailers[0] else text
    if isinstance(content, list):
        return ", ".join(f"{key}: {value}" for key, value in content) or NOTHING
    return str(content)


def _example_lines(crossing: Crossing) -> tuple[str, ...]:
    route = f"from {crossing.sender} to {crossing.receiver}"
    return (
        f"Example, at simulated time {crossing.simulated:.1f}, {route}:",
        f"  on the wire  {crossing.payload.hex(' ')}",
        f"  decoded      {type(crossing.message).__name__} {crossing.fields}",
    )


class ProviderDisclosures:
    """What the agent learned from every provider, in one table."""

    def __init__(self) -> None:
        self.providers: dict[str, DisclosureSummary] = {}

    def add(self, crossing: Crossing) -> None:
        """Add a crossing; the agent's peers over gRPC are the clock and the providers."""
        if crossing.kind in MESSAGES and AGENT in (crossing.sender, crossing.receiver):
            other = crossing.sender if crossing.receiver == AGENT else crossing.receiver
            if other != CLOCK:
                self.providers.setdefault(other, DisclosureSummary(other))
        for name in (crossing.origin, crossing.receiver):
            if name in self.providers:
                self.providers[name].add(crossing)

    def to_json(self) -> dict[str, Any]:
        """Return the summary of each provider, by its name."""
        return {name: summary.to_json() for name, summary in sorted(self.providers.items())}

    def print(self, console: Console) -> None:
        """Print a row for each provider and message type."""
        rows: list[tuple[str, ...]] = []
        for name, summary in sorted(self.providers.items()):
            texts = [f"{kind}: {text}" for kind, text in summary.metadata if text != NOTHING]
            metadata = "; ".join(sorted(texts)) or NOTHING
            for stats in summary.received:
                prefix = f"{stats.message}."
                values = [
                    f"{path.removeprefix(prefix)}: {range_}"
                    for path, range_ in summary.values.items()
                    if path.startswith(prefix)
                ]
                content = "; ".join(values) or stats.field_list
                row = name, stats.message, f"{stats.number:,}", f"{stats.size:,}", content, metadata
                rows.append(row)
            if not summary.received:
                rows.append((name, NOTHING, "0", "0", "", metadata))
        columns = "provider", "message", "messages", "bytes", "content", "metadata and status"
        print_table(console, columns, rows, numeric=("messages", "bytes"))
