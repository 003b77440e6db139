"""What an audit finds: one line per promise, with the evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Verdict(StrEnum):
    """How a promise fared."""

    PASS = "PASS"  # noqa: S105 (a verdict)
    FAIL = "FAIL"
    NOT_SHOWN = "NOT SHOWN"
    """It could not be shown here, which is not a pass."""
    MEASURED = "MEASURED"
    """Nothing is promised; this is what was found."""


@dataclass(frozen=True)
class Finding:
    """One promise."""

    promise: str
    verdict: Verdict
    evidence: str
    """One sentence with the numbers."""
    details: tuple[str, ...] = field(default=())
    """What failed, line by line; or more of the evidence."""


def judge(
    promise: str,
    evidence: str,
    faults: list[str],
    examined: int,
    nothing: str = "there was nothing to examine",
    details: tuple[str, ...] = (),
) -> Finding:
    """Pass a promise without faults; fail it with them.

    `examined` is how many things were looked at. Where there were none, no fault could have been
    found, so the promise is not shown; `nothing` says why.
    """
    if faults:
        shown = f"{len(faults)} found, such as: {faults[0]}"
        return Finding(promise, Verdict.FAIL, shown, tuple(faults))
    if not examined:
        return Finding(promise, Verdict.NOT_SHOWN, nothing, details)
    return Finding(promise, Verdict.PASS, evidence, details)
