"""Where a broker is: mqtt://[user:password@]host[:port], or mqtts:// where it speaks TLS."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from fogveil.errors import InputError

PORTS = {"mqtt": 1883, "mqtts": 8883}
SCHEMES = tuple(f"{scheme}://" for scheme in PORTS)


class Address(NamedTuple):
    """A broker's address. As text it is without user and password: sentences and logs show it.

    >>> str(Address.parse("mqtts://me:secret@fog.example"))
    'mqtts://fog.example:8883'
    """

    host: str
    port: int
    user: str | None = None
    password: str | None = None
    tls: bool = False

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read an address as people write it."""
        try:
            parts = urlsplit(text)
            port = PORTS.get(parts.scheme) if parts.port is None else parts.port
        except ValueError as error:
            raise _wrong(text) from error
        beyond = parts.path.strip("/") or parts.query or parts.fragment
        if not text.startswith(SCHEMES) or not parts.hostname or not port or beyond:
            raise _wrong(text)
        user, password = parts.username, parts.password
        return cls(
            parts.hostname,
            port,
            None if user is None else unquote(user),
            None if password is None else unquote(password),
            parts.scheme == "mqtts",
        )

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"mqtt{'s' * self.tls}://{host}:{self.port}"


def _wrong(text: str) -> InputError:
    shown = text.rpartition("@")[2]  # what stands before may be a password
    return InputError(f"broker: expected mqtt[s]://[user:password@]host[:port], not {shown!r}")
