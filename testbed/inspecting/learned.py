"""Everything that one participant ever learned from another over gRPC, summed up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError
from rich.console import Console

from fogveil.identity import AGENT, CLOCK
from fogveil.recording import DELIVERY, MESSAGES, RESPONSE, STATUS
from testbed.traffic import Crossing, described_by

NOTHING = "none"


@dataclass
class Kind:
    """All messages of one kind."""

    message: str
    sender: str
    receiver: str
    fields: set[str] = field(default_factory=set)
    """Every field that was ever set, with those that it holds."""
    number: int = 0
    size: int = 0
    """Bytes of all of them."""


@dataclass
class Numbers:
    """All numbers that a field ever held."""

    number: int = 0
    least: float = float("inf")
    most: float = float("-inf")

    def add(self, value: float) -> None:
        """Take one in."""
        self.number += 1
        self.least = min(self.least, value)
        self.most = max(self.most, value)


@dataclass
class Learned:
    """What crossed between a provider and the agent, who learns from it."""

    about: str
    by: str = AGENT
    whole: bool = False
    """Whether the whole sequence is kept."""
    kinds: dict[tuple[str, str], Kind] = field(default_factory=dict)
    numbers: dict[str, Numbers] = field(default_factory=dict)
    """Of the fields that hold numbers, as in WatchResponse.counts."""
    beside: Counter[tuple[str, str]] = field(default_factory=Counter)
    """What came beside the messages: its kind and its text."""
    unexplained: int = 0
    """Messages with bytes that no field of the protocol explains."""
    sequence: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    """The simulated time and the fields of each message, in their order, where it is kept."""
    largest: tuple[tuple[bool, float], Crossing] | None = None
    """The message to show: of those with one number, the one whose number is largest."""

    def take(self, crossing: Crossing) -> None:
        """Add a crossing, where it is one between the two."""
        if {crossing.origin, crossing.receiver} != {self.about, self.by}:
            return
        if crossing.kind == DELIVERY and crossing.receiver != self.by:
            return  # placements tell the agent nothing
        if not crossing.is_message:
            if crossing.receiver == self.by:
                self.beside[crossing.kind, text_of(crossing)] += 1
            return
        described = described_by(crossing.method, crossing.kind)
        name = described.name if described else crossing.spelled
        kind = self.kinds.setdefault(
            (name, crossing.origin), Kind(name, crossing.origin, crossing.receiver)
        )
        kind.number += 1
        kind.size += len(crossing.payload)
        self.unexplained += bool(crossing.unexplained)
        try:
            leaves = list(_leaves(crossing.message))
        except DecodeError:
            return
        kind.fields.update(path for path, _ in leaves)
        if crossing.receiver == self.by:
            if self.whole:
                self.sequence.append((crossing.simulated, crossing.fields))
            self._learn(crossing, name, leaves)

    def _learn(self, crossing: Crossing, name: str, leaves: list[tuple[str, Any]]) -> None:
        told = [
            (path, float(value))
            for path, value in leaves
            if isinstance(value, int | float) and not isinstance(value, bool)
        ]
        for path, value in told:
            self.numbers.setdefault(f"{name}.{path}", Numbers()).add(value)
        if crossing.kind == RESPONSE and told:
            rank = len(told) == 1, max(value for _, value in told)
            if self.largest is None or rank > self.largest[0]:
                self.largest = rank, crossing

    @property
    def received(self) -> list[Kind]:
        """The kinds of messages that were learned from."""
        return [kind for kind in self.kinds.values() if kind.receiver == self.by]

    def plain(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        found: dict[str, Any] = {
            "learned_by": self.by,
            "about": self.about,
            "messages": [
                {
                    "message": kind.message,
                    "from": kind.sender,
                    "to": kind.receiver,
                    "fields": sorted(kind.fields),
                    "number": kind.number,
                    "bytes": kind.size,
                }
                for kind in self.kinds.values()
            ],
            "numbers": {
                path: {"number": of.number, "least": of.least, "most": of.most}
                for path, of in self.numbers.items()
            },
            "beside": [
                {"kind": kind, "text": text, "number": number}
                for (kind, text), number in self.beside.items()
            ],
            "unexplained": self.unexplained,
        }
        if self.largest:
            crossing = self.largest[1]
            found["one"] = {"bytes": crossing.payload.hex(), "fields": crossing.fields}
        if self.whole:
            found["sequence"] = [
                {"simulated": simulated, **fields} for simulated, fields in self.sequence
            ]
        return found


def _leaves(message: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields that hold values, with what they hold."""
    for described, value in message.ListFields():
        for each in value if described.is_repeated else (value,):
            if described.message_type:
                yield from _leaves(each, f"{path}{described.name}.")
            else:
                yield f"{path}{described.name}", each


def text_of(crossing: Crossing) -> str:
    """Spell what went beside the messages."""
    text = crossing.text
    if crossing.kind == STATUS and isinstance(text, list):
        code, details, *trailers = text
        words = f"{code} {details!r}" if details else str(code)
        return f"{words} {json.dumps(trailers[0])}" if trailers and trailers[0] else words
    if isinstance(text, list):
        return ", ".join(f"{key}: {value}" for key, value in text) or NOTHING
    return str(text)


class Summary:
    """What the agent learned of every provider, in one table."""

    def __init__(self) -> None:
        self.providers: dict[str, Learned] = {}

    def take(self, crossing: Crossing) -> None:
        """Add a crossing; who answers the agent, and is not the clock, is a provider."""
        if crossing.kind in MESSAGES and AGENT in (crossing.sender, crossing.receiver):
            other = crossing.sender if crossing.receiver == AGENT else crossing.receiver
            if other != CLOCK:
                self.providers.setdefault(other, Learned(other))
        for name in (crossing.origin, crossing.receiver):
            if name in self.providers:
                self.providers[name].take(crossing)

    def show(self, console: Console) -> None:
        """Print a line for each provider and kind of message."""
        rows: list[tuple[str, ...]] = []
        for name, learned in sorted(self.providers.items()):
            texts = [f"{kind}: {text}" for kind, text in learned.beside if text != NOTHING]
            beside = "; ".join(sorted(texts)) or NOTHING
            for kind in learned.received:
                numbers = [
                    f"{path.removeprefix(kind.message)[1:]} {_numbers(of)}"
                    for path, of in learned.numbers.items()
                    if path.startswith(f"{kind.message}.")
                ]
                told = "; ".join(numbers) or _fields(kind)
                row = name, kind.message, f"{kind.number:,}", f"{kind.size:,}", told, beside
                rows.append(row)
            if not learned.received:
                rows.append((name, NOTHING, "0", "0", "", beside))
        columns = "provider", "message", "!messages", "!bytes", "numbers in it", "beside messages"
        print_table(console, columns, rows)


def show(learned: Learned, console: Console) -> None:
    """Print everything that was learned."""
    rows = [
        (
            kind.message,
            f"{kind.sender} → {kind.receiver}",
            _fields(kind),
            f"{kind.number:,}",
            f"{kind.size:,}",
        )
        for kind in learned.kinds.values()
    ]
    print_table(console, ("message", "from → to", "fields", "!messages", "!bytes"), rows)
    for path, of in learned.numbers.items():
        say(console, f"{path}: {_numbers(of)}")
    for (what, text), number in sorted(learned.beside.items()):
        say(console, f"{what}: {text} ({number:,} times)" if number > 1 else f"{what}: {text}")
    if learned.largest:
        say(console, spell(learned.largest[1]))
    if learned.whole:
        say(console, "All of it, by simulated time:")
        for simulated, fields in learned.sequence:
            say(console, f"{simulated:12,.3f}  {compact(fields)}")


def spell(crossing: Crossing) -> str:
    """Spell one message out."""
    return (
        f"One of them, at simulated time {crossing.simulated:.1f}, from {crossing.sender} to "
        f"{crossing.receiver}:\n"
        f"  on the wire  {crossing.payload.hex(' ')}\n"
        f"  decoded      {type(crossing.message).__name__} {crossing.fields}"
    )


def compact(fields: Any) -> str:
    """Write fields as JSON without a blank."""
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)


def say(console: Console, line: str, style: str | None = None) -> None:
    """Print a line as it is."""
    console.print(line, markup=False, highlight=False, soft_wrap=True, style=style)


def _numbers(of: Numbers) -> str:
    least, most = (
        f"{value:,.0f}" if value.is_integer() else f"{value:,.6g}" for value in (of.least, of.most)
    )
    return f"{of.number:,} from {least} to {most}"


def _fields(kind: Kind) -> str:
    return ", ".join(sorted(kind.fields)) or NOTHING


def print_table(console: Console, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a table as wide as it is; an exclamation mark begins a column of numbers."""
    table = [[name.strip("!") for name in columns], *([*row] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    right = [name.startswith("!") for name in columns]
    for place, row in enumerate(table):
        cells = [
            cell.rjust(width) if numbers else cell.ljust(width)
            for cell, width, numbers in zip(row, widths, right, strict=True)
        ]
        say(console, "  ".join(cells).rstrip(), None if place else "bold")
