"""The canonical form of everything that a wire tap recorded."""

from __future__ import annotations

from collections import Counter, defaultdict

from fogveil.broker.topics import Topics
from fogveil.protocol.identity import AGENT, BROKER, ROLES, Identity
from fogveil.testbed.privacy.audit.twins import http2_form, mqtt_form
from fogveil.testbed.privacy.audit.twins.form import Channel, Form
from fogveil.testbed.privacy.audit.twins.message_form import (
    SHARES,
    MessageForms,
    shares_in,
    sums_of_shares,
)
from fogveil.testbed.privacy.audit.wire_log import Connection, Handshake, WireLog

TOTALS = Channel("all members", AGENT, "sums of shares")


def wire_form(
    log: WireLog, cloud: str, *, same_chance: bool = True, public_sizes: bool = True
) -> Form:
    """Return the canonical form of a run's traffic.

    `same_chance` says that the runs to compare forward the same jobs, `public_sizes` that the sizes
    of what providers publish follow from public facts.
    """
    names = {name for c in log.connections for name in (c.caller, c.callee)}
    hosts = {
        Identity(log.run, role, n).host: f"host of {role} {n}" for n in names for role in ROLES
    }
    form = Form(log.run, hosts)
    messages = MessageForms(form, cloud, same_chance=same_chance, public_sizes=public_sizes)
    shares: dict[str, list[int]] = defaultdict(list)
    numbers: dict[tuple[str, str], int] = defaultdict(int)
    for connection in log.connections:
        ends = connection.caller, connection.callee
        numbers[ends] += 1
        _add_connection(form, connection, messages, shares, numbers[ends])
    for (caller, callee), number in Counter(log.accepted).items():
        form.content[Channel(caller, callee, "connections")] = [f"opened {number} times"]
    if shares:
        form.content[TOTALS] = sums_of_shares(shares.values())
    return form


def _add_connection(
    form: Form,
    connection: Connection,
    messages: MessageForms,
    shares: dict[str, list[int]],
    number: int,
) -> None:
    caller, callee = connection.caller, connection.callee
    carrier = "MQTT" if connection.plane == "mqtt" else f"gRPC ({connection.plane})"
    name = carrier if number == 1 else f"{carrier}, connection {number}"
    up, down = Channel(caller, callee, name), Channel(callee, caller, name)
    for channel, handshake in ((up, connection.caller_tls), (down, connection.callee_tls)):
        form.content[channel] += _tls(handshake, connection.server_name)
    form.content[up].append(form.blank(f"asks for {connection.server_name} {connection.failure}"))
    for channel, stream in ((up, connection.up), (down, connection.down)):
        form.artefacts[channel]["portions"] += len(stream.chunks)
    sent, returned = bytes(connection.up.content), bytes(connection.down.content)
    if connection.plane == "mqtt":
        assert callee == BROKER
        mqtt_form.add_direction(form, up, sent, messages.mqtt)
        sender = Topics(form.run).sender
        mqtt_form.add_direction(form, down, returned, messages.mqtt, sender)
        return

    def message_form(path: str, request: bool, payload: bytes) -> str:  # noqa: FBT001
        if path == SHARES and not request:
            shares[callee] += shares_in(payload)
        return messages.grpc(path, request, payload)

    http2_form.add_connection(form, up, down, sent, returned, message_form)


def _tls(handshake: Handshake, host: str) -> list[str]:
    parts = handshake.version, handshake.cipher, handshake.alpn, len(handshake.chain)
    said = handshake.said
    return [f"TLS {parts}, padding of {said.padding}", *said.shape(host)]
