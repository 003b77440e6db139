"""The wire check: captured packets must contain what was recorded, and nothing else."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from rich.console import Console

from fogveil.core.errors import InputError
from fogveil.core.files import LARGEST_CONFIG, read_untrusted
from fogveil.protocol.identity import AGENT
from fogveil.protocol.recording import (
    INITIAL,
    MESSAGES,
    METADATA,
    REQUEST,
    RESPONSE,
    STATUS,
    TRAILING,
)
from fogveil.testbed.launch.run_folder import PARTICIPANTS
from fogveil.testbed.privacy.inspect.console import print_line, print_table
from fogveil.testbed.privacy.inspect.crossing import Crossing, short_method_name
from fogveil.testbed.privacy.inspect.http2 import Call, GrpcConnection, read_connection
from fogveil.testbed.privacy.inspect.pcap import Address, connections, grpc_address

GRPC_HEADERS = frozenset(
    (
        *(":method", ":scheme", ":path", ":authority", ":status", "te", "content-type"),
        *("grpc-accept-encoding", "accept-encoding", "grpc-status"),
    )
)
"""Headers that gRPC itself generates, and shows to neither side as metadata."""
FAULTS_SHOWN = 5


class Flow(NamedTuple):
    """The messages of one method and kind from one participant to another."""

    sender: str
    receiver: str
    method: str
    kind: str

    @property
    def method_name(self) -> str:
        """The method as Service.Method."""
        return short_method_name(self.method)

    def __str__(self) -> str:
        return f"{self.sender} → {self.receiver} {self.method_name} {self.kind}"


class FlowComparison(NamedTuple):
    """The messages of a flow on the wire and in the recording."""

    flow: Flow
    wire: list[bytes]
    recorded: list[bytes]

    @property
    def fault(self) -> str:
        """How they differ, or ""."""
        for number, (sent, recorded) in enumerate(zip(self.wire, self.recorded, strict=False), 1):
            if sent != recorded:
                return (
                    f"{self.flow} #{number}: on the wire {sent.hex() or 'nothing'}, "
                    f"recorded {recorded.hex() or 'nothing'}"
                )
        if len(self.wire) > len(self.recorded):
            first = self.wire[len(self.recorded)]
            more = len(self.wire) - len(self.recorded)
            return f"{self.flow}: {more:,} on the wire but not recorded, first {first.hex()!r}"
        if len(self.wire) < len(self.recorded):
            more = len(self.recorded) - len(self.wire)
            return f"{self.flow}: {more:,} recorded but not on the wire"
        return ""


@dataclass
class WireCheck:
    """Collects what was recorded, and compares it with a packet capture."""

    recorded: dict[Flow, list[bytes]] = field(default_factory=dict)
    callers: dict[Address, tuple[str, str]] = field(default_factory=dict)
    """Caller and server by the caller's address, as the servers recorded it."""
    recorded_headers: set[tuple[str, str]] = field(default_factory=set)
    """Recorded metadata, and error texts as `grpc-message`."""
    wire: dict[Flow, list[bytes]] = field(default_factory=dict)
    headers: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Headers and trailers on the wire."""
    unread_trailers: Counter[tuple[str, str]] = field(default_factory=Counter)
    frames: Counter[str] = field(default_factory=Counter)
    connections: int = 0
    comparisons: list[FlowComparison] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def add(self, crossing: Crossing) -> None:
        """Add a recorded crossing."""
        if crossing.kind in MESSAGES:
            flow = Flow(crossing.sender, crossing.receiver, crossing.method, crossing.kind)
            self.recorded.setdefault(flow, []).append(crossing.payload)
        elif crossing.kind in (METADATA, INITIAL, TRAILING):
            self.recorded_headers.update((key, value) for key, value in crossing.text)
            if crossing.address:
                self.callers[crossing.address] = crossing.sender, crossing.receiver
        elif crossing.kind == STATUS:
            text = crossing.text if isinstance(crossing.text, str) else crossing.text[1]
            self.recorded_headers.add(("grpc-message", text or ""))

    def compare(self, path: Path, servers: set[Address]) -> None:
        """Read a capture, and compare it with what was recorded."""
        for connection in connections(path, servers):
            self.connections += 1
            where = f"the connection from {connection.client} to {connection.server}"
            if connection.has_gap:
                self.faults.append(f"{where} is incomplete: packets were lost")
            parsed = read_connection(connection)
            names = self.callers.get(connection.client)
            if names is None and parsed.calls:
                self.faults.append(f"{where} is on the wire but in no recording")
            self._add_connection(parsed, *(names or (connection.client, connection.server)))
        self.comparisons = [
            FlowComparison(flow, self.wire.get(flow, []), self.recorded.get(flow, []))
            for flow in sorted({*self.wire, *self.recorded})
        ]
        self.faults += [each.fault for each in self.comparisons if each.fault]

    def _add_connection(self, parsed: GrpcConnection, client: str, server: str) -> None:
        self.frames += parsed.frames
        self.unread_trailers.update(parsed.unread_trailers)
        for text in filter(None, parsed.goaways):
            self.headers["GOAWAY", text] += 1
        for call in parsed.calls:
            for kind, ends in ((REQUEST, (client, server)), (RESPONSE, (server, client))):
                messages = list(call.messages(kind))
                if messages:
                    self.wire.setdefault(Flow(*ends, call.path, kind), []).extend(messages)
            self._check_headers(call, client, server)

    def _check_headers(self, call: Call, client: str, server: str) -> None:
        for kind in MESSAGES:
            for name, value in call.headers[kind]:
                text = unquote(value) if name == "grpc-message" else value
                self.headers[name, text] += 1
                if name not in GRPC_HEADERS and (name, text) not in self.recorded_headers:
                    sender = client if kind == REQUEST else server
                    self.faults.append(
                        f"{sender} sent the header {name}: {text}, which is in no recording"
                    )

    def print(self, console: Console) -> None:
        """Print what was on the wire beside what was recorded, and whether they agree."""
        columns = "from → to", "method", "kind", "on the wire", "recorded", "bytes", ""
        rows = [
            (
                f"{each.flow.sender} → {each.flow.receiver}",
                each.flow.method_name,
                each.flow.kind,
                f"{len(each.wire):,}",
                f"{len(each.recorded):,}",
                f"{sum(map(len, each.wire)):,}",
                "DIFFERENT" if each.fault else "same",
            )
            for each in self.comparisons
        ]
        print_table(console, columns, rows, numeric=("on the wire", "recorded", "bytes"))
        for title, headers in (
            ("headers and trailers on the wire:", self.headers),
            ("trailers after the client had closed (gRPC's own, not read):", self.unread_trailers),
        ):
            if headers:
                print_line(console, title)
            for (name, value), number in sorted(headers.items()):
                print_line(console, f"  {number:4,} × {name}: {value}")
        frames = ", ".join(f"{number:,} {name}" for name, number in self.frames.most_common())
        print_line(console, f"HTTP/2 frames on {self.connections:,} connections: {frames}")
        self._print_verdict(console)

    def _print_verdict(self, console: Console) -> None:
        if self.faults:
            print_line(console, "THE WIRE AND THE RECORDING DIFFER", "bold red")
            for fault in self.faults[:FAULTS_SHOWN]:
                print_line(console, f"  {fault}", "red")
            if len(self.faults) > FAULTS_SHOWN:
                print_line(console, f"  and {len(self.faults) - FAULTS_SHOWN:,} more", "red")
            return
        number = sum(len(each.wire) for each in self.comparisons)
        size = sum(len(message) for each in self.comparisons for message in each.wire)
        print_line(
            console,
            f"the wire and the recording agree: {number:,} messages ({size:,} bytes) on "
            f"{self.connections:,} connections, same bytes, same order",
        )

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as a JSON object."""
        return {
            "same": not self.faults,
            "connections": self.connections,
            "flows": [
                {
                    **each.flow._asdict(),
                    "on_the_wire": len(each.wire),
                    "recorded": len(each.recorded),
                    "bytes": sum(map(len, each.wire)),
                    "same": not each.fault,
                }
                for each in self.comparisons
            ],
            "headers": [
                {"name": name, "value": value, "number": number}
                for (name, value), number in sorted(self.headers.items())
            ],
            "unheard": [list(header) for header in sorted(self.unread_trailers)],
            "frames": dict(self.frames),
            "faults": self.faults,
        }


def server_addresses(run: Path) -> set[Address]:
    """Return the addresses on which the participants of a plaintext run listened."""
    path = run / PARTICIPANTS / AGENT / "config.json"
    try:
        config: dict[str, Any] = json.loads(read_untrusted(path, LARGEST_CONFIG))
        if config["secure"]:
            raise InputError(
                f"{run}: its channels were encrypted, so packets cannot be read: --packets is for "
                "testbeds that were started with --insecure"
            )
        addresses = [config["clock"], *config["providers"].values()]
        parts = [address.rpartition(":") for address in addresses]
        return {grpc_address(host, int(port)) for host, _, port in parts if port.isdigit()}
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, AttributeError) as error:
        raise InputError(f"{path}: is not the agent's configuration") from error
