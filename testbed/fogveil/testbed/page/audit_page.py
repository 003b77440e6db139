"""An audit as a page to hand to a provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fogveil.testbed.page.document import (
    Facts,
    Listing,
    Paragraph,
    Part,
    Section,
    VerdictRow,
    Verdicts,
    provenance_facts,
)

AUDIT = "audit.json"
"""The file that `fogveil audit --out` writes."""
LEAKS = {
    "count": (
        "The counts themselves leak speeds. An agent that is told each provider's count ranks the "
        "providers by speed after about a hundred decisions, and knows their service times to "
        "within a percent after some hundred. This audit shows that nothing else crosses; what the "
        "counts reveal is measured by fogveil leakage."
    ),
    "total": (
        "The total itself leaks speeds. An agent that is told the sum of all counts ranks the "
        "providers by speed after about two hundred decisions. This audit shows that nothing else "
        "crosses; what the total reveals is measured by fogveil leakage --level total."
    ),
    "full": "At level full the providers disclose speed, memory and backlog by themselves.",
    "none": "At level none the agent is told nothing about a provider's load.",
}
"""What the permitted numbers give away by themselves, by level."""


def audit_sections(result: Mapping[str, Any]) -> list[Section]:
    """Return the sections of an audit's result, as `fogveil audit` keeps it."""
    rows = [
        VerdictRow(each["verdict"], each["promise"], each["evidence"], each["details"])
        for each in result["findings"]
    ]
    failed = sum(row.verdict == "FAIL" for row in rows)
    unshown = sum(row.verdict == "NOT SHOWN" for row in rows)
    summary = f"{failed} promises are broken." if failed else "No promise is broken."
    summary += f" Not shown: {unshown}, which is not a pass." if unshown else ""
    parts: list[Part] = [
        Facts(result["facts"]),
        Paragraph(summary),
        *(Paragraph(LEAKS[level]) for level in result["levels"]),
        Verdicts(rows),
        Listing("what was not examined", "\n".join(result["not_examined"])),
        provenance_facts(result),
    ]
    return [Section(f"What a provider gives away: audit of {result['scenario']}", parts)]
