"""The methods that results are about: which label is of which, and how each is drawn."""

from __future__ import annotations

from typing import Any

# The Okabe–Ito palette is distinct in every kind of colour vision; markers are distinct in grey.
STYLES = {
    "random": ("#999999", "x"),
    "round-robin": ("#666666", "+"),
    "nearest": ("#E69F00", "v"),
    "fastest": ("#D55E00", "^"),
    "electre": ("#CC79A7", "s"),
    "electre with veto": ("#882255", "s"),
    "electre-queue": ("#8C510A", "D"),
    "p2c": ("#56B4E9", "<"),
    "jsq": ("#0072B2", ">"),
    "lwl": ("#B2ABD2", "p"),
    "sed": ("#5E3C99", "h"),
    "setr": ("#000000", "*"),
    "ci-setr": ("#009E73", "o"),
    "parl": ("#B2182B", "o"),
    "plrl-ed": ("#F4A582", "s"),
    "plrl-ql": ("#92C5DE", "D"),
    "plrl-edql": ("#2166AC", "P"),
    "veil": ("#1B7837", "X"),
    "veil-total": ("#7FBC41", "d"),
    "ti-setr": ("#66C2A5", "o"),
}
LEARNED = ("parl", "plrl-ed", "plrl-ql", "plrl-edql", "veil", "veil-total")
OTHER_COLOURS = ("#B8860B", "#7F0000", "#004D40", "#4A148C")


def method_of(label: str) -> str:
    """Return the method of a policy's label: trainings that differ in their seeds are one.

    >>> method_of("plrl-edql-100-3"), method_of("paper-parl-200-11"), method_of("jsq")
    ('plrl-edql', 'parl', 'jsq')
    """
    if label in STYLES:
        return label
    families = [name for name in LEARNED if f"-{name}-" in f"-{label}-"]
    return max(families, key=len, default=label)


def style(label: str) -> dict[str, Any]:
    """Return colour and marker of a method, the same in every figure."""
    fallback = (OTHER_COLOURS[sum(label.encode()) % len(OTHER_COLOURS)], "P")
    colour, marker = STYLES.get(method_of(label), fallback)
    return {"color": colour, "marker": marker}


def line(label: str) -> str:
    """Return the line style: learned methods solid, traditional dashed, inferring rules dotted."""
    if method_of(label) in LEARNED:
        return "-"
    return ":" if label in ("setr", "ci-setr", "ti-setr") else "--"
