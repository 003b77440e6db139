"""The message checks: what crossed is what the reference says, in content, number, order, size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from google.protobuf.message import DecodeError

from fogveil.broker.mqtt_packets import Publish
from fogveil.broker.topics import Topics
from fogveil.core.disclosure import Level
from fogveil.protocol.identity import AGENT
from fogveil.testbed.privacy.audit.evidence import Evidence
from fogveil.testbed.privacy.audit.findings import Finding, judge
from fogveil.testbed.privacy.audit.reference import WATCH_TOTAL
from fogveil.v1.total_pb2 import KeyAnnouncement, TotalServiceWatchResponse

SHOWN = 24
"""Bytes of a message that a fault shows."""


def check_messages(evidence: Evidence) -> Finding:
    """Compare every gRPC message that anybody received with the reference."""
    sent, expected = evidence.traffic.messages, evidence.reference.grpc
    masked = evidence.world.agent.disclosed is Level.TOTAL
    faults: list[str] = []
    number = size = 0
    for flow in sorted({*sent, *expected}):
        messages = sent.get(flow, [])
        sender, receiver, method = flow
        where = f"{sender} → {receiver} {method.rpartition('.')[2]}"
        number += len(messages)
        size += sum(len(message.payload) for message in messages)
        faults += [f"{where} #{at}: it is compressed" for at, m in enumerate(messages, 1) if m.flag]
        payloads = [message.payload for message in messages]
        if masked and method == WATCH_TOTAL and receiver == AGENT:
            windows = evidence.reference.counts.get(sender, [])
            faults += _share_faults(where, payloads, [len(counts) for counts in windows])
        else:
            faults += compare(where, payloads, expected.get(flow, []))
    for traffic in evidence.traffic.grpc:
        for side, stream, call in traffic.half_calls():
            if call.rest:
                faults.append(
                    f"{side.sender} → {side.receiver}: {len(call.rest)} bytes of stream {stream} "
                    "are no message"
                )
    decisions = evidence.reference.decisions
    text = (
        f"{number:,} gRPC messages ({size:,} bytes) between all participants at {decisions:,} "
        f"decisions in {len(evidence.plan.episodes)} episodes are, byte for byte and in their "
        "order, those that an independent computation gives"
    )
    if masked:
        text += " (shares of totals: their number, order and size)"
    return judge("messages: everybody is sent what the reference says", text, faults, number)


def check_deliveries(evidence: Evidence) -> Finding:
    """Compare every MQTT message, as published and as delivered, with the reference."""
    traffic, reference = evidence.traffic, evidence.reference
    topics = Topics(evidence.wire.run)
    faults: list[str] = []
    keys = {topics.keys(name) for name in evidence.providers}
    if evidence.world.agent.disclosed is not Level.TOTAL:
        keys = set()
    for key in sorted({*traffic.published, *reference.published}):
        sender, topic = key
        if topic in keys and topics.sender(topic) == sender:
            continue
        payloads = _payloads(traffic.published.get(key, []))
        where = f"{sender} publishes {topic}"
        faults += compare(where, payloads, reference.published.get(key, []))
    expected = {
        (receiver, topic): messages
        for (_, topic), messages in reference.published.items()
        for receiver in receivers_of(evidence, topic)
    }
    for key in sorted({*traffic.delivered, *expected}):
        receiver, topic = key
        if topic in keys and receiver in evidence.providers:
            continue
        payloads = _payloads(traffic.delivered.get(key, []))
        faults += compare(f"{receiver} is delivered {topic}", payloads, expected.get(key, []))
    for name in evidence.providers if keys else ():
        faults += _key_faults(evidence, name, topics.keys(name))
    for kind, found in (("published", traffic.published), ("delivered", traffic.delivered)):
        faults += _flag_faults(kind, found, keys)
    number = sum(map(len, traffic.published.values())) + sum(map(len, traffic.delivered.values()))
    text = (
        f"{number:,} MQTT messages, published and delivered: topics, payloads, number and order "
        "are those of the reference; none is retained or repeated but keys"
    )
    return judge("deliveries: MQTT carries what the reference says", text, faults, number)


def receivers_of(evidence: Evidence, topic: str) -> tuple[str, ...]:
    """Return who is promised to receive a topic, by the docs' table."""
    roster = evidence.roster
    topics = Topics(evidence.wire.run)
    if topic in {topics.workload(name) for name in roster.sources}:
        return (AGENT,)
    if topic in {topics.aggregate(name) for name in roster.fogs}:
        return (roster.cloud,)
    for name in roster.fogs:
        if topic == topics.placement(name):
            return (name,)
    for owner in roster.sources:
        if topic in {topics.feedback(owner, name) for name in evidence.providers}:
            return (owner,)
    return ()


def check_hashes(evidence: Evidence) -> Finding:
    """Compare the run hash of the joined records with the embedded engine's."""
    expected = evidence.reference.hashes
    faults = [
        f"episode {episode}: {found[:16]}…, expected {wanted[:16]}…"
        for episode, (found, wanted) in enumerate(zip(evidence.hashes, expected, strict=False))
        if found != wanted
    ]
    faults += evidence.disagreements
    if expected and len(evidence.hashes) + len(evidence.disagreements) != len(expected):
        faults.append(f"{len(evidence.hashes)} episodes were recorded, expected {len(expected)}")
    text = f"the run hashes of {len(expected)} episodes are the embedded engine's"
    nothing = "the decisions of a policy of yours cannot be computed here"
    return judge("records: the run is the reference's", text, faults, len(expected), nothing)


def compare(where: str, found: Sequence[bytes], expected: Sequence[bytes]) -> Iterator[str]:
    """Yield the first difference of two sequences of messages, and that of their lengths."""
    for at, (one, other) in enumerate(zip(found, expected, strict=False), 1):
        if one != other:
            yield f"{where} #{at}: {_short(one)}, expected {_short(other)}"
            break
    if len(found) > len(expected):
        first = _short(found[len(expected)])
        yield f"{where}: {len(found) - len(expected)} more than expected, first {first}"
    elif len(found) < len(expected):
        yield f"{where}: {len(expected) - len(found)} of {len(expected)} are missing"


def _short(payload: bytes) -> str:
    more = "…" if len(payload) > SHOWN else ""
    return f"{payload[:SHOWN].hex() or 'nothing'}{more} ({len(payload)} bytes)"


def _payloads(packets: Sequence[Publish]) -> list[bytes]:
    return [packet.payload for packet in packets]


def _share_faults(where: str, payloads: list[bytes], sizes: list[int]) -> Iterator[str]:
    """Yield how messages with shares differ from one message of so many shares per window."""
    found = []
    for at, payload in enumerate(payloads, 1):
        message = TotalServiceWatchResponse()
        try:
            message.ParseFromString(payload)
        except DecodeError:
            yield f"{where} #{at}: it is no message of shares"
            continue
        canonical = TotalServiceWatchResponse(shares=message.shares)
        if canonical.SerializeToString() != payload:
            yield f"{where} #{at}: {_short(payload)} holds more than shares"
        found.append(len(message.shares))
    if found != sizes:
        yield (
            f"{where}: {len(found)} messages of {sum(found)} shares, expected {len(sizes)} of "
            f"{sum(sizes)}"
        )


def _key_faults(evidence: Evidence, name: str, topic: str) -> Iterator[str]:
    """Yield what is wrong with a member's announcement, apart from its signature."""
    published = _payloads(evidence.traffic.published.get((name, topic), []))
    if len(published) != 1:
        yield f"{name} announced {len(published)} keys, expected one"
    for payload in published:
        message = KeyAnnouncement()
        try:
            message.ParseFromString(payload)
        except DecodeError:
            yield f"{name} announced what is no key"
            continue
        expected = KeyAnnouncement(
            run=evidence.wire.run,
            name=name,
            epoch=0,
            public_key=message.public_key,
            membership=evidence.providers,
            level=Level.TOTAL.word,
            certificate=evidence.certificates[name],
            signature=message.signature,
        )
        if expected.SerializeToString() != payload:
            yield f"{name} announced a key with other facts than its own"
    for receiver in evidence.providers:
        delivered = _payloads(evidence.traffic.delivered.get((receiver, topic), []))
        if set(delivered) != set(published):
            yield f"{receiver} was delivered another key of {name} than it announced"


def _flag_faults(
    kind: str, found: dict[tuple[str, str], list[Publish]], keys: set[str]
) -> Iterator[str]:
    for (name, topic), packets in found.items():
        for packet in packets:
            retained = packet.retain and topic not in keys
            if retained or packet.qos or packet.duplicate or packet.packet_id:
                yield (
                    f"{topic} was {kind} ({name}) with QoS {packet.qos}, retain {packet.retain:d}, "
                    f"duplicate {packet.duplicate:d}"
                )
