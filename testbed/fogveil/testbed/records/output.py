"""Output files of the experimenter: private, complete or absent, write errors in one sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fogveil.core.errors import InputError
from fogveil.core.files import write_private

PART = ".part"
"""Suffix of an incomplete file, after the process id of its writer."""


@contextmanager
def reporting_write_errors(path: Path) -> Iterator[None]:
    """Turn an operating-system error (full disk, unwritable folder) into an `InputError`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{path}: cannot be written: {reason}; choose another folder") from error


def write_json(path: Path, content: Any) -> None:
    """Write a private JSON file atomically."""
    text = json.dumps(content, indent=2)
    with reporting_write_errors(path):
        write_private(path, text)


CLAIM = "contents.json"
"""Says what the results in a folder are of."""


def claim_folder(folder: Path, contents: dict[str, Any], *, force: bool = False) -> None:
    """Take a folder for results, or refuse one that holds something else.

    The same contents are continued or written again; with `force` others are replaced.
    """
    path = folder / CLAIM
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        found = None
    except (OSError, ValueError):
        found = {}
    occupied = found is None and folder.is_dir() and any(folder.iterdir())
    if not force and (occupied or (found is not None and found != contents)):
        what = "files that no command of this kind wrote" if occupied else "other results"
        raise InputError(
            f"{folder}: holds {what}; choose another --out, or replace them with --force"
        )
    with reporting_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_json(path, contents)


def remove_leftovers(folder: Path) -> None:
    """Remove incomplete files whose writer no longer runs."""
    for path in folder.glob(f"*{PART}"):
        writer = path.name.split(".")[-2]
        if not (writer.isdigit() and Path("/proc", writer).exists()):
            path.unlink(missing_ok=True)
