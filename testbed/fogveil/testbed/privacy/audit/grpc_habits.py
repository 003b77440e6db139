"""What gRPC and TLS send by themselves: observed at servers and clients of the auditor's own.

So headers, settings and TLS offers have no list of versions here. What a server says when it shuts
down is not observed but listed: it is seen only when participants leave late.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import grpc
from grpc import aio
from hyperframe.frame import SettingsFrame

from fogveil.broker.tls import client_context, server_context
from fogveil.protocol.channels import OPTIONS
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import BROKER, CLOCK, PROVIDER, Identity
from fogveil.protocol.roster import Roster
from fogveil.testbed.launch.certificates import Mint
from fogveil.testbed.launch.participant_config import LOOPBACK, Site
from fogveil.testbed.privacy.audit.traffic import GrpcSide, GrpcTraffic
from fogveil.testbed.privacy.audit.wire_log import Connection
from fogveil.testbed.privacy.audit.wire_tap import Endpoint, WireTap
from fogveil.testbed.privacy.inspect.http2 import Header

METHOD = "/auditor.Calibration/Call"
CANCELLING = "Cancelling all calls"
SHUTDOWN_TRAILERS = [("grpc-status", "14"), ("grpc-message", CANCELLING)]
"""What a server that shuts down ends a call with, if it has the time."""
GOAWAYS = {(0, b""), (0, b"Server shutdown"), (2, CANCELLING.encode())}
"""Code and debug data of a shutdown."""

Dial = Callable[[str], str]
"""Returns the address of the tap in front of an address."""
Talk = Callable[[Credentials, Credentials, Identity, Dial], Coroutine[Any, Any, None]]


class Handshakes(NamedTuple):
    """What both ends say when TLS is set up, without random values."""

    caller: list[str]
    callee: list[str]


@dataclass(frozen=True)
class GrpcHabits:
    """The values in what gRPC adds to messages."""

    client_settings: dict[int, int]
    server_settings: dict[int, int]
    request: list[Header]
    """Headers of a call without metadata, with path and authority of the calibration."""
    response: list[Header]
    handshakes: Handshakes

    def request_to(self, method: str, authority: str) -> list[Header]:
        """Return the headers of a call of a method."""
        own = {":path": method, ":authority": authority}
        return [(name, own.get(name, value)) for name, value in self.request]


@cache
def observe_habits() -> GrpcHabits:
    """Let a gRPC server and a client with the participants' options talk through a tap."""
    connection, handshakes = _observe(CLOCK, _talk_grpc)
    traffic = GrpcTraffic(connection)
    [stream] = traffic.down.calls
    return GrpcHabits(
        _settings(traffic.up),
        _settings(traffic.down),
        traffic.up.calls[stream].blocks[0],
        traffic.down.calls[stream].blocks[0],
        handshakes,
    )


@cache
def observe_mqtt_handshakes() -> Handshakes:
    """Let a client and a server with the TLS of participants and built-in broker talk."""
    return _observe(BROKER, _talk_tls)[1]


def _observe(callee: str, talk: Talk) -> tuple[Connection, Handshakes]:
    """Return the one connection of a conversation between two identities through a tap."""
    run = "calibration"
    caller, server = Identity(run, PROVIDER, "client"), Identity(run, callee, callee)
    with (
        tempfile.TemporaryDirectory(prefix="fogveil-audit-") as folder,
        WireTap(Path(folder) / "tap") as tap,
    ):
        mint, roster = Mint(run), Roster((), (caller.name,), "")
        split: Any = SimpleNamespace(
            run=run, mint=mint, own_broker=True, roster=roster, site=Site()
        )
        tap.attach(split)
        caller_keys, callee_keys = (
            mint.issue(identity, Path(folder) / identity.role) for identity in (caller, server)
        )
        dial = partial(tap.interpose, caller.name, callee)
        asyncio.run(talk(caller_keys, callee_keys, server, dial))
    [connection] = tap.log.connections
    ends = connection.caller_tls, connection.callee_tls
    return connection, Handshakes(*(end.said.shape(server.host) for end in ends))


def _settings(side: GrpcSide) -> dict[int, int]:
    return next(
        dict(read.frame.settings)
        for read in side.frames
        if isinstance(read.frame, SettingsFrame) and "ACK" not in read.frame.flags
    )


async def _talk_grpc(
    caller: Credentials, callee: Credentials, server: Identity, dial: Dial
) -> None:
    async def echo(requests: Any, _context: Any) -> Any:
        async for request in requests:
            yield request

    handler: Any = grpc.stream_stream_rpc_method_handler(echo)
    listening = aio.server(options=OPTIONS)
    service, _, method = METHOD[1:].partition("/")
    listening.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {method: handler}),)
    )
    port = listening.add_secure_port(f"{LOOPBACK}:0", callee.for_server())
    await listening.start()
    raw: Any = bytes
    options = [*OPTIONS, ("grpc.ssl_target_name_override", server.host)]
    address = dial(f"{LOOPBACK}:{port}")
    async with aio.secure_channel(address, caller.for_channel(), options=options) as channel:
        call = channel.stream_stream(METHOD, request_serializer=raw, response_deserializer=raw)()
        await call.write(b"hello")
        assert await call.read() == b"hello"
        await call.done_writing()
        assert await call.read() is aio.EOF
    await listening.stop(None)


async def _talk_tls(caller: Credentials, callee: Credentials, server: Identity, dial: Dial) -> None:
    over = asyncio.Event()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(1))
        await reader.read()
        writer.close()
        over.set()

    listening = await asyncio.start_server(echo, LOOPBACK, 0, ssl=server_context(callee))
    port = listening.sockets[0].getsockname()[1]
    address = Endpoint.parse(dial(f"{LOOPBACK}:{port}"))
    reader, writer = await asyncio.open_connection(
        address.host,
        address.port,
        ssl=client_context(server, caller),
        server_hostname=server.host,
    )
    writer.write(b"!")
    assert await reader.readexactly(1) == b"!"
    writer.close()
    await writer.wait_closed()
    await over.wait()
    listening.close()
