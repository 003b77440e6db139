"""Holding the recording to the wire: what was captured must be what was recorded, and no more."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from rich.console import Console

from fogveil.errors import InputError
from fogveil.identity import AGENT
from fogveil.recording import INITIAL, MESSAGES, METADATA, REQUEST, RESPONSE, STATUS, TRAILING
from testbed.inspecting.http2 import Call, Spoken, has_gap, read_connection
from testbed.inspecting.learned import print_table, say
from testbed.inspecting.packets import Address, connections, spell
from testbed.inspecting.recordings import PARTICIPANTS
from testbed.traffic import Crossing, spell_method

ITS_OWN = frozenset(
    (
        *(":method", ":scheme", ":path", ":authority", ":status", "te", "content-type"),
        *("grpc-accept-encoding", "accept-encoding", "grpc-status"),
    )
)
"""Headers that gRPC itself makes, and shows to neither side as metadata."""
SOME = 5
"""Faults that are spelled out."""


class Flow(NamedTuple):
    """Messages of one kind from one participant to another."""

    sender: str
    receiver: str
    method: str
    kind: str

    @property
    def spelled(self) -> str:
        """The method as people write it."""
        return spell_method(self.method)

    def __str__(self) -> str:
        return f"{self.sender} → {self.receiver} {self.spelled} {self.kind}"


class Row(NamedTuple):
    """A flow on the wire and in the recording."""

    flow: Flow
    wire: list[bytes]
    recorded: list[bytes]

    @property
    def fault(self) -> str:
        """How they differ, or ""."""
        for place, (seen, noted) in enumerate(zip(self.wire, self.recorded, strict=False), 1):
            if seen != noted:
                return (
                    f"{self.flow} number {place}: on the wire {seen.hex() or 'nothing'}, "
                    f"recorded {noted.hex() or 'nothing'}"
                )
        if len(self.wire) > len(self.recorded):
            first = self.wire[len(self.recorded)]
            more = len(self.wire) - len(self.recorded)
            return f"{self.flow}: {more:,} on the wire and not recorded, first {first.hex()!r}"
        if len(self.wire) < len(self.recorded):
            more = len(self.recorded) - len(self.wire)
            return f"{self.flow}: {more:,} recorded and not on the wire"
        return ""


@dataclass
class Holding:
    """Collects what was recorded, and compares it with what was captured."""

    flows: dict[Flow, list[bytes]] = field(default_factory=dict)
    callers: dict[Address, tuple[str, str]] = field(default_factory=dict)
    """Who called whom from which address, as the servers noted it."""
    beside: set[tuple[str, str]] = field(default_factory=set)
    """Metadata, and error texts as `grpc-message`, that were recorded."""
    wire: dict[Flow, list[bytes]] = field(default_factory=dict)
    headers: Counter[tuple[str, str]] = field(default_factory=Counter)
    unheard: Counter[tuple[str, str]] = field(default_factory=Counter)
    frames: Counter[str] = field(default_factory=Counter)
    number: int = 0
    """Connections."""
    faults: list[str] = field(default_factory=list)

    def take(self, crossing: Crossing) -> None:
        """Add what was recorded."""
        if crossing.kind in MESSAGES:
            flow = Flow(crossing.sender, crossing.receiver, crossing.method, crossing.kind)
            self.flows.setdefault(flow, []).append(crossing.payload)
        elif crossing.kind in (METADATA, INITIAL, TRAILING):
            self.beside.update((key, value) for key, value in crossing.text)
            if crossing.address:
                self.callers[crossing.address] = crossing.sender, crossing.receiver
        elif crossing.kind == STATUS:
            text = crossing.text if isinstance(crossing.text, str) else crossing.text[1]
            self.beside.add(("grpc-message", text or ""))

    def compare(self, path: Path, servers: set[Address]) -> list[Row]:
        """Read a capture; return what was on the wire beside what was recorded."""
        for connection in connections(path, servers):
            self.number += 1
            way = f"the connection from {connection.client} to {connection.server}"
            if has_gap(connection.up, connection.down):
                self.faults.append(f"{way} is not whole: packets were lost")
            spoken = read_connection(connection)
            names = self.callers.get(connection.client)
            if names is None and spoken.calls:
                self.faults.append(f"{way} is on the wire and nobody recorded it")
            self._spoken(spoken, *(names or (connection.client, connection.server)))
        rows = [
            Row(flow, self.wire.get(flow, []), self.flows.get(flow, []))
            for flow in sorted({*self.wire, *self.flows})
        ]
        self.faults += [row.fault for row in rows if row.fault]
        return rows

    def _spoken(self, spoken: Spoken, client: str, server: str) -> None:
        self.frames += spoken.frames
        self.unheard.update(spoken.unheard)
        for text in filter(None, spoken.farewells):
            self.headers["GOAWAY", text] += 1
        for call in spoken.calls:
            for kind, ends in ((REQUEST, (client, server)), (RESPONSE, (server, client))):
                messages = list(call.messages(kind))
                if messages:
                    self.wire.setdefault(Flow(*ends, call.path, kind), []).extend(messages)
            self._headers(call, client, server)

    def _headers(self, call: Call, client: str, server: str) -> None:
        for kind in MESSAGES:
            for name, value in call.headers[kind]:
                text = unquote(value) if name == "grpc-message" else value
                self.headers[name, text] += 1
                if name not in ITS_OWN and (name, text) not in self.beside:
                    sender = client if kind == REQUEST else server
                    self.faults.append(
                        f"{sender} sent {name}: {text} on the wire, which nobody recorded"
                    )


def servers_of(run: Path) -> set[Address]:
    """Return where the participants of a plaintext run listened."""
    path = run / PARTICIPANTS / AGENT / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if config["secure"]:
            raise InputError(
                f"{run}: its channels were encrypted, so packets tell nothing: --packets is for "
                "testbeds that were brought up with --insecure"
            )
        addresses = [config["clock"], *config["own"]["providers"].values()]
        parts = [address.rpartition(":") for address in addresses]
        return {spell(host, int(port)) for host, _, port in parts if port.isdigit()}
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, AttributeError) as error:
        raise InputError(f"{path}: is not the agent's configuration") from error


def show(holding: Holding, rows: list[Row], console: Console) -> None:
    """Print what was on the wire beside what was recorded."""
    columns = ("from → to", "method", "kind", "!on the wire", "!recorded", "!bytes", "")
    table = [
        (
            f"{row.flow.sender} → {row.flow.receiver}",
            row.flow.spelled,
            row.flow.kind,
            f"{len(row.wire):,}",
            f"{len(row.recorded):,}",
            f"{sum(map(len, row.wire)):,}",
            "DIFFERENT" if row.fault else "same",
        )
        for row in rows
    ]
    print_table(console, columns, table)
    for title, found in (
        ("headers and trailers on the wire:", holding.headers),
        ("trailers to clients that had left, made by gRPC and read by nobody:", holding.unheard),
    ):
        if found:
            say(console, title)
        for (name, value), number in sorted(found.items()):
            say(console, f"  {number:4,} × {name}: {value}")
    frames = ", ".join(f"{number:,} {name}" for name, number in holding.frames.most_common())
    say(console, f"HTTP/2 frames on {holding.number:,} connections: {frames}")


def conclude(holding: Holding, rows: list[Row], console: Console) -> None:
    """Say whether the recording is what was on the wire."""
    if holding.faults:
        say(console, "THE WIRE AND THE RECORDING DIFFER", "bold red")
        for fault in holding.faults[:SOME]:
            say(console, f"  {fault}", "red")
        if len(holding.faults) > SOME:
            say(console, f"  and {len(holding.faults) - SOME:,} more", "red")
        return
    number = sum(len(row.wire) for row in rows)
    size = sum(len(message) for row in rows for message in row.wire)
    say(
        console,
        f"what was recorded is what was on the wire: {number:,} messages of {size:,} bytes, "
        f"in the same order on {holding.number:,} connections",
    )


def plain(holding: Holding, rows: list[Row]) -> dict[str, Any]:
    """Return the comparison as JSON has it."""
    return {
        "same": not holding.faults,
        "connections": holding.number,
        "flows": [
            {
                **row.flow._asdict(),
                "on_the_wire": len(row.wire),
                "recorded": len(row.recorded),
                "bytes": sum(map(len, row.wire)),
                "same": not row.fault,
            }
            for row in rows
        ],
        "headers": [
            {"name": name, "value": value, "number": number}
            for (name, value), number in sorted(holding.headers.items())
        ],
        "unheard": [list(header) for header in sorted(holding.unheard)],
        "frames": dict(holding.frames),
        "faults": holding.faults,
    }
