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


def remove_leftovers(folder: Path) -> None:
    """Remove incomplete files whose writer no longer runs."""
    for path in folder.glob(f"*{PART}"):
        writer = path.name.split(".")[-2]
        if not (writer.isdigit() and Path("/proc", writer).exists()):
            path.unlink(missing_ok=True)
