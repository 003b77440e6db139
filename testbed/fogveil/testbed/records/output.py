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


ADAPTED = "adapted"
"""The folder of a run in which an agent is kept that learned at work."""
CLAIM = "contents.json"
"""Says what the results in a folder are of."""
TABLES = ("results.", "compare.")
"""Beginnings of the names of tables, which go when other results take a folder."""


def claim_folder(folder: Path, contents: dict[str, Any], *, force: bool = False) -> None:
    """Take a folder for results, or refuse one that holds something else.

    The same contents are continued or written again; with `force` others are replaced.
    """
    path = folder / CLAIM
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; choose another --out")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        found = None
    except (OSError, ValueError):
        found = {}
    kept = [item for item in folder.iterdir() if item != path] if folder.is_dir() else []
    other = found is not None and found != contents
    if kept and not force and (found is None or other):
        what = "other results" if other else "files that no command of this kind wrote"
        raise InputError(
            f"{folder}: holds {what}; choose another --out, or replace them with --force (finished "
            "runs that still fit are kept)"
        )
    with reporting_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for item in kept if other else ():
            if item.name.startswith(TABLES):
                item.unlink()
    write_json(path, contents)


def remove_leftovers(folder: Path) -> None:
    """Remove incomplete files whose writer no longer runs."""
    for path in folder.glob(f"*{PART}"):
        writer = path.name.split(".")[-2]
        if not (writer.isdigit() and Path("/proc", writer).exists()):
            path.unlink(missing_ok=True)
