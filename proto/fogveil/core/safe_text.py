"""Text of unknown origin, made safe to show on a terminal, in a log or in an error."""

from __future__ import annotations

import logging

LONGEST = 1000
"""Characters that are shown of one text."""


def safe_text(text: str, longest: int | None = LONGEST) -> str:
    r"""Return a text as one line in which nothing controls a terminal, and of bounded length.

    Escapes that are visible stand for control characters (also line ends, but not tabs), for those
    that change the direction of writing or are invisible, and for what is no character at all.

    >>> print(safe_text("\x1b]0;title\x07\u202egnp.exe"))
    \x1b]0;title\x07\u202egnp.exe
    >>> safe_text("abcdef", longest=4)
    'abcd… (6 characters)'
    """
    if longest is not None and len(text) > longest:
        text = f"{text[:longest]}… ({len(text):,} characters)"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else _visible(c) for c in text)


def safe_lines(text: str) -> str:
    """Return a text of ours, which may have several lines, with each of them made safe."""
    return "\n".join(safe_text(line, longest=None) for line in text.split("\n"))


def _visible(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class SafeFormatter(logging.Formatter):
    """Formats a participant's log, in which texts of other participants may stand."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record, with each of its lines made safe."""
        return safe_lines(super().format(record))


def log_safely(layout: str, level: int) -> None:
    """Write this process's log to standard error, made safe."""
    handler = logging.StreamHandler()
    handler.setFormatter(SafeFormatter(layout))
    logging.basicConfig(handlers=[handler], level=level)
