"""The health check of a broker: whether it accepts an MQTT connection."""

from __future__ import annotations

import os
import socket
import ssl

from fogveil.broker import tls
from fogveil.broker.address import Address
from fogveil.broker.mqtt_packets import (
    Connack,
    Connect,
    EmptyPacket,
    Framer,
    Packet,
    PacketType,
    ProtocolError,
    ReturnCode,
    decode,
    encode,
)
from fogveil.core.errors import InfrastructureError

TIMEOUT = 5.0


def check_reachable(
    address: Address, context: ssl.SSLContext | None = None, timeout: float = TIMEOUT
) -> None:
    """Connect and disconnect; raise InfrastructureError with the reason if that fails."""
    try:
        with _open(address, context, timeout) as connection:
            code = _connect(connection, address)
    except TimeoutError as error:
        raise _unreachable(address, f"no answer within {timeout:g} s") from error
    except ssl.SSLError as error:
        raise _unreachable(address, tls.describe(error)) from error
    except OSError as error:
        raise _unreachable(address, error.strerror or str(error)) from error
    except ProtocolError as error:
        raise _unreachable(address, "the server there is not an MQTT broker") from error
    if code != ReturnCode.ACCEPTED:
        names = {each.value: each.name for each in ReturnCode}
        reason = names.get(code, str(code)).replace("_", " ").lower()
        raise InfrastructureError(f"the broker {address} refuses the connection: {reason}")


def _open(address: Address, context: ssl.SSLContext | None, timeout: float) -> socket.socket:
    connection = connect(address, timeout)
    if context is None:
        return connection
    return context.wrap_socket(connection, server_hostname=address.host)


def connect(address: Address, timeout: float) -> socket.socket:
    """Return a connection to a broker, by TCP or through its Unix socket."""
    if address.socket is None:
        return socket.create_connection((address.host, address.port), timeout=timeout)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    try:
        connection.connect(address.socket)
    except OSError:
        connection.close()
        raise
    return connection


def _connect(connection: socket.socket, address: Address) -> int:
    password = None if address.password is None else address.password.encode()
    client_id = f"fogveil-check-{os.urandom(8).hex()}"
    connection.sendall(encode(Connect(client_id, 60, user=address.user, password=password)))
    packet = _receive(connection)
    if not isinstance(packet, Connack):
        raise ProtocolError("the first packet is not a CONNACK")
    connection.sendall(encode(EmptyPacket(PacketType.DISCONNECT)))
    return packet.code


def _receive(connection: socket.socket) -> Packet:
    framer = Framer(limit=1024)
    while data := connection.recv(1024):
        for header, body in framer.feed(data):
            return decode(header, body)
    raise ProtocolError("the connection was closed")


def _unreachable(address: Address, reason: str) -> InfrastructureError:
    return InfrastructureError(f"the broker {address} cannot be reached: {reason}")
