"""The keys of the epochs at level `total`, in the member's own folder until the run ends.

A member that is lost and comes back must answer with the same shares as before: with other keys a
window would have two answers, whose difference tells something.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fogveil.core.files import write_private


class KeyStore:
    """Keeps, for each epoch, our private key and the public keys of the members once all came."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _path(self, epoch: int) -> Path:
        return self._folder / f"keys-{epoch:04}.json"

    def keep(self, epoch: int, own: X25519PrivateKey, keys: dict[str, bytes] | None = None) -> None:
        """Keep our key of an epoch, and all keys where they are known."""
        content = {
            "own": own.private_bytes_raw().hex(),
            "keys": {name: key.hex() for name, key in (keys or {}).items()},
        }
        write_private(self._path(epoch), json.dumps(content))

    def own(self, epoch: int) -> X25519PrivateKey | None:
        """Return our key of an epoch, if there was one."""
        own = self._read(epoch).get("own")
        return X25519PrivateKey.from_private_bytes(bytes.fromhex(own)) if own else None

    def keys(self, epoch: int) -> dict[str, bytes]:
        """Return the keys of all members of an epoch; none where we never had all."""
        keys: dict[str, str] = self._read(epoch).get("keys", {})
        return {name: bytes.fromhex(key) for name, key in keys.items()}

    def _read(self, epoch: int) -> dict[str, Any]:
        with suppress(FileNotFoundError, ValueError):
            found: dict[str, Any] = json.loads(self._path(epoch).read_text(encoding="utf-8"))
            return found
        return {}

    def remove(self) -> None:
        """Remove all keys: the run is over."""
        for path in self._folder.glob("keys-*.json"):
            path.unlink(missing_ok=True)
