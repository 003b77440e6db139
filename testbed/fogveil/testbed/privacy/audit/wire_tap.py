"""The wire tap: an auditor's relay between every caller and callee of a run, which records.

The launcher owns the run's certificate authority, so the tap can prove to be anybody: towards the
caller it is the callee, towards the callee it is the caller. Bytes are relayed as they come. What
it records does not depend on any code of the participants.

    with WireTap(folder) as tap, create_testbed(world, plan, path, interposer=tap) as testbed:
        testbed.wait()
    tap.log    # what crossed
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import quote

import uvloop

from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import BROKER, CLOCK, Identity
from fogveil.testbed.launch.participant_config import LOOPBACK, Split
from fogveil.testbed.privacy.audit.tls_transcript import Transcript
from fogveil.testbed.privacy.audit.wire_log import Connection, Handshake, Plane, Stream, WireLog

HANDSHAKE_TIMEOUT = 20.0
"""Seconds for TLS on either side, on a busy machine."""
CLOSE_TIMEOUT = 30.0
"""Seconds in which the last words of whoever has left are read, and then those to close."""


@dataclass(frozen=True)
class Endpoint:
    """An address, apart from its scheme: a host and port, or the path of a Unix socket."""

    prefix: str
    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, address: str) -> Endpoint:
        """Return the endpoint in an address with a host and port.

        >>> Endpoint.parse("mqtts://127.0.0.1:8883")
        Endpoint(prefix='mqtts://', host='127.0.0.1', port=8883, path='')
        """
        scheme, separator, rest = address.rpartition("://")
        prefix = scheme + separator
        host, _, port = rest.rpartition(":")
        # At level `none` a provider listens nowhere, and its address has no port.
        return cls(prefix, host.strip("[]"), int(port) if port.isdigit() else 0)

    def __str__(self) -> str:
        return f"{self.prefix}{self.path or f'{self.host}:{self.port}'}"


@dataclass(frozen=True)
class Line:
    """One caller and one callee, with what the tap needs in order to be each to the other."""

    caller: str
    callee: str
    plane: Plane
    target: Endpoint
    as_callee: ssl.SSLContext | None
    as_caller: ssl.SSLContext | None
    callee_host: str | None
    """The name in the callee's certificate."""


class WireTap:
    """Relays and records every connection of a run; a context that ends with all its sockets."""

    def __init__(self, folder: Path) -> None:
        self.log = WireLog()
        self._folder = folder
        """Where the tap's own keys lie."""
        self._split: Split | None = None
        self._loop = uvloop.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="wire tap", daemon=True)
        self._servers: list[asyncio.AbstractServer] = []
        self._addresses: dict[tuple[str, str, str], str] = {}
        self.relays: set[Relay] = set()
        """The connections that are open."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._run(self._close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _run(self, job: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(job, self._loop).result()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        # Whoever has left is read to the end first: its last words may still be on their way.
        patience = self._loop.time() + CLOSE_TIMEOUT
        while self.relays and self._loop.time() < patience + CLOSE_TIMEOUT:
            if self._loop.time() > patience:
                for relay in tuple(self.relays):
                    relay.close()
            await asyncio.sleep(0.01)
        for relay in tuple(self.relays):
            relay.abort()

    # --- what the testbed calls ------------------------------------------------------------------

    def attach(self, split: Split) -> None:
        """Learn of the run's identities."""
        self._split = split
        self.log.run = split.run

    def interpose(self, caller: str, callee: str, address: str) -> str:
        """Listen for a caller in the callee's place; return where."""
        key = caller, callee, address
        if key in self._addresses:
            return self._addresses[key]
        sockets = self._split.site.sockets if self._split else None
        target, path = Endpoint.parse(address), None
        if sockets:
            # The caller finds the tap's socket where it would have found the callee's.
            target = Endpoint(target.prefix, path=sockets.outside(callee))
            path = sockets.stand_in(caller, callee)
        elif not target.port:
            return address
        listening = self._run(self._listen(caller, callee, target, path))
        if path:
            Path(path).chmod(0o666)  # who reaches the folder may connect
        self._addresses[key] = address if sockets else listening
        return self._addresses[key]

    def told(self) -> dict[str, set[str]]:
        """Return the addresses that each caller was told."""
        addresses: dict[str, set[str]] = {}
        for (caller, _, _), address in self._addresses.items():
            addresses.setdefault(caller, set()).add(address)
        return addresses

    async def _listen(self, caller: str, callee: str, target: Endpoint, path: str | None) -> str:
        line = self._line(caller, callee, target)
        if line.as_callee:
            line.as_callee.sni_callback = self._note_server_name
        options: dict[str, Any] = {}
        if line.as_callee:
            options = {"ssl": line.as_callee, "ssl_handshake_timeout": HANDSHAKE_TIMEOUT}
        if path:
            server = await self._loop.create_unix_server(lambda: Relay(self, line), path, **options)
        else:
            listening = socket.create_server((LOOPBACK, 0))
            server = await self._loop.create_server(
                lambda: Relay(self, line), sock=listening, **options
            )
            target = Endpoint(target.prefix, LOOPBACK, listening.getsockname()[1])
        self._servers.append(server)
        return str(target)

    @staticmethod
    def _note_server_name(connection: Any, name: str | None, _context: Any) -> None:
        connection.asked_for = name or ""

    def _line(self, caller: str, callee: str, target: Endpoint) -> Line:
        split = self._split
        assert split is not None
        plane: Plane = "boundary"
        if callee == CLOCK:
            plane = "clock"
        elif callee == BROKER:
            plane = "mqtt"
        if split.mint is None or (callee == BROKER and not split.own_broker):
            return Line(caller, callee, plane, target, None, None, None)
        identity = self._identity(callee)
        as_callee = self._context(ssl.PROTOCOL_TLS_SERVER, identity, plane)
        as_caller = self._context(ssl.PROTOCOL_TLS_CLIENT, self._identity(caller), plane)
        return Line(caller, callee, plane, target, as_callee, as_caller, identity.host)

    def _identity(self, name: str) -> Identity:
        split = self._split
        assert split is not None
        return Identity(split.run, split.roster.role_of(name) or name, name)

    def _context(self, protocol: int, identity: Identity, plane: Plane) -> ssl.SSLContext:
        credentials = self._credentials(identity)
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_verify_locations(credentials.authority)
        context.load_cert_chain(credentials.certificate, credentials.key)
        context.verify_mode = ssl.CERT_REQUIRED
        # Not public, but the only way to the messages that TLS encrypts.
        context._msg_callback = _note_message  # type: ignore[attr-defined]  # noqa: SLF001
        if plane != "mqtt":
            context.set_alpn_protocols(["h2"])
        return context

    def _credentials(self, identity: Identity) -> Credentials:
        """Return a certificate of the tap's own with a participant's identity."""
        split = self._split
        assert split is not None
        assert split.mint is not None
        folder = self._folder / quote(identity.name, safe="")
        if not folder.exists():
            split.mint.issue(identity, folder)
        return Credentials(folder)


class Relay(asyncio.Protocol):
    """The caller's end of one connection, which opens the callee's end."""

    def __init__(self, tap: WireTap, line: Line) -> None:
        self._tap, self._line = tap, line
        self._caller: asyncio.Transport | None = None
        self._callee: asyncio.Transport | None = None
        self._early: list[bytes] = []
        """What the caller sent before the callee was connected."""
        self._connecting: asyncio.Task[None] | None = None
        self.connection = Connection(line.caller, line.callee, line.plane, time.monotonic())
        tap.log.accepted.append((line.caller, line.callee))  # TLS follows, or does not

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Record the caller's certificate, and dial the callee."""
        self._caller = transport = cast("asyncio.Transport", transport)
        _no_delay(transport)
        self._tap.log.connections.append(self.connection)
        self._tap.relays.add(self)
        self.connection.caller_tls = _handshake(transport)
        tls = transport.get_extra_info("ssl_object")
        self.connection.server_name = getattr(tls, "asked_for", "")
        self._connecting = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        line, loop = self._line, asyncio.get_running_loop()
        options: dict[str, Any] = {}
        if line.as_caller:
            options = {
                "ssl": line.as_caller,
                "server_hostname": line.callee_host,
                "ssl_handshake_timeout": HANDSHAKE_TIMEOUT,
            }
        try:
            if line.target.path:
                await loop.create_unix_connection(
                    lambda: _Callee(self), line.target.path, **options
                )
            else:
                await loop.create_connection(
                    lambda: _Callee(self), line.target.host, line.target.port, **options
                )
        except (OSError, TimeoutError) as error:
            self.connection.failure = f"{type(error).__name__}: {error}"
            self.close()

    def connected(self, transport: asyncio.Transport) -> None:
        """Take over the callee's end."""
        self._callee = transport
        _no_delay(transport)
        self.connection.callee_tls = _handshake(transport)
        early, self._early = self._early, []
        for data in early:
            transport.write(data)
        if self._caller is None or self._caller.is_closing():
            transport.close()

    def data_received(self, data: bytes) -> None:
        """Relay from the caller to the callee."""
        self._record(self.connection.up, self.connection.caller_tls, data)
        if self._callee is None:
            self._early.append(data)
        else:
            self._callee.write(data)

    def data_returned(self, data: bytes) -> None:
        """Relay from the callee to the caller."""
        self._record(self.connection.down, self.connection.callee_tls, data)
        assert self._caller is not None
        self._caller.write(data)

    @staticmethod
    def _record(stream: Stream, tls: Handshake, data: bytes) -> None:
        stream.add(time.monotonic(), data)
        if tls.version:
            tls.said.note_data(len(stream.content))

    def connection_lost(self, error: Exception | None) -> None:
        """The caller has gone: so does the callee."""
        self._caller = None
        self._note_cut(error)
        self.close()

    def callee_lost(self, error: Exception | None) -> None:
        """The callee has gone: so does the caller."""
        self._callee = None
        self._note_cut(error)
        self.close()

    def _note_cut(self, error: Exception | None) -> None:
        """Note an end that was noticed in writing, maybe before all was read that it had sent."""
        if isinstance(error, BrokenPipeError):
            self.connection.cut = True

    def close(self) -> None:
        """Close both ends once everything that was received has been relayed."""
        if self.connection.closed is None:
            self.connection.closed = time.monotonic()
        if self._caller is not None:
            self._caller.close()
        if self._callee is not None:
            self._callee.close()
        if self._caller is None and self._callee is None:
            self._tap.relays.discard(self)

    def abort(self) -> None:
        """Close both ends at once."""
        self.connection.cut = True
        if self._connecting is not None:
            self._connecting.cancel()
        for transport in (self._caller, self._callee):
            if transport is not None:
                transport.abort()

    # A slow reader slows its writer down, as it would without the tap.

    def pause_writing(self) -> None:
        """The caller reads too slowly."""
        if self._callee is not None:
            self._callee.pause_reading()

    def resume_writing(self) -> None:
        """The caller reads again."""
        if self._callee is not None:
            self._callee.resume_reading()

    def pause_caller(self) -> None:
        """The callee reads too slowly."""
        if self._caller is not None:
            self._caller.pause_reading()

    def resume_caller(self) -> None:
        """The callee reads again."""
        if self._caller is not None:
            self._caller.resume_reading()


class _Callee(asyncio.Protocol):
    """The callee's end of one connection."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._relay.connected(cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        self._relay.data_returned(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._relay.callee_lost(error)

    def pause_writing(self) -> None:
        self._relay.pause_caller()

    def resume_writing(self) -> None:
        self._relay.resume_caller()


def _handshake(transport: asyncio.Transport) -> Handshake:
    tls = transport.get_extra_info("ssl_object")
    if tls is None:
        return Handshake()
    # Every certificate that was presented, not the peer's own alone; public from Python 3.13 on.
    chain = tls._sslobj.get_unverified_chain() or ()  # noqa: SLF001
    return Handshake(
        [ssl.PEM_cert_to_DER_cert(certificate.public_bytes()) for certificate in chain],
        tls.version() or "",
        (tls.cipher() or ("",))[0],
        tls.selected_alpn_protocol() or "",
        _transcript(tls),
    )


def _note_message(
    connection: Any, direction: str, _version: Any, content: int, _kind: Any, data: bytes
) -> None:
    if direction == "read" and connection is not None:
        _transcript(connection).note(content, data)


def _transcript(connection: Any) -> Transcript:
    """Return what the other end of a TLS connection said: it goes on being taken down."""
    if not hasattr(connection, "said"):
        connection.said = Transcript()
    return cast("Transcript", connection.said)


def _no_delay(transport: asyncio.Transport) -> None:
    """Switch Nagle's algorithm off: the tap must not slow small messages down."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
