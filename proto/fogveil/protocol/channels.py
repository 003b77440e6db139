"""gRPC channels and servers as every participant uses them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import grpc
from grpc import aio

from fogveil.core.errors import InfrastructureError
from fogveil.protocol.grpc_acl import AccessInterceptor, claim
from fogveil.protocol.identity import Identity
from fogveil.protocol.recording import Recording
from fogveil.protocol.settings import Settings
from fogveil.protocol.simulated_host import simulated_host

PROTOCOL = 4
"""Version of the protocol; participants of different ones do not talk."""
WELCOME = (("welcome", "yes"),)
"""Initial metadata by which the clock admits a participant."""
HEARD = "heard"
"""Key of the metadata that say how many of a participant's messages of the episode the clock has
handled: one that was lost says so many once more."""
LARGEST_MESSAGE = 4 * 2**20
MOST_CALLS = 4096
"""Calls that a server answers at a time: more than a run has participants."""
HANDSHAKE_WITHIN = 20
"""Seconds."""

REFUSALS = frozenset(
    (
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNIMPLEMENTED,
    )
)
"""Status codes of a participant that refuses, as opposed to one that is gone."""

OPTIONS: list[tuple[str, int]] = [
    # A participant that stopped without closing its connections is noticed after some seconds.
    ("grpc.keepalive_time_ms", 2500),
    ("grpc.keepalive_timeout_ms", 4000),
    ("grpc.http2.ping_timeout_ms", 4000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    # A connection whose peer proves nothing is closed after this time.
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_WITHIN * 1000),
    # Otherwise two servers may share one port silently.
    ("grpc.so_reuseport", 0),
    ("grpc.enable_http_proxy", 0),
    # A lost participant ends the run: gRPC must not retry on its own.
    ("grpc.enable_retries", 0),
]


async def start_server(
    settings: Settings,
    address: str,
    recording: Recording | None,
    *register: Callable[[aio.Server], None],
) -> tuple[aio.Server, int]:
    """Start a server with the given services; return it and its port (port 0 takes a free one)."""
    if host := simulated_host.get():
        return host.serve(register)
    interceptors = []
    if settings.secure or recording:
        interceptors.append(
            AccessInterceptor(settings.run, secure=settings.secure, recording=recording)
        )
    server = aio.server(
        options=OPTIONS, interceptors=interceptors, maximum_concurrent_rpcs=MOST_CALLS
    )
    for register_service in register:
        register_service(server)
    credentials = settings.credentials
    try:
        if credentials:
            port = server.add_secure_port(address, credentials.for_server())
        else:
            port = server.add_insecure_port(address)
    except RuntimeError:
        port = 0
    if port == 0:
        raise InfrastructureError(
            f"cannot listen on {address}: the address is in use or not an address of this machine"
        )
    await server.start()
    if address.startswith("unix:"):
        _open_to_callers(address.removeprefix("unix:"))
    return server, port


def _open_to_callers(path: str) -> None:
    """Let everybody connect who reaches the socket's folder; they must then prove who they are."""
    Path(path).chmod(0o666)


def dial(
    settings: Settings, address: str, peer: Identity, recording: Recording | None = None
) -> aio.Channel:
    """Return a channel to a participant that must prove to be `peer`; it connects when used."""
    if host := simulated_host.get():
        simulated: aio.Channel = host.dial(address)
        return simulated
    credentials = settings.credentials
    if credentials:
        # The certificate names the participant, not the address it listens on.
        options = [*OPTIONS, ("grpc.ssl_target_name_override", peer.host)]
        channel = aio.secure_channel(address, credentials.for_channel(), options=options)
    else:
        channel = aio.insecure_channel(address, options=[*OPTIONS, claim(settings.name)])
    return recording.channel(channel, peer.name) if recording else channel
