"""Helpers for the author of a challenge: they edit files of the copy of the product."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent


class SabotageError(Exception):
    """An edit that does not fit the product, in one sentence."""


def replace(path: Path, old: str, new: str, times: int = 1) -> None:
    """Replace a text in a file; it must be there as often as said."""
    text = _read(path)
    found = text.count(old)
    if found != times:
        raise SabotageError(f"{path}: {old!r} is there {found} times, expected {times}")
    path.write_text(text.replace(old, new), encoding="utf-8")


def append(path: Path, code: str) -> None:
    """Add code to the end of a file, where it can replace what was defined before."""
    path.write_text(f"{_read(path)}\n\n{dedent(code)}", encoding="utf-8")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SabotageError(
            f"{path}: {error.strerror}; the copy holds the participants' packages alone"
        ) from error
