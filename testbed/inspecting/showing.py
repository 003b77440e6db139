"""Crossings as people read them, one a line, and as programs do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any

from google.protobuf.message import DecodeError
from rich.console import Console
from rich.text import Text

from fogveil.errors import InputError
from fogveil.identity import AGENT, AUDITOR, BROKER, CLOCK, SOURCES
from fogveil.recording import DELIVERY, INITIAL, METADATA, REQUEST, RESPONSE, STATUS, TRAILING
from testbed.inspecting.learned import compact, say, text_of
from testbed.inspecting.merging import Crossed, Verdict
from testbed.traffic import Crossing

KINDS = (REQUEST, RESPONSE, METADATA, INITIAL, TRAILING, STATUS, DELIVERY)
COLOURS = {REQUEST: "cyan", RESPONSE: "green", DELIVERY: "blue"}
LONGEST = 240
"""Characters of fields on a line; --json has them all."""
SOME = 5
"""Faults that are spelled out."""


@dataclass(frozen=True)
class Filter:
    """Which crossings are wanted."""

    sender: str | None = None
    receiver: str | None = None
    between: frozenset[str] = frozenset()
    """Two names: from the one to the other, or back."""
    method: str | None = None
    kinds: frozenset[str] = frozenset()

    @classmethod
    def read(
        cls,
        sender: str | None,
        receiver: str | None,
        between: str | None,
        method: str | None,
        kind: str | None,
    ) -> Filter:
        """Read the options of the command line."""
        pair = frozenset(name.strip() for name in between.split(",")) if between else frozenset()
        if between and len(pair) != 2:  # noqa: PLR2004 (a pair)
            raise InputError(f"--between {between}: expected two names, as in agent,fog-3")
        words = [word.strip().replace("-", " ") for word in kind.split(",")] if kind else []
        for word in words:
            if word not in KINDS:
                known = ", ".join(each.replace(" ", "-") for each in KINDS)
                raise InputError(f"--kind {word}: expected some of {known}")
        return cls(sender, receiver, pair, method, frozenset(words))

    def wants(self, crossing: Crossing) -> bool:
        """Tell whether a crossing is wanted."""
        senders = {crossing.sender, crossing.origin}
        return (
            (self.sender is None or self.sender in senders)
            and (self.receiver is None or self.receiver == crossing.receiver)
            and (not self.between or self._is_between(crossing))
            and (self.method is None or self.method in methods_of(crossing))
            and (not self.kinds or crossing.kind in self.kinds)
        )

    def _is_between(self, crossing: Crossing) -> bool:
        return self.between == {crossing.origin, crossing.receiver}

    @property
    def names(self) -> Iterator[tuple[str, str]]:
        """Yield the names that were given, with their options."""
        if self.sender:
            yield "--from", self.sender
        if self.receiver:
            yield "--to", self.receiver
        for name in sorted(self.between):
            yield "--between", name


def methods_of(crossing: Crossing) -> tuple[str, ...]:
    """Return the ways to name a method, as Watch or QueueService.Watch."""
    spelled = crossing.spelled
    separator = "/" if crossing.kind == DELIVERY else "."
    head, _, tail = spelled.partition(separator)
    return spelled, head, tail, crossing.method, crossing.method.strip("/")


class Seen:
    """Who and what was seen at all, to tell a wrong name from one that says nothing."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.methods: set[str] = set()
        self.spelled: set[str] = set()
        """The methods of gRPC, as people write them."""
        self.first: float | None = None
        """When the first crossing was."""

    def take(self, crossing: Crossing) -> None:
        """Note who it was."""
        if self.first is None:
            self.first = crossing.at
        self.names.update((crossing.sender, crossing.receiver, crossing.origin))
        if crossing.kind != DELIVERY:
            self.spelled.add(crossing.spelled)
        self.methods.update(methods_of(crossing))

    def check(self, wanted: Filter) -> None:
        """Refuse names that nobody has."""
        for option, name in wanted.names:
            self.check_name(option, name)
        if wanted.method is not None and wanted.method not in self.methods:
            known = ", ".join(sorted(self.spelled))
            raise InputError(f"--method {wanted.method}: not in this recording, which has {known}")

    @property
    def providers(self) -> list[str]:
        """Those whom the agent may learn from by their disclosing it, the Cloud included."""
        return sorted(name for name in self.names if _may_be_provider(name))

    def check_about(self, name: str, *, learned: bool) -> None:
        """Refuse to sum up what the agent learned from somebody who tells nobody anything.

        What others than providers told it, as the clock did, may be asked for as well.
        """
        if name in self.providers or learned:
            return
        who = "not a provider" if name in self.names else "not in this recording"
        known = ", ".join(self.providers) or "none"
        raise InputError(f"--about {name}: {who}; the providers to ask about are {known}")

    def check_name(self, option: str, name: str) -> None:
        """Refuse a name that nobody has."""
        if name not in self.names:
            known = ", ".join(sorted(self.names)) or "nobody"
            raise InputError(f"{option} {name}: not in this recording, which has {known}")


def _may_be_provider(name: str) -> bool:
    """Tell whether a name is neither another role's nor a stranger's, who has but an address."""
    others = AGENT, CLOCK, BROKER, AUDITOR, SOURCES
    return name not in others and not name.startswith(f"{SOURCES}-") and ":" not in name


class Lines:
    """Prints a crossing a line; columns grow as they must."""

    def __init__(self, console: Console, seen: Seen) -> None:
        self._console, self._seen = console, seen
        self._widths = [8, 10, 15, 18, 16, 5]
        self.shown = 0

    def print(self, crossed: Crossed) -> None:
        """Print one."""
        one = crossed.one
        if not self.shown:
            self._print(
                ("seconds", "simulated", "from → to", "method", "kind", "bytes"), "fields", "bold"
            )
        cells = (
            f"{one.at - (self._seen.first or 0.0):.4f}",
            f"{one.simulated:,.3f}",
            f"{one.sender} → {one.receiver}",
            one.spelled,
            one.kind,
            f"{len(one.payload):,}" if one.is_message else "",
        )
        words = words_of(one)
        if len(words) > LONGEST:
            words = f"{words[:LONGEST]}… ({len(words):,} characters)"
        self._print(cells, words, COLOURS.get(one.kind, "dim"))
        for fault in faults_of(crossed):
            say(self._console, f"    {fault}", "bold red")
        self.shown += 1

    def _print(self, cells: tuple[str, ...], words: str, style: str) -> None:
        self._widths = [max(w, len(c)) for w, c in zip(self._widths, cells, strict=True)]
        wall, simulated, way, method, kind, size = self._widths
        line = Text(
            f"{cells[0]:>{wall}} {cells[1]:>{simulated}}  ", "bold" if style == "bold" else ""
        )
        line.append(f"{cells[2]:<{way}}  {cells[3]:<{method}}  {cells[4]:<{kind}} ", style)
        line.append(f"{cells[5]:>{size}}  {words}", "bold" if style == "bold" else "")
        self._console.print(line, soft_wrap=True, highlight=False)


class JsonLines:
    """Prints a crossing a line, as JSON."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self.shown = 0

    def print(self, crossed: Crossed) -> None:
        """Print one."""
        line = plain(crossed, self._seen.first or 0.0)
        print(json.dumps(line), flush=True)  # noqa: T201 (what is asked for)
        self.shown += 1


def plain(crossed: Crossed, first: float) -> dict[str, Any]:
    """Return a crossing as JSON has it."""
    one = crossed.one
    found: dict[str, Any] = {
        "at": one.at,
        "since": one.at - first,
        "simulated": one.simulated if isfinite(one.simulated) else None,
        "from": one.sender,
        "to": one.receiver,
        "method": one.spelled,
        "path": one.method,
        "kind": one.kind,
        "noted_by": [
            name
            for name, end in ((one.sender, crossed.sent), (one.receiver, crossed.received))
            if end
        ],
    }
    if one.is_message:
        found |= {"size": len(one.payload), "bytes": one.payload.hex(), "fields": fields_of(one)}
    else:
        found["text"] = one.text
    if faults := list(faults_of(crossed)):
        found["faults"] = faults
    return found


def fields_of(crossing: Crossing) -> dict[str, Any] | None:
    """Return the fields of a message, or None where it is none of the protocol."""
    try:
        return crossing.fields
    except DecodeError:
        return None


def words_of(crossing: Crossing) -> str:
    """Spell what a crossing says."""
    if not crossing.is_message:
        return text_of(crossing)
    fields = fields_of(crossing)
    return crossing.payload.hex(" ") if fields is None else compact(fields)


def faults_of(crossed: Crossed) -> Iterator[str]:
    """Spell what is wrong with a crossing."""
    if crossed.differs:
        yield f"RECORDED DIFFERENTLY AT BOTH ENDS: {crossed.differs}"
    if unexplained := crossed.one.unexplained:
        yield f"NOT EXPLAINED BY THE PROTOCOL: {unexplained}"


def conclude(verdict: Verdict, console: Console) -> None:
    """Say what the recordings add up to, and loudly what is wrong."""
    say(
        console,
        f"{verdict.crossings:,} crossings, of which {verdict.messages:,} messages of "
        f"{verdict.size:,} bytes",
    )
    if verdict.both and not verdict.differing and not verdict.lonely:
        say(
            console,
            f"recorded at both ends, the same bytes in the same order: {verdict.both:,} messages",
        )
    if verdict.silent:
        say(console, f"NO RECORDING OF {', '.join(verdict.silent)}", "bold red")
    if verdict.unfinished:
        say(console, f"messages that the end of the testbed cut off: {verdict.unfinished:,}")
    for faults, title in (
        (verdict.differing, "RECORDED DIFFERENTLY AT BOTH ENDS"),
        (verdict.lonely, "RECORDED AT ONE END ONLY"),
        (verdict.unexplained, "NOT EXPLAINED BY THE PROTOCOL"),
    ):
        if faults:
            many = "messages" if len(faults) > 1 else "message"
            say(console, f"{title}: {len(faults):,} {many}", "bold red")
        for crossed in faults[:SOME]:
            reason = crossed.differs or crossed.one.unexplained
            say(console, f"  {crossed}{': ' if reason else ''}{reason}", "red")
        if len(faults) > SOME:
            say(console, f"  and {len(faults) - SOME:,} more", "red")
