"""Crossings as lines for people or as JSON, and the report on the recordings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import isfinite
from typing import Any

from google.protobuf.message import DecodeError
from rich.console import Console
from rich.text import Text

from fogveil.core.safe_text import safe_text
from fogveil.protocol.recording import DELIVERY, REQUEST, RESPONSE
from fogveil.testbed.privacy.inspect.console import compact_json, print_line
from fogveil.testbed.privacy.inspect.crossing import Crossing
from fogveil.testbed.privacy.inspect.disclosure_summary import metadata_text
from fogveil.testbed.privacy.inspect.filter import SeenNames
from fogveil.testbed.privacy.inspect.merge import MergedCrossing, MergeReport

COLOURS = {REQUEST: "cyan", RESPONSE: "green", DELIVERY: "blue"}
LONGEST = 240
"""Characters of fields on a line; --json has them all."""
FAULTS_SHOWN = 5


class Lines:
    """Prints a crossing per line; columns widen as needed."""

    def __init__(self, console: Console, seen: SeenNames) -> None:
        self._console, self._seen = console, seen
        self._widths = [8, 10, 15, 18, 16, 5]
        self.shown = 0

    def print(self, merged: MergedCrossing) -> None:
        """Print a crossing, and what is wrong with it."""
        crossing = merged.crossing
        if not self.shown:
            self._print(
                ("seconds", "simulated", "from → to", "method", "kind", "bytes"), "fields", "bold"
            )
        cells = (
            f"{crossing.at - (self._seen.first_at or 0.0):.4f}",
            f"{crossing.simulated:,.3f}",
            f"{crossing.sender} → {crossing.receiver}",
            crossing.method_name,
            crossing.kind,
            f"{len(crossing.payload):,}" if crossing.is_message else "",
        )
        content = content_text(crossing)
        if len(content) > LONGEST:
            content = f"{content[:LONGEST]}… ({len(content):,} characters)"
        self._print(cells, content, COLOURS.get(crossing.kind, "dim"))
        for fault in faults_of(merged):
            print_line(self._console, f"    {fault}", "bold red")
        self.shown += 1

    def _print(self, cells: tuple[str, ...], content: str, style: str) -> None:
        cells = tuple(safe_text(cell, LONGEST) for cell in cells)
        self._widths = [max(w, len(c)) for w, c in zip(self._widths, cells, strict=True)]
        wall, simulated, ends, method, kind, size = self._widths
        plain_style = "bold" if style == "bold" else ""
        line = Text(f"{cells[0]:>{wall}} {cells[1]:>{simulated}}  ", plain_style)
        line.append(f"{cells[2]:<{ends}}  {cells[3]:<{method}}  {cells[4]:<{kind}} ", style)
        line.append(f"{cells[5]:>{size}}  {safe_text(content, None)}", plain_style)
        self._console.print(line, soft_wrap=True, highlight=False)


class JsonLines:
    """Prints a crossing per line, as a JSON object."""

    def __init__(self, seen: SeenNames) -> None:
        self._seen = seen
        self.shown = 0

    def print(self, merged: MergedCrossing) -> None:
        """Print a crossing."""
        line = to_json(merged, self._seen.first_at or 0.0)
        print(json.dumps(line), flush=True)  # noqa: T201 (the promised output)
        self.shown += 1


def to_json(merged: MergedCrossing, first_at: float) -> dict[str, Any]:
    """Return a crossing as a JSON object."""
    crossing = merged.crossing
    line: dict[str, Any] = {
        "at": crossing.at,
        "since": crossing.at - first_at,
        "simulated": crossing.simulated if isfinite(crossing.simulated) else None,
        "from": crossing.sender,
        "to": crossing.receiver,
        "method": crossing.method_name,
        "path": crossing.method,
        "kind": crossing.kind,
        "noted_by": [
            name
            for name, end in ((crossing.sender, merged.sent), (crossing.receiver, merged.received))
            if end
        ],
    }
    if crossing.is_message:
        line |= {
            "size": len(crossing.payload),
            "bytes": crossing.payload.hex(),
            "fields": fields_of(crossing),
        }
    else:
        line["text"] = crossing.text
    if faults := list(faults_of(merged)):
        line["faults"] = faults
    return line


def fields_of(crossing: Crossing) -> dict[str, Any] | None:
    """Return the fields of a message, or None if it cannot be parsed."""
    try:
        return crossing.fields
    except DecodeError:
        return None


def content_text(crossing: Crossing) -> str:
    """Return the fields of a message, or its bytes; or the text of metadata or a status."""
    if not crossing.is_message:
        return metadata_text(crossing)
    fields = fields_of(crossing)
    return crossing.payload.hex(" ") if fields is None else compact_json(fields)


DIFFERENT = "THE TWO ENDS RECORDED DIFFERENT BYTES"
ONE_SIDED = "RECORDED AT ONE END ONLY"
UNEXPLAINED = "NOT EXPLAINED BY THE PROTOCOL"


def faults_of(merged: MergedCrossing) -> Iterator[str]:
    """Describe what is wrong with a crossing."""
    if merged.difference:
        yield f"{DIFFERENT}: {merged.difference}"
    if unexplained := merged.crossing.unexplained:
        yield f"{UNEXPLAINED}: {unexplained}"


def print_report(report: MergeReport, console: Console) -> None:
    """Print the totals of the recordings, and what is wrong with them."""
    print_line(
        console,
        f"{report.crossings:,} crossings: {report.messages:,} messages ({report.size:,} bytes), "
        f"{report.crossings - report.messages:,} metadata and status",
    )
    if report.two_sided and not report.differing and not report.one_sided:
        print_line(
            console,
            f"{report.two_sided:,} messages recorded at both ends: same bytes, same order",
        )
    if report.missing:
        print_line(console, f"MISSING RECORDING: {', '.join(report.missing)}", "bold red")
    if report.cut_off:
        print_line(console, f"{report.cut_off:,} messages cut off by the end of the testbed")
    for faults, title in (
        (report.differing, DIFFERENT),
        (report.one_sided, ONE_SIDED),
        (report.unexplained, UNEXPLAINED),
    ):
        if faults:
            plural = "messages" if len(faults) > 1 else "message"
            print_line(console, f"{title}: {len(faults):,} {plural}", "bold red")
        for merged in faults[:FAULTS_SHOWN]:
            reason = merged.difference or merged.crossing.unexplained
            print_line(console, f"  {merged}{': ' if reason else ''}{reason}", "red")
        if len(faults) > FAULTS_SHOWN:
            print_line(console, f"  and {len(faults) - FAULTS_SHOWN:,} more", "red")
