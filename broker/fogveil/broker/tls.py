"""TLS between participants and the broker, in which both sides prove an identity of the run."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fogveil.core.errors import InputError
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import SCHEME, Identity

MINIMUM_VERSION = ssl.TLSVersion.TLSv1_3
"""Older versions send certificates, and with them the participants' names, unencrypted."""


class ClientContext(ssl.SSLContext):
    """A TLS context that can expect another name in the server's certificate than it dials."""

    expected_host: str | None = None
    """The name in the broker's certificate; None where it is that of the address."""

    def wrap_socket(
        self,
        sock: socket.socket,
        server_side: bool = False,  # noqa: FBT001 - the signature is the library's
        do_handshake_on_connect: bool = True,  # noqa: ARG002, FBT001
        suppress_ragged_eofs: bool = True,  # noqa: FBT001
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLSocket:
        """Do the handshake at once: if it fails the socket is closed, which paho omits."""
        try:
            return super().wrap_socket(
                sock,
                server_side,
                suppress_ragged_eofs=suppress_ragged_eofs,
                server_hostname=self.expected_host or server_hostname,
                session=session,
            )
        except ssl.SSLError as error:
            raise OSError(describe(error)) from error


def describe(error: ssl.SSLError) -> str:
    """Return what went wrong, as the end of a sentence about the broker."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    reason = error.reason or "the connection was closed"
    return f"the TLS handshake failed: {reason.lower().replace('_', ' ')}"


def client_context(
    broker: Identity | None, credentials: Credentials | None, authority: Path | None = None
) -> ClientContext:
    """Return the context of a client: what it proves itself with and checks the broker by.

    Without an identity to expect, the broker is somebody else's: it is checked against the system's
    authorities, and is not shown a certificate. `authority` replaces the one in the credentials,
    for tests with certificates of another authority.
    """
    context = ClientContext(ssl.PROTOCOL_TLS_CLIENT)
    if broker is None:
        context.load_default_certs()
        return context
    context.expected_host = broker.host
    context.minimum_version = MINIMUM_VERSION
    if authority is None:
        if credentials is None:
            raise InputError("broker: it requires a client certificate, and there is none")
        authority = credentials.authority
    with _reading(authority):
        context.load_verify_locations(authority)
    if credentials is not None:
        _load_certificate(context, credentials)
    return context


def server_context(credentials: Credentials) -> ssl.SSLContext:
    """Return the context of the built-in broker, which requires a certificate of every client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = MINIMUM_VERSION
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0  # session tickets speed up reconnecting, and nobody reconnects
    with _reading(credentials.authority):
        context.load_verify_locations(credentials.authority)
    _load_certificate(context, credentials)
    return context


def identity_of(certificate: dict[str, Any] | None) -> Identity | None:
    """Return the identity in a verified certificate; None unless it holds exactly one."""
    uris = [
        name
        for kind, name in (certificate or {}).get("subjectAltName", ())
        if kind == "URI" and name.startswith(SCHEME)
    ]
    try:
        return Identity.parse(*uris) if len(uris) == 1 else None
    except ValueError:
        return None


def _load_certificate(context: ssl.SSLContext, credentials: Credentials) -> None:
    with _reading(credentials.folder):
        context.load_cert_chain(credentials.certificate, credentials.key)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = "not a certificate or key" if isinstance(error, ssl.SSLError) else error.strerror
        raise InputError(f"{path}: the identity cannot be read: {reason}") from error
