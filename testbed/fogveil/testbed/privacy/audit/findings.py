"""Findings of an audit: one verdict per promise, with the evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from fogveil.core.safe_text import safe_lines


class Verdict(StrEnum):
    """What a check showed of a promise."""

    PASS = "PASS"  # noqa: S105 (a verdict)
    FAIL = "FAIL"
    NOT_SHOWN = "NOT SHOWN"
    """It could not be shown here, which is not a pass."""
    MEASURED = "MEASURED"
    """A measurement of something that is not promised."""


@dataclass(frozen=True)
class Finding:
    """The verdict on one promise."""

    promise: str
    verdict: Verdict
    evidence: str
    """One sentence with the numbers."""
    details: tuple[str, ...] = field(default=())
    """Every fault, or more of the evidence."""

    def __post_init__(self) -> None:
        """Make the evidence safe to show: it quotes what participants sent and wrote."""
        object.__setattr__(self, "evidence", safe_lines(self.evidence))
        object.__setattr__(self, "details", tuple(map(safe_lines, self.details)))


def judge(
    promise: str,
    evidence: str,
    faults: list[str],
    examined: int,
    nothing: str = "there was nothing to examine",
    details: tuple[str, ...] = (),
) -> Finding:
    """Return PASS without faults, FAIL with them, NOT SHOWN if nothing was examined.

    `examined` is the number of things examined: without any, no fault could have been found.
    `nothing` is the evidence then.
    """
    if faults:
        shown = f"{len(faults)} found, such as: {faults[0]}"
        return Finding(promise, Verdict.FAIL, shown, tuple(faults))
    if not examined:
        return Finding(promise, Verdict.NOT_SHOWN, nothing, details)
    return Finding(promise, Verdict.PASS, evidence, details)
