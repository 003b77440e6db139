"""gRPC channels and servers as every participant uses them."""

from __future__ import annotations

from collections.abc import Callable

import grpc
from grpc import aio

from fogveil.access import Gate, claim
from fogveil.errors import SurroundingsError
from fogveil.identity import Identity
from fogveil.recording import Recording
from fogveil.settings import Settings

PROTOCOL = 1
"""Version of the protocol; participants of different ones do not talk."""
WELCOME = (("welcome", "yes"),)
"""The first that a participant hears from the clock, if it is not refused."""
LARGEST_MESSAGE = 4 * 2**20

REFUSALS = frozenset(
    (
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNIMPLEMENTED,
    )
)
"""Of a participant that said no, rather than being gone."""

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
    # Otherwise two servers share one port without a word.
    ("grpc.so_reuseport", 0),
    ("grpc.enable_http_proxy", 0),
    # A lost participant ends the run: nothing is tried again behind our back.
    ("grpc.enable_retries", 0),
]


async def serve(
    settings: Settings,
    address: str,
    recording: Recording | None,
    *register: Callable[[aio.Server], None],
) -> tuple[aio.Server, int]:
    """Start a server with the given services and return it with its port; 0 takes a free one."""
    interceptors = []
    if settings.secure or recording:
        interceptors.append(Gate(settings.run, secure=settings.secure, recording=recording))
    server = aio.server(options=OPTIONS, interceptors=interceptors)
    for services in register:
        services(server)
    credentials = settings.credentials
    try:
        if credentials:
            port = server.add_secure_port(address, credentials.for_server())
        else:
            port = server.add_insecure_port(address)
    except RuntimeError:
        port = 0
    if port == 0:
        raise SurroundingsError(f"cannot listen on {address}: the address is taken or not ours")
    await server.start()
    return server, port


def dial(
    settings: Settings, address: str, peer: Identity, recording: Recording | None = None
) -> aio.Channel:
    """Return a channel to a participant, who must prove to be `peer`; it connects when used."""
    credentials = settings.credentials
    if credentials:
        # The certificate is the participant's, wherever it listens.
        options = [*OPTIONS, ("grpc.ssl_target_name_override", peer.host)]
        channel = aio.secure_channel(address, credentials.for_channel(), options=options)
    else:
        channel = aio.insecure_channel(address, options=[*OPTIONS, claim(settings.name)])
    return recording.channel(channel, peer.name) if recording else channel
