"""Knocking at a broker's door, to see whether it takes an MQTT connection."""

from __future__ import annotations

import os
import socket
import ssl

from broker import tls
from broker.address import Address
from broker.packets import (
    Answer,
    Connack,
    Connect,
    Frames,
    Kind,
    Packet,
    ProtocolError,
    Signal,
    decode,
    encode,
)
from fogveil.errors import SurroundingsError

ANSWER_WITHIN = 5.0


def knock(
    address: Address, secure: ssl.SSLContext | None = None, patience: float = ANSWER_WITHIN
) -> None:
    """Connect and leave again; raise SurroundingsError, in a sentence, where that fails."""
    try:
        with _connect(address, secure, patience) as connection:
            answer = _ask(connection, address)
    except TimeoutError as error:
        raise _unreachable(address, f"no answer within {patience:g} s") from error
    except ssl.SSLError as error:
        raise _unreachable(address, tls.failure(error)) from error
    except OSError as error:
        raise _unreachable(address, error.strerror or str(error)) from error
    except ProtocolError as error:
        raise _unreachable(address, "what answers there is no MQTT broker") from error
    if answer != Answer.ACCEPTED:
        known = {each.value: each.name for each in Answer}
        reason = known.get(answer, str(answer)).replace("_", " ").lower()
        raise SurroundingsError(f"the broker {address} refuses the connection: {reason}")


def _connect(address: Address, secure: ssl.SSLContext | None, patience: float) -> socket.socket:
    plain = socket.create_connection((address.host, address.port), timeout=patience)
    return plain if secure is None else secure.wrap_socket(plain, server_hostname=address.host)


def _ask(connection: socket.socket, address: Address) -> int:
    password = None if address.password is None else address.password.encode()
    name = f"fogveil-knock-{os.urandom(8).hex()}"
    connection.sendall(encode(Connect(name, 60, user=address.user, password=password)))
    packet = _first_packet(connection)
    if not isinstance(packet, Connack):
        raise ProtocolError("the first packet is no CONNACK")
    connection.sendall(encode(Signal(Kind.DISCONNECT)))
    return packet.answer


def _first_packet(connection: socket.socket) -> Packet:
    frames = Frames(limit=1024)
    while data := connection.recv(1024):
        for head, body in frames.feed(data):
            return decode(head, body)
    raise ProtocolError("the connection was closed")


def _unreachable(address: Address, reason: str) -> SurroundingsError:
    return SurroundingsError(f"the broker {address} cannot be reached: {reason}")
