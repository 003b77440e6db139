"""The address of a broker: mqtt://[user:password@]host[:port], or mqtts:// for TLS.

With `?socket=PATH` it is reached through a Unix socket, whatever the host; the broker's certificate
must still be that of the host.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from fogveil.core.errors import InputError

PORTS = {"mqtt": 1883, "mqtts": 8883}
SCHEMES = tuple(f"{scheme}://" for scheme in PORTS)


class Address(NamedTuple):
    """A broker's address; its text, for messages and logs, omits user and password.

    >>> str(Address.parse("mqtts://me:secret@fog.example"))
    'mqtts://fog.example:8883'
    """

    host: str
    port: int
    user: str | None = None
    password: str | None = None
    tls: bool = False
    socket: str | None = None
    """The path of the Unix socket through which it is reached."""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the address in a text; InputError where there is none."""
        try:
            parts = urlsplit(text)
            port = PORTS.get(parts.scheme) if parts.port is None else parts.port
            query = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        except ValueError as error:
            raise _invalid(text) from error
        path = query.pop("socket", None)
        trailing = parts.path.strip("/") or query or parts.fragment
        if not text.startswith(SCHEMES) or not parts.hostname or not port or trailing:
            raise _invalid(text)
        user, password = parts.username, parts.password
        return cls(
            parts.hostname,
            port,
            None if user is None else unquote(user),
            None if password is None else unquote(password),
            parts.scheme == "mqtts",
            path,
        )

    @property
    def url(self) -> str:
        """The address in full, with user and password."""
        if self.user is None:
            return str(self)
        secret = "" if self.password is None else f":{quote(self.password, safe='')}"
        scheme, slashes, rest = str(self).partition("://")
        return f"{scheme}{slashes}{quote(self.user, safe='')}{secret}@{rest}"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        suffix = f"?socket={quote(self.socket)}" if self.socket else ""
        return f"mqtt{'s' * self.tls}://{host}:{self.port}{suffix}"


def _invalid(text: str) -> InputError:
    shown = text.rpartition("@")[2]  # the part before may hold a password
    return InputError(f"broker: expected mqtt[s]://[user:password@]host[:port], not {shown!r}")
