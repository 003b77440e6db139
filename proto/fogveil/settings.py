"""A participant's private configuration file, as the launcher writes it."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fogveil.errors import InputError
from fogveil.identity import Credentials
from fogveil.recording import Recording


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
    own_broker: bool
    """Whether the broker proves to be this run's own; else it is somebody's, used as it is."""
    lifeline: bool
    """Whether the end of standard input means that the launcher is gone."""
    secure: bool
    """Whether channels are encrypted and identities proved, by the files in `identity/`."""
    record: bool
    """Whether what crosses gRPC is recorded."""
    user: int | None
    """The user to become, where the launcher may give each participant one of its own."""
    own: dict[str, Any]
    folder: Path
    """Where the file lies: the participant's own folder."""
    awaits: list[str] = field(default_factory=list)
    """Who must take connections before the participant begins, as host:port."""

    @property
    def credentials(self) -> Credentials | None:
        """What the participant proves itself with; None where nobody proves anything."""
        return Credentials(self.folder / "identity") if self.secure else None

    def recording(self, now: Callable[[], float]) -> Recording | None:
        """Begin to record, where that is asked for."""
        return Recording(self.folder, self.name, now) if self.record else None

    def client(self) -> str:
        """Return a name to have at the broker, which ends the former of two that are equal."""
        return f"{self.run}-{self.name}-{secrets.token_hex(8)}"

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn a share of the scenario that is none into one sentence."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"the configuration of {self.name} is not that of such a participant: "
                f"{type(error).__name__}: {error}"
            ) from error


COMMON: dict[str, Any] = {
    "name": str,
    "run": str,
    "clock": str,
    "broker": str,
    "own_broker": bool,
    "lifeline": bool,
    "secure": bool,
    "record": bool,
    "user": int | None,
    "awaits": list,
    "own": dict,
}


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
    for key, kind in COMMON.items():
        if not isinstance(given[key], kind):
            named = getattr(kind, "__name__", kind)
            raise InputError(f"{path}: {key}: expected a {named}, got {given[key]!r}")
    return Settings(**given, folder=path.parent)


def tuples(value: Any) -> Any:
    """Turn JSON's lists into tuples, all the way down."""
    if isinstance(value, list):
        return tuple(tuples(inner) for inner in value)
    return value
