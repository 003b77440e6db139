"""The MQTT channel check: every packet that is no message, and how messages are packed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fogveil.broker.client import KEEPALIVE_FACTOR, PROBE_TOPIC
from fogveil.broker.mqtt_packets import (
    Acknowledgement,
    Connack,
    Connect,
    EmptyPacket,
    PacketType,
    Publish,
    ReturnCode,
    Suback,
    Subscribe,
    Unsubscribe,
)
from fogveil.broker.topics import Topics
from fogveil.core.disclosure import Level
from fogveil.protocol.identity import AGENT
from fogveil.testbed.privacy.audit.evidence import Evidence
from fogveil.testbed.privacy.audit.findings import Finding, judge
from fogveil.testbed.privacy.audit.traffic import MqttSide, MqttTraffic

KEEPALIVE = 4 * KEEPALIVE_FACTOR
"""Seconds: the default of the participants' client."""
TOKEN = "[0-9a-f]{16}"  # noqa: S105 (a pattern)
"""The random end of a client id."""


def check_packets(evidence: Evidence) -> Finding:
    """Check every MQTT packet: its type, fields, flags and encoding."""
    faults: list[str] = []
    number = 0
    for traffic in evidence.traffic.mqtt:
        for side, found in (
            (traffic.up, _client_faults(evidence, traffic.up)),
            (traffic.down, _broker_faults(traffic)),
        ):
            number += len(side.packets)
            where = f"{side.sender} → {side.receiver}"
            faults += [f"{where}: {fault}" for fault in (*_encoding_faults(side), *found)]
    text = (
        f"{number:,} MQTT packets: only those that the protocol needs, in canonical encoding; "
        "client ids, keep-alive, subscriptions, packet ids and return codes are the expected ones"
    )
    return judge("packets: MQTT carries nothing but its messages", text, faults, number)


def subscriptions(evidence: Evidence, name: str) -> list[str]:
    """Return the filters that a participant subscribes to, by the docs' table."""
    topics, roster = Topics(evidence.wire.run), evidence.roster
    if name == AGENT:
        return [topics.all_workloads]
    if name in roster.sources:
        return [topics.all_feedback(name)]
    filters = [topics.all_aggregates if name == roster.cloud else topics.placement(name)]
    if evidence.world.agent.disclosed is Level.TOTAL:
        filters.append(topics.all_keys)
    return filters


def _encoding_faults(side: MqttSide) -> Iterator[str]:
    if side.fault:
        yield side.fault
    for read in side.packets:
        if read.fault:
            yield f"packet {read.raw_header:02x}{read.body[:24].hex()}: {read.fault}"
        elif not read.is_canonical:
            yield f"packet {read.raw_header:02x}{read.body[:24].hex()} is not canonical"


def _client_faults(evidence: Evidence, side: MqttSide) -> Iterator[str]:
    name, packets = side.sender, [read.packet for read in side.packets]
    if not packets or not isinstance(packets[0], Connect):
        yield "it does not begin with CONNECT"
        return
    connect = packets[0]
    client_id = f"{re.escape(evidence.wire.run)}-{re.escape(name)}-{TOKEN}"
    if not re.fullmatch(client_id, connect.client_id):
        yield f"its client id is {connect.client_id!r}"
    if connect != Connect(connect.client_id, KEEPALIVE):
        yield f"its CONNECT has other fields than expected: {connect}"
    subscribed: list[str] = []
    numbered = 0
    """Packets so far that take a number from the client's counter."""
    for at, packet in enumerate(packets[1:], 2):
        match packet:
            case Publish():
                numbered += 1
            case Subscribe(packet_id, filters):
                numbered += 1
                subscribed += [topic for topic, _ in filters]
                if packet_id != numbered or any(qos for _, qos in filters):
                    yield f"SUBSCRIBE {packet}, expected packet id {numbered} and QoS 0"
            case Unsubscribe(packet_id, filters):
                numbered += 1
                if packet_id != numbered or filters != (PROBE_TOPIC,):
                    yield f"UNSUBSCRIBE {packet}, expected packet id {numbered}"
            case EmptyPacket(PacketType.PINGREQ):
                pass
            case EmptyPacket(PacketType.DISCONNECT) if at == len(packets):
                pass
            case None:
                pass  # it was named above
            case _:
                yield f"an unexpected packet: {packet}"
    if packets[-1] != EmptyPacket(PacketType.DISCONNECT):
        yield "it does not end with DISCONNECT"
    expected = subscriptions(evidence, name)
    if subscribed != expected:
        yield f"it subscribes to {subscribed}, expected {expected}"


def _broker_faults(traffic: MqttTraffic) -> Iterator[str]:
    asked = [read.packet for read in traffic.up.packets]
    subscribed = [p for p in asked if isinstance(p, Subscribe)]
    probes = [p.packet_id for p in asked if isinstance(p, Unsubscribe)]
    packets = [read.packet for read in traffic.down.packets]
    if packets[:1] != [Connack(ReturnCode.ACCEPTED)]:
        yield f"it does not begin with an accepting CONNACK: {packets[:1]}"
    answered: list[int] = []
    pings = asked.count(EmptyPacket(PacketType.PINGREQ))
    for packet in packets[1:]:
        match packet:
            case Publish() | None:
                pass
            case Suback(packet_id, codes):
                request = next((s for s in subscribed if s.packet_id == packet_id), None)
                if request is None or codes != bytes(len(request.filters)):
                    yield f"SUBACK {packet} answers no subscription as expected"
            case Acknowledgement(PacketType.UNSUBACK, packet_id):
                answered.append(packet_id)
            case EmptyPacket(PacketType.PINGRESP):
                pings -= 1
            case _:
                yield f"an unexpected packet: {packet}"
    if answered != probes[: len(answered)] or pings < 0:
        yield "UNSUBACK or PINGRESP that answer nothing"
