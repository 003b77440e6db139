"""A participant's private configuration file: written by the launcher, read by its process.

Every participant has settings of its own kind, a dataclass derived from `Settings` in its room.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from fogveil.core.errors import InputError
from fogveil.core.files import write_private
from fogveil.core.plain import from_plain, to_plain
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.recording import Recording

CONFIG = "config.json"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every participant is told."""

    name: str
    run: str
    """A random name of the run."""
    clock: str
    """Where the clock listens, as host:port; of the clock itself, where it shall listen."""
    broker: str
    """Where the broker is, as mqtt://host:port."""
    own_broker: bool
    """Whether the broker has an identity of this run; else it is somebody's, used as it is."""
    lifeline: bool
    """Whether the end of standard input means that the launcher is gone."""
    secure: bool
    """Whether channels are encrypted and identities proved, by the files in `identity/`."""
    record: bool
    """Whether what crosses gRPC is recorded."""
    user: int | None
    """The user to become, where the launcher may give each participant one of its own."""
    recovers: bool = False
    """Whether the run goes on after a loss: peers that are gone come back."""
    awaits: tuple[str, ...] = ()
    """Who must accept connections before the participant begins, as host:port."""
    folder: Path
    """The participant's own folder, where the file lies."""

    @property
    def credentials(self) -> Credentials | None:
        """The participant's key and certificates; None where the run has no identities."""
        return Credentials(self.folder / "identity") if self.secure else None

    def recording(self, now: Callable[[], float], *, may_crash: bool = False) -> Recording | None:
        """Begin to record, where that is asked for; `now` is the simulated time."""
        if not self.record:
            return None
        return Recording(self.folder, self.name, now, may_crash=may_crash)

    def mqtt_client_id(self) -> str:
        """Return a client id that no other connection has: a broker ends the older of two."""
        return f"{self.run}-{self.name}-{secrets.token_hex(8)}"


S = TypeVar("S", bound=Settings)


def write_settings(settings: Settings) -> Path:
    """Write a participant's configuration into its folder, readable by it alone."""
    settings.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = settings.folder / CONFIG
    plain = to_plain(settings)
    del plain["folder"]
    write_private(path, json.dumps(plain, indent=1))
    return path


def read_settings(path: Path, kind: type[S]) -> S:
    """Read a configuration; one that others can read is refused, for it may hold secrets."""
    try:
        mode = path.stat().st_mode & 0o777
        plain: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: is not a configuration: {error}") from error
    if mode & 0o077:
        raise InputError(f"{path}: others can read it (mode {mode:o}): chmod 600 it")
    expected = {field.name for field in fields(kind)} - {"folder"}
    if not isinstance(plain, dict) or set(plain) != expected:
        raise InputError(f"{path}: expected the keys {', '.join(sorted(expected))}")
    try:
        return from_plain(kind, {**plain, "folder": path.parent})
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
