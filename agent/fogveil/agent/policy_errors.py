"""Errors in a user's policy: one sentence, and the lines of the user's own code that led there."""

from __future__ import annotations

import linecache
from traceback import walk_tb
from types import FrameType

from fogveil.agent.policy_files import file_within_policy
from fogveil.core.errors import InputError
from fogveil.core.python_imports import is_library
from fogveil.core.safe_text import safe_text

FRAMES_SHOWN = 8
LONGEST_FRAME = 300
"""Characters."""


def describe_error(error: BaseException) -> str:
    """Return an exception's type and text in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def policy_error(sentence: str, error: BaseException) -> InputError:
    """Return the error to raise, whose notes are the user's own lines, the innermost last."""
    found = InputError(sentence)
    for line in user_frames(error):
        found.add_note(line)
    return found


def user_frames(error: BaseException) -> list[str]:
    """Return a line for each call in a user's own code, with its file, number and source."""
    calls = [
        (frame.f_code.co_filename, number, frame.f_code.co_name)
        for frame, number in walk_tb(error.__traceback__)
        if _is_users(frame)
    ]
    frames = [_describe_line(file, number, f", in {function}") for file, number, function in calls]
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        frames.append(_describe_line(error.filename, error.lineno))
    return frames[-FRAMES_SHOWN:]


def _is_users(frame: FrameType) -> bool:
    file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__", ""))
    if file_within_policy(file):
        return True
    return not (file.startswith("<") or is_library(file) or module.startswith("fogveil."))


def _describe_line(file: str, number: int, function: str = "") -> str:
    source = linecache.getline(file, number).strip()
    shown = f"{file_within_policy(file) or file}, line {number}{function}"
    return safe_text(f"  {shown}: {source}" if source else f"  {shown}", LONGEST_FRAME)
