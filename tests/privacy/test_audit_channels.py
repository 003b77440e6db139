"""The audit's checks of a tapped run: an honest run passes all, a changed one fails the right one.

The first version read the participants' own recordings, tried one provider, and judged only what
the agent was sent: it saw no HTTP/2 frames, certificates, clock, broker or host.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import hpack
import pytest
from audit_support import POLICIES, Wire, assert_passes, broken, data, tapped
from hyperframe.frame import (
    DataFrame,
    ExtensionFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from fogveil.broker.mqtt_packets import Connect, Publish, Subscribe, encode
from fogveil.core.disclosure import Level
from fogveil.protocol.identity import AGENT, BROKER, CLOCK
from fogveil.testbed.privacy.audit.channels import CHANNELS, judge_evidence, not_examined
from fogveil.testbed.privacy.audit.findings import Verdict
from fogveil.testbed.privacy.audit.reference import WATCH_TOTAL
from fogveil.testbed.privacy.audit.share_check import check_shares
from fogveil.testbed.privacy.audit.traffic import MqttTraffic
from fogveil.v1.boundary_pb2 import WatchResponse
from fogveil.v1.total_pb2 import TotalServiceWatchResponse


def test_an_honest_run_passes_every_check(honest, honest_total):
    for evidence in (honest, honest_total):
        findings = judge_evidence(evidence)
        assert {f.verdict for f in findings} <= {Verdict.PASS, Verdict.NOT_SHOWN}, findings
        shown = [f.promise.partition(":")[0] for f in findings if f.verdict is Verdict.PASS]
        assert {"messages", "deliveries", "calls", "frames", "packets", "secrets"} <= {*shown}
    assert honest.reference.decisions > 60


@pytest.mark.slow
@pytest.mark.parametrize("broker", ["builtin", "mosquitto"])
@pytest.mark.parametrize("level", POLICIES)
def test_the_reference_is_every_honest_run(tmp_path, level, broker):
    assert_passes(tapped(tmp_path, level, broker, source_processes=2, draws=(0, 3)))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["veil", "p2c", "round-robin"])
def test_the_reference_holds_for_policies_that_decide_ahead_or_look(tmp_path, policy):
    assert_passes(tapped(tmp_path, "count", "builtin", policy=policy))


def test_every_check_belongs_to_a_channel(honest_total):
    known = {check for channel in CHANNELS for check in channel.checks}
    findings = judge_evidence(honest_total)
    assert {finding.promise.partition(":")[0] for finding in findings} <= known
    unseen = [line.partition(":")[0] for line in not_examined(findings)]
    assert "random values" in unseen
    assert "gRPC methods" in unseen  # no testbed was attacked here
    assert "gRPC messages" not in unseen


# --- changing a recorded run ---------------------------------------------------------------------


MESSAGES = {
    "a wrong count": lambda sent: [data(WatchResponse(counts=[99]).SerializeToString())],
    "one more message": lambda sent: [sent, data(b"")],
    "a message twice": lambda sent: [sent, sent],
    "a missing message": lambda sent: [],
    "an unknown field": lambda sent: [data(sent.data[5:] + b"\x10\x05")],
    "an overlong number": lambda sent: [data(b"\x0a\x02\x80\x00")],
    "a compressed message": lambda sent: [data(sent.data[5:], flag=1)],
}


@pytest.mark.parametrize("change", MESSAGES)
@pytest.mark.parametrize("sender", ["fog-1", "fog-3"])
def test_changed_messages_are_noticed_of_every_provider(honest, sender, change):
    wire = Wire(honest, sender, AGENT)
    at = wire.places(DataFrame)[10]
    sent = wire.frames[at][0]
    assert "messages" in wire.put(at, *MESSAGES[change](sent))


def test_the_order_and_the_second_episode_matter(honest):
    wire = Wire(honest, "fog-2", AGENT)
    places = wire.places(DataFrame)
    raws = [wire.frames[at][1] for at in places]
    first_change = next(at for at, (a, b) in enumerate(pairwise(raws)) if a != b)
    one, other = places[first_change], places[first_change + 1]
    first, second = wire.frames[one][1], wire.frames[other][1]
    wire.frames[one][1] = second
    assert wire.put(other, first) == {"messages"}
    wire = Wire(honest, "fog-2", AGENT)
    assert wire.put(wire.places(DataFrame)[-1], data(b"\x0a\x01\x55")) == {"messages"}


@pytest.mark.parametrize("receiver", [CLOCK])
def test_what_the_clock_is_told_is_judged_too(honest, receiver):
    """The first version looked at what the agent received, and at nobody else's."""
    wire = Wire(honest, "fog-1", receiver)
    at = wire.places(DataFrame)[-1]
    assert "messages" in wire.put(at, data(bytes.fromhex("320308c801")))


HEADERS = {
    "metadata": [("x-load", "7")],
    "a value": [("grpc-accept-encoding", "identity")],
    "twice": [("content-type", "application/grpc")],
}


@pytest.mark.parametrize("change", HEADERS)
def test_headers_are_judged_with_their_values(honest, change):
    wire = Wire(honest, "fog-2", AGENT)
    at, *_ = wire.places(HeadersFrame)  # trailers follow if the provider leaves first
    headers = hpack.Decoder().decode(wire.frames[at][0].data)
    block = hpack.Encoder().encode([*headers, *HEADERS[change]])
    assert "calls" in wire.put(at, HeadersFrame(1, block, flags=["END_HEADERS"]))


def test_trailers_and_streams_are_judged(honest):
    wire = Wire(honest, "fog-2", AGENT)
    block = hpack.Encoder().encode([("grpc-status", "0"), ("grpc-message", "IPT 377")])
    trailers = HeadersFrame(1, block, flags=["END_HEADERS", "END_STREAM"])
    assert "calls" in wire.add(trailers)
    wire = Wire(honest, "fog-2", AGENT)
    assert "calls" in wire.add(data(b"\x0a\x01\x05", stream=3))


FRAMES = {
    "padding": DataFrame(1, b"", pad_length=9, flags=["PADDED"]),
    "a ping that was not asked for": PingFrame(0, b"377918.0", flags=["ACK"]),
    "a large window": WindowUpdateFrame(1, window_increment=377_918),
    "a window of no stream": WindowUpdateFrame(9, window_increment=1),
    "more settings": SettingsFrame(0, {4: 377_918}),
    "debug data": GoAwayFrame(0, 1, 0, b"ipt=377918"),
    "an error code": RstStreamFrame(1, error_code=11),
    "a priority": PriorityFrame(1, depends_on=0, stream_weight=77),
    "an unknown frame": ExtensionFrame(0xEE, 0, body=b"377918"),
    "an empty frame": DataFrame(1, b""),
    "half a frame": b"\0\0\xff\0\0",
}


@pytest.mark.parametrize("change", FRAMES)
@pytest.mark.parametrize("receiver", [AGENT, CLOCK])
def test_frames_carry_nothing_of_their_own(honest, change, receiver):
    wire = Wire(honest, "fog-3", receiver)
    if change == "half a frame":
        wire.stream.content.extend(FRAMES[change])
        assert broken(wire.evidence) == {"frames"}
        return
    assert "frames" in wire.add(FRAMES[change])


def test_reserved_bits_and_settings_are_seen(honest):
    wire = Wire(honest, "fog-3", AGENT)
    at = wire.places(DataFrame)[3]
    raw = bytearray(wire.frames[at][1])
    raw[5] |= 0x80  # the reserved bit of the stream's number
    assert wire.put(at, bytes(raw)) == {"frames"}
    wire = Wire(honest, "fog-3", AGENT)
    at = wire.places(SettingsFrame)[0]
    changed = wire.frames[at][1].replace((4194304).to_bytes(4, "big"), (4194305).to_bytes(4, "big"))
    assert wire.put(at, changed) == {"frames"}


def test_connections_and_certificates_are_judged(honest):
    evidence = honest.copy()
    [connection] = evidence.wire.between("fog-1", CLOCK)
    evidence.wire.connections.append(replace(connection))
    assert "connections" in broken(evidence)
    evidence = honest.copy()
    [connection] = evidence.wire.between(AGENT, "fog-2")
    leaf = bytearray(connection.callee_tls.chain[0])
    leaf[20] ^= 1  # in the serial number
    connection.callee_tls.chain[0] = bytes(leaf)
    assert broken(evidence) == {"certificates"}
    evidence = honest.copy()
    [connection] = evidence.wire.between(AGENT, "fog-2")
    connection.callee_tls.chain.append(connection.callee_tls.chain[0])
    assert broken(evidence) == {"certificates"}
    evidence = honest.copy()
    evidence.wire.between("fog-1", BROKER)[0].server_name = "ipt-377918.fogveil"
    assert broken(evidence) == {"certificates"}


# --- MQTT ----------------------------------------------------------------------------------------


def with_packets(evidence, name, change, direction="up"):
    """Change the packets of one direction of a participant's MQTT connection."""
    evidence = evidence.copy()
    [connection] = evidence.wire.between(name, BROKER)
    side = getattr(MqttTraffic(connection), direction)
    packets = change([read.packet for read in side.packets])
    content = b"".join(p if isinstance(p, bytes) else encode(p) for p in packets)
    getattr(connection, direction).content[:] = content
    return broken(evidence)


def change_first(kind, **values):
    def change(packets):
        at = next(at for at, packet in enumerate(packets) if isinstance(packet, kind))
        return [*packets[:at], packets[at]._replace(**values), *packets[at + 1 :]]

    return change


def test_an_unchanged_copy_passes(honest):
    assert not with_packets(honest, "fog-1", list)
    assert not with_packets(honest, "sources", list, "down")


PACKETS = {
    "client id": (change_first(Connect, client_id="fog-1-377918"), "packets"),
    "keep-alive": (change_first(Connect, keepalive=377), "packets"),
    "user": (change_first(Connect, user="377918"), "packets"),
    "will": (change_first(Connect, will=Publish("fogveil/x", b"377918")), "packets"),
    "session": (change_first(Connect, clean=False), "packets"),
    "filter": (change_first(Subscribe, filters=(("#", 0),)), "packets"),
    "packet id": (change_first(Subscribe, packet_id=377), "packets"),
    "QoS": (change_first(Publish, qos=1, packet_id=9), "deliveries"),
    "retained": (change_first(Publish, retain=True), "deliveries"),
    "duplicate": (change_first(Publish, duplicate=True), "deliveries"),
    "payload": (change_first(Publish, payload=b"\x08\x01"), "deliveries"),
    "topic": (change_first(Publish, topic="fogveil/other"), "deliveries"),
    "one more": (lambda packets: [*packets[:-1], Publish("a/b", b""), packets[-1]], "deliveries"),
    "less": (
        lambda packets: [p for p in packets if not isinstance(p, Publish)],
        "deliveries",
    ),
    "a long length": (lambda packets: [*packets[:-1], b"\xc0\x80\x00", packets[-1]], "packets"),
    "half a packet": (lambda packets: [*packets, b"\x30\x09ab"], "packets"),
}


@pytest.mark.parametrize("change", PACKETS)
@pytest.mark.parametrize("name", ["fog-2", "cloud"])
def test_packets_to_the_broker_are_judged(honest, name, change):
    """The first version never looked at what the broker and the other participants received."""
    mutate, check = PACKETS[change]
    assert check in with_packets(honest, name, mutate)


def test_what_the_broker_delivers_is_judged(honest):
    mutate = change_first(Publish, payload=b"\x08\x01")
    assert with_packets(honest, "sources", mutate, "down") == {"deliveries"}
    extra = [Publish("fogveil/v1/x/placement/fog-1", b"")]
    assert with_packets(honest, "fog-3", lambda packets: packets + extra, "down") == {"deliveries"}


# --- records, shares -----------------------------------------------------------------------------


def test_the_run_hash_is_compared(honest):
    evidence = honest.copy()
    evidence.hashes[1] = "0" * 64
    assert broken(evidence) == {"records"}


def with_shares(evidence, change):
    """Replace the shares that the agent received; return what the check of shares says."""
    evidence = evidence.copy()
    names = evidence.providers
    columns = {}
    for name in names:
        messages = evidence.traffic.messages[name, AGENT, WATCH_TOTAL]
        columns[name] = [
            share
            for message in messages
            for share in TotalServiceWatchResponse.FromString(message.payload).shares
        ]
    counts = {name: [c for w in evidence.reference.counts[name] for c in w] for name in names}
    change(columns, counts)
    for name in names:
        payloads = [TotalServiceWatchResponse(shares=[s]) for s in columns[name]]
        key = name, AGENT, WATCH_TOTAL
        kind = type(evidence.traffic.messages[key][0])
        evidence.traffic.messages[key] = [kind(0, p.SerializeToString()) for p in payloads]
    return check_shares(evidence)


def test_shares_are_judged_by_their_sums_and_their_masks(honest_total):
    assert honest_total.world.agent.disclosed is Level.TOTAL

    def bare(columns, counts):
        rest = [name for name in columns if name != "fog-1"]
        for at, count in enumerate(counts["fog-1"]):
            moved = columns["fog-1"][at] - count
            columns["fog-1"][at] = count
            columns[rest[0]][at] = (columns[rest[0]][at] + moved) % 2**32

    def wrong_sum(columns, _counts):
        columns["fog-2"][7] = (columns["fog-2"][7] + 1) % 2**32

    def one_mask(columns, counts):
        mask = columns["fog-1"][0]
        for at, count in enumerate(counts["fog-1"]):
            moved = columns["fog-1"][at] - (mask + count)
            columns["fog-1"][at] = (mask + count) % 2**32
            columns["fog-2"][at] = (columns["fog-2"][at] + moved) % 2**32

    def pairs_alone(columns, counts):
        """fog-1 and fog-2 mask against each other only: their sum is bare."""
        for at, (one, two) in enumerate(zip(counts["fog-1"], counts["fog-2"], strict=True)):
            moved = columns["fog-1"][at] + columns["fog-2"][at] - one - two
            columns["fog-2"][at] = (one + two - columns["fog-1"][at]) % 2**32
            columns["fog-3"][at] = (columns["fog-3"][at] + moved) % 2**32

    assert with_shares(honest_total, lambda *_: None).verdict is Verdict.PASS
    for change, words in (
        (bare, "bare counts"),
        (wrong_sum, "by the reference"),
        (one_mask, "lie within"),
        (pairs_alone, "are small"),
    ):
        finding = with_shares(honest_total, change)
        assert finding.verdict is Verdict.FAIL, change
        assert any(words in fault for fault in finding.details), finding.details


def test_keys_are_judged(honest_total):
    topic_of = f"fogveil/v1/{honest_total.wire.run}/keys/fog-1"

    def other_signature(packets):
        return [
            p._replace(payload=p.payload[:-1] + bytes((p.payload[-1] ^ 1,)))
            if isinstance(p, Publish) and p.topic == topic_of
            else p
            for p in packets
        ]

    assert {"shares", "deliveries"} <= with_packets(honest_total, "fog-1", other_signature)
