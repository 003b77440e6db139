"""A participant's private configuration file, as the launcher writes it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fogveil.errors import InputError


@dataclass(frozen=True)
class Settings:
    """What every participant is told, and beside it what it alone is told."""

    name: str
    run: str
    """A random name of the run."""
    clock: str
    """Where the clock listens, as host:port; of the clock itself, where it shall listen."""
    broker: str
    """Where the broker is, as mqtt://host:port."""
    lifeline: bool
    """Whether the end of standard input means that the launcher is gone."""
    own: dict[str, Any]
    folder: Path
    """Where the file lies: the participant's own folder."""


COMMON = ("name", "run", "clock", "broker", "lifeline", "own")


def write_settings(folder: Path, **given: Any) -> Path:
    """Write a participant's configuration into its folder, for its eyes alone."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / "config.json"
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump({key: given[key] for key in COMMON}, file, indent=1)
    return path


def read_settings(path: Path) -> Settings:
    """Read a configuration; one that others can read is refused, for it may hold secrets."""
    try:
        mode = path.stat().st_mode & 0o777
        given = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: is not a configuration: {error}") from error
    if mode & 0o077:
        raise InputError(f"{path}: others can read it (mode {mode:o}): chmod 600 it")
    if not isinstance(given, dict) or set(given) != set(COMMON):
        raise InputError(f"{path}: expected the keys {', '.join(COMMON)}")
    return Settings(**given, folder=path.parent)


def tuples(value: Any) -> Any:
    """Turn JSON's lists into tuples, all the way down."""
    if isinstance(value, list):
        return tuple(tuples(inner) for inner in value)
    return value
