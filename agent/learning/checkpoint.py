"""Checkpoints: one file that holds all an agent needs to go on, or the little it needs to act.

A file is a NumPy archive with a JSON header. It says which agent it is, what it was trained on
(the public projection of the scenario, never more), with which seed, versions and commit.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fogveil.errors import InputError

HEADER = "header"
FORMAT = 1


class Checkpoint(NamedTuple):
    """A checkpoint as it was read."""

    header: dict[str, Any]
    arrays: dict[str, Any]


def write_checkpoint(path: Path, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write a checkpoint that is either whole or not there."""
    text = json.dumps({"format": FORMAT, **header})
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            everything: dict[str, Any] = {HEADER: np.frombuffer(text.encode(), np.uint8), **arrays}
            np.savez(file, **everything)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; nothing in it is executed."""
    with _archive(path) as archive:
        arrays = {name: archive[name] for name in archive.files if name != HEADER}
        return Checkpoint(_header(path, archive), arrays)


def read_header(path: Path) -> dict[str, Any]:
    """Read what a checkpoint says of itself, and not the rest."""
    with _archive(path) as archive:
        return _header(path, archive)


@contextmanager
def _archive(path: Path) -> Iterator[Any]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            yield archive
    except FileNotFoundError as error:
        raise InputError(f"{path}: the checkpoint does not exist") from error
    except (OSError, ValueError, TypeError, AttributeError, KeyError, EOFError) as error:
        raise InputError(f"{path}: is not a checkpoint of fogveil") from error
    except zipfile.BadZipFile as error:
        raise InputError(f"{path}: is not a checkpoint of fogveil") from error


def _header(path: Path, archive: Any) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(archive[HEADER].tobytes())
    if header["format"] != FORMAT:
        raise InputError(f"{path}: checkpoint format {header['format']}, expected {FORMAT}")
    for key in ("agent", "public", "sizes"):
        header[key]  # a file without one of these is none of ours
    return header


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Say in what two public projections differ that a network's shape depends on."""
    sizes = {
        key: (len(one.get(key, ())), len(other[key])) for key in ("nodes", "clusters", "categories")
    }
    found = [f"{a} {key} against {b}" for key, (a, b) in sizes.items() if a != b]
    if one.get("count") != other["count"]:
        found.append(f"counts {one.get('count')} against {other['count']}")
    return ", ".join(found)
