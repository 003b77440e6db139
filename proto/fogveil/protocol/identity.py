"""Who is who: a participant's role and name within a run, as certificates spell them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote, unquote

AGENT, PROVIDER, CLOUD, SOURCES = "agent", "provider", "cloud", "sources"
CLOCK, BROKER, AUDITOR = "clock", "broker", "auditor"
ROLES = (AGENT, PROVIDER, CLOUD, SOURCES, CLOCK, BROKER, AUDITOR)

SCHEME = "spiffe://fogveil/"
LONGEST_COMMON_NAME = 64
"""X.509 allows no more."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A role and a name within one run, as a certificate's URI spells them.

    >>> Identity("7f", "provider", "fog 3").uri
    'spiffe://fogveil/7f/provider/fog%203'
    >>> Identity.parse("spiffe://fogveil/7f/provider/fog%203").name
    'fog 3'
    """

    run: str
    role: str
    name: str

    @property
    def uri(self) -> str:
        """The identity as it stands in the certificate."""
        return f"{SCHEME}{self.run}/{self.role}/{quote(self.name, safe='')}"

    @property
    def common_name(self) -> str:
        """The short form that a broker takes for the user's name."""
        readable = f"{self.role}/{quote(self.name, safe='')}"
        if len(readable) <= LONGEST_COMMON_NAME:
            return readable
        return f"{self.role}/{hashlib.sha256(self.name.encode()).hexdigest()[:40]}"

    @property
    def host(self) -> str:
        """The host name that its server certificate is valid for, wherever it listens."""
        return f"{hashlib.sha256(self.uri.encode()).hexdigest()[:32]}.fogveil"

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Read an identity back; anything else is no identity of ours."""
        parts = uri.removeprefix(SCHEME).split("/")
        match parts:
            case [run, role, name] if uri.startswith(SCHEME) and role in ROLES and run and name:
                return cls(run, role, unquote(name))
        raise ValueError(f"{uri!r} names no participant")


def broker_identity(run: str) -> Identity:
    """Return the identity by which participants know their broker: a run has one."""
    return Identity(run, BROKER, BROKER)


def peer_of(context: Any) -> Identity | None:
    """Return who is at the other end of a call; None where nobody proved anything."""
    names = context.auth_context().get("x509_subject_alternative_name", ())
    for name in names:
        text = name.decode(errors="replace")
        if text.startswith(SCHEME):
            try:
                return Identity.parse(text)
            except ValueError:
                return None
    return None
