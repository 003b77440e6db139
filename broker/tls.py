"""TLS between participants and the broker: both prove who they are by certificates of the run."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fogveil.errors import InputError
from fogveil.identity import SCHEME, Credentials, Identity

OLDEST = ssl.TLSVersion.TLSv1_3
"""Before 1.3 certificates, and with them the participants' names, cross the wire in clear."""


class ClientContext(ssl.SSLContext):
    """Looks for the broker under a name of its own, whatever the address is that it listens at."""

    host: str | None = None
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
        """Shake hands at once: if that fails the socket is closed, which paho would not do."""
        try:
            return super().wrap_socket(
                sock,
                server_side,
                suppress_ragged_eofs=suppress_ragged_eofs,
                server_hostname=self.host or server_hostname,
                session=session,
            )
        except ssl.SSLError as error:
            raise OSError(failure(error)) from error


def failure(error: ssl.SSLError) -> str:
    """Say what went wrong, as the end of a sentence."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not the right one: {error.verify_message}"
    reason = error.reason or "the connection was closed"
    return f"no TLS with it: {reason.lower().replace('_', ' ')}"


def for_participant(
    broker: Identity | None, credentials: Credentials | None, authority: Path | None = None
) -> ClientContext:
    """Return what a client proves itself with, and checks the broker by.

    Without the identity of a broker of our own it is somebody else's: checked as browsers check
    servers, and not shown a certificate that it has no use for. `authority` stands for the one
    beside the certificate, for those who try what happens if the two do not belong together.
    """
    context = ClientContext(ssl.PROTOCOL_TLS_CLIENT)
    if broker is None:
        context.load_default_certs()
        return context
    context.host = broker.host
    context.minimum_version = OLDEST
    if authority is None:
        if credentials is None:
            raise InputError("broker: it wants a certificate, and there is none to show")
        authority = credentials.authority
    with _readable(authority):
        context.load_verify_locations(authority)
    if credentials is not None:
        _show(context, credentials)
    return context


def for_broker(credentials: Credentials) -> ssl.SSLContext:
    """Return what the built-in broker proves itself with; it asks every client for the same."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = OLDEST
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0  # nobody comes back, so nobody needs a ticket to do so faster
    with _readable(credentials.authority):
        context.load_verify_locations(credentials.authority)
    _show(context, credentials)
    return context


def identity_of(certificate: dict[str, Any] | None) -> Identity | None:
    """Return whom a verified certificate names; None where it names nobody, or two."""
    names = [
        name
        for kind, name in (certificate or {}).get("subjectAltName", ())
        if kind == "URI" and name.startswith(SCHEME)
    ]
    try:
        return Identity.parse(*names) if len(names) == 1 else None
    except ValueError:
        return None


def _show(context: ssl.SSLContext, credentials: Credentials) -> None:
    with _readable(credentials.folder):
        context.load_cert_chain(credentials.certificate, credentials.key)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = "it is no certificate or key" if isinstance(error, ssl.SSLError) else None
        raise InputError(
            f"{path}: the identity cannot be read: {reason or error.strerror}"
        ) from error
