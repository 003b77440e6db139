"""Twins are compared in every channel: what differs is noticed and named, what is equal passes."""

from __future__ import annotations

import copy
import subprocess
import sys
from contextlib import ExitStack

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fogveil.broker.mqtt_packets import Framer, Publish, decode, encode
from fogveil.protocol.identity import AGENT, BROKER
from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.privacy.audit.findings import Verdict
from fogveil.testbed.privacy.audit.freshness_check import DrawnValues
from fogveil.testbed.privacy.audit.procedure import TOTAL_OBSERVER
from fogveil.testbed.privacy.audit.twins.answer_times import compare_times, welch_t
from fogveil.testbed.privacy.audit.twins.bursts import burst_world, draw_secrets
from fogveil.testbed.privacy.audit.twins.check import Kind, TwinCheck
from fogveil.testbed.privacy.audit.twins.comparison import (
    Triple,
    compare_content,
    conspicuous,
    repeated,
)
from fogveil.testbed.privacy.audit.twins.form import Channel, Form
from fogveil.testbed.privacy.audit.twins.host_form import MACHINE, add_outcome
from fogveil.testbed.privacy.audit.twins.wire_form import wire_form
from fogveil.testbed.privacy.audit.wire_log import WireLog
from fogveil.testbed.privacy.audit.wire_tap import WireTap
from fogveil.testbed.privacy.inspect.http2 import FRAME_HEADER, PREFACE

DECISIONS = 27
POLICIES = {"count": "jsq", "total": TOTAL_OBSERVER}
SCHEDULING_FRAMES = {6, 8}
"""PING and WINDOW_UPDATE, by type."""


class Recorded:
    """A run that can be changed and compared again."""

    def __init__(self, folder, level):
        world = burst_world(folder, level, "waiting", DECISIONS, draw_secrets(level, 1)[0])
        plan = Plan(policies=(POLICIES[level],), broker="builtin")
        self.folder = folder / "testbed"
        with (
            WireTap(folder / "tap") as tap,
            create_testbed(world, plan, self.folder, interposer=tap) as testbed,
        ):
            testbed.wait()
        self.log, self.testbed = tap.log, testbed

    def form(self, log=None) -> Form:
        form = wire_form(log or self.log, "cloud")
        add_outcome(form, self.testbed, self.folder)
        return form


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return Recorded(tmp_path_factory.mktemp("one"), "total")


@pytest.fixture(scope="module")
def again(tmp_path_factory):
    return Recorded(tmp_path_factory.mktemp("again"), "total")


def faults(one: Form, twin: Form) -> dict[str, list[str]]:
    return dict(compare_content(Triple(one, one, twin)).faults)


def differs(one: Form, other: Form) -> bool:
    return (
        one.content != other.content
        or one.endings != other.endings
        or one.artefacts != other.artefacts
    )


# --- mutations of a recorded run -----------------------------------------------------------------


def test_runs_with_the_same_secrets_are_equal(recorded, again):
    """Run name, keys, certificates, masks, ports and users are new in each run."""
    runs = Triple(recorded.form(), again.form(), again.form())
    comparison = compare_content(runs)
    assert not comparison.faults
    receivers = {AGENT, BROKER, "clock", "cloud", "sources", "fog-1", "fog-2", "fog-3", MACHINE}
    assert {*comparison.compared} == receivers
    assert sum(comparison.compared.values()) > 10 * DECISIONS


def scheduling_bytes(content: bytes, *, up: bool) -> set[int]:
    """Return the offsets of frames that only chance decides."""
    offsets: set[int] = set()
    at = len(PREFACE) if up else 0
    while at + FRAME_HEADER <= len(content):
        end = at + FRAME_HEADER + int.from_bytes(content[at : at + 3], "big")
        if content[at + 3] in SCHEDULING_FRAMES:
            offsets |= {*range(at + FRAME_HEADER, end)}
        at = end
    return offsets


@settings(max_examples=60)
@given(data=st.data())
def test_one_changed_byte_of_a_grpc_connection_is_noticed(recorded, data):
    plain = [c for c in recorded.log.connections if c.plane != "mqtt"]
    connection = copy.deepcopy(plain[data.draw(st.integers(0, len(plain) - 1))])
    alone = WireLog(recorded.log.run, [connection])
    original = wire_form(alone, "cloud")
    up = data.draw(st.booleans())
    stream = connection.up if up else connection.down
    at = data.draw(st.integers(0, len(stream.content) - 1))
    assume(at not in scheduling_bytes(bytes(stream.content), up=up))
    stream.content[at] ^= data.draw(st.integers(1, 255))
    assert differs(original, wire_form(alone, "cloud")), (str(connection), up, at)


def publishes(stream) -> list[Publish | None]:
    return [
        packet if isinstance(packet := decode(header, body), Publish) else None
        for header, body in Framer().feed(bytes(stream.content))
    ]


@settings(max_examples=40)
@given(data=st.data())
def test_one_changed_byte_of_a_message_is_noticed(recorded, data):
    """But the times at which jobs finish, which their receivers may know, and random keys."""
    log = copy.deepcopy(recorded.log)
    connections = [c for c in log.connections if c.plane == "mqtt"]
    connection = data.draw(st.sampled_from(connections))
    sent = [p for p in publishes(connection.up) if p and p.topic.split("/")[3] in WHOLE]
    assume(sent)
    packet = data.draw(st.sampled_from(sent))
    payload = bytearray(packet.payload)
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] ^= data.draw(st.integers(1, 255))
    replaced = encode(packet._replace(payload=bytes(payload)))
    content = bytes(connection.up.content).replace(encode(packet), replaced, 1)
    connection.up.content = bytearray(content)
    found = faults(wire_form(recorded.log, "cloud"), wire_form(log, "cloud"))
    assert [*found] == [BROKER]
    assert f"MQTT from {connection.caller} to broker depends on secrets" in found[BROKER][0]


WHOLE = "workload", "placement"
"""Topics whose messages are compared byte for byte."""


def changed_publish(recorded, caller: str, topic: str, change) -> Form:
    """Return the form of the run after a change of a client's first message at a topic."""
    log = copy.deepcopy(recorded.log)
    [connection] = log.between(caller, BROKER)
    packet = next(p for p in publishes(connection.up) if p and f"/{topic}/" in p.topic)
    content = bytes(connection.up.content)
    assert encode(packet) in content
    connection.up.content = bytearray(content.replace(encode(packet), change(packet), 1))
    return wire_form(log, "cloud")


@pytest.mark.parametrize(
    ("topic", "change"),
    [
        ("aggregate", lambda packet: encode(packet) * 2),
        ("aggregate", lambda packet: b""),
        ("aggregate", lambda packet: encode(packet._replace(retain=True))),
        ("aggregate", lambda packet: encode(packet._replace(payload=packet.payload + b"\x32\0"))),
        ("feedback", lambda packet: encode(packet._replace(payload=packet.payload + b"\x20\1"))),
        ("keys", lambda packet: encode(packet._replace(payload=packet.payload + b"\x18\1"))),
    ],
    ids=["one more", "one less", "a flag", "an unknown field", "a size", "a field of a key"],
)
def test_a_changed_message_of_a_provider_is_noticed(recorded, topic, change):
    found = faults(
        wire_form(recorded.log, "cloud"), changed_publish(recorded, "fog-2", topic, change)
    )
    assert "MQTT from fog-2 to broker depends on secrets: item" in found[BROKER][0]


def test_a_share_that_is_no_share_of_the_sum_is_noticed(recorded):
    log = copy.deepcopy(recorded.log)
    [connection] = log.between(AGENT, "fog-1")
    connection.down.content = bytearray(_with_changed_last_data(bytes(connection.down.content)))
    found = faults(wire_form(recorded.log, "cloud"), wire_form(log, "cloud"))
    assert "sums of shares from all members to agent depends on secrets" in found[AGENT][0]


def _with_changed_last_data(content: bytes) -> bytes:
    """Change the last byte of the last DATA frame with a message."""
    at = last = 0
    while at + FRAME_HEADER <= len(content):
        size = int.from_bytes(content[at : at + 3], "big")
        if content[at + 3] == 0 and size:
            last = at + FRAME_HEADER + size - 1
        at += FRAME_HEADER + size
    return content[:last] + bytes((content[last] ^ 1,)) + content[last + 1 :]


def test_a_changed_file_is_noticed(recorded):
    before = recorded.form()
    home = recorded.testbed.split.folder_of("fog-2")
    (home / "journal-0000.csv").chmod(0o640)
    found = faults(before, recorded.form())
    assert "file system from fog-2 to the machine depends on secrets" in found[MACHINE][0]
    assert "-rw-r-----" in found[MACHINE][0]
    (home / "journal-0000.csv").chmod(0o600)
    (home / "note").touch()
    assert "'note " in faults(before, recorded.form())[MACHINE][0]
    (home / "note").unlink()
    record = recorded.testbed.split.folder_of(AGENT) / "decisions-0000.csv"
    text = record.read_text()
    record.write_text(text + "\n")
    assert {*faults(before, recorded.form())} == {MACHINE, AGENT}
    record.write_text(text)
    assert not faults(before, recorded.form())


# --- scheduling ----------------------------------------------------------------------------------


def with_artefacts(*numbers: int) -> Form:
    form = Form("r")
    for place, number in enumerate(numbers, 1):
        form.artefacts[Channel(f"fog-{place}", AGENT, "gRPC")]["PING"] = number
    return form


FOGS = "fog-1", "fog-2", "fog-3"


@pytest.mark.parametrize(
    ("twin", "conspicuous_ones"),
    [
        ((5, 6, 5), []),
        ((50, 51, 52), []),  # a busy machine: all of them
        ((5, 30, 5), [("fog-2", 1)]),
        ((60, 12, 61), [("fog-2", -1)]),
        ((5, 14, 5), []),  # small numbers vary
    ],
)
def test_a_provider_with_more_artefacts_than_the_others_is_conspicuous(twin, conspicuous_ones):
    runs = Triple(with_artefacts(4, 5, 4), with_artefacts(6, 6, 5), with_artefacts(*twin))
    alarms = conspicuous(runs, FOGS)
    assert [(alarm.channel.sender, alarm.sign) for alarm in alarms] == conspicuous_ones


def test_an_alarm_counts_if_it_is_raised_again_in_the_same_direction():
    def alarms(*twin):
        runs = Triple(with_artefacts(5, 5, 5), with_artefacts(5, 5, 5), with_artefacts(*twin))
        return conspicuous(runs, FOGS)

    assert len(repeated(alarms(5, 40, 5), alarms(5, 30, 5))) == 1
    assert not repeated(alarms(5, 40, 5), alarms(5, 5, 5))
    assert not repeated(alarms(5, 40, 5), alarms(5, 5, 40))
    assert not repeated(alarms(40, 100, 40), alarms(40, 5, 40))


def test_an_unusual_ending_is_conspicuous():
    forms = [Form("r"), Form("r"), Form("r")]
    channel = Channel("fog-1", AGENT, "gRPC (boundary)")
    forms[2].endings[channel] = {"RstStreamFrame 1 00000008", "RstStreamFrame 1 0000000b"}
    [alarm] = conspicuous(Triple(*forms), FOGS)
    assert "fog-1 to agent ends with 'RstStreamFrame 1 0000000b'" in alarm.evidence


@pytest.mark.parametrize(
    ("one", "other", "t"),
    [
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 0.0),
        ([1.0, 2.0, 3.0, 4.0], [2.0, 6.0], -0.714),  # -1.5 / sqrt(5/3 / 4 + 8 / 2)
        ([1.0, 1.0], [1.0, 1.0], 0.0),
    ],
)
def test_answer_times_are_compared_by_welchs_t(one, other, t):
    assert welch_t(one, other) == pytest.approx(t, abs=1e-3)
    finding = compare_times({"fog-1": one[:2]}, {"fog-1": one[2:] or one}, {"fog-1": other})
    assert finding.verdict is Verdict.MEASURED
    assert compare_times({}, {}, {}).verdict is Verdict.NOT_SHOWN


# --- live ----------------------------------------------------------------------------------------


def live_findings(folder, level: str, decisions: int = DECISIONS):
    """Compare twins in bursts; return the findings by receiver."""
    folder.mkdir(exist_ok=True)
    worlds = [burst_world(folder, level, "waiting", decisions, s) for s in draw_secrets(level, 1)]
    check = TwinCheck(folder, Plan(broker="builtin"), worlds[0], lambda _step: None, DrawnValues())
    check.compare(Kind("bursts", POLICIES[level], same_chance=False), *worlds)
    return {finding.promise: finding for finding in check.findings()}


def finding_of(findings, receiver: str):
    return next(f for promise, f in findings.items() if f" {receiver} " in promise)


def test_what_only_twins_can_catch_is_caught(sabotage, tmp_path):
    """Each leak looks like the product's own: known fields, usual sizes, no secret spelled out.

    The first version compared what the agent's own recording had, so it saw neither the message to
    the Cloud, nor the file's mode, nor the heartbeats.
    """
    sabotage("""
        import fogveil.broker.client as client
        import fogveil.provider_node.boundary as boundary
        import fogveil.provider_node.process as process

        init = process.ProviderProcess.__init__
        def init_and_leak(self, settings):
            init(self, settings)
            self._slow = settings.provider.instructions[0] / settings.provider.ipt > 200
            boundary.VERSION = "1" if self._slow else "2"
            if self._slow:
                client.HEARTBEATS = 200
                client.MISSED_HEARTBEATS = 3000
        process.ProviderProcess.__init__ = init_and_leak

        class LeakingContext:
            def __init__(self, context):
                self.context = context
            def __getattr__(self, name):
                return getattr(self.context, name)
            async def send_initial_metadata(self, metadata):
                await self.context.send_initial_metadata((("version", boundary.VERSION),))
        watch = boundary.QueueBoundary.Watch
        async def watch_and_leak(self, request, context):
            await watch(self, request, LeakingContext(context))
        boundary.QueueBoundary.Watch = watch_and_leak

        begin = process.ProviderProcess._begin
        async def begin_and_leak(self, message):
            await begin(self, message)
            if self._slow:  # a message without a number, which the Cloud drops
                self.relay.publish(self._topics.aggregate(self._settings.name), b"")
                (self._settings.folder / "config.json").chmod(0o400)
        process.ProviderProcess._begin = begin_and_leak
    """)
    findings = live_findings(tmp_path / "twins", "count", decisions=90)
    for receiver, words in (
        (AGENT, "gRPC (boundary) from fog-1 to agent depends on secrets"),
        (BROKER, "MQTT from fog-1 to broker depends on secrets"),
        ("the Cloud", "MQTT messages from fog-1 to cloud depends on secrets"),
        (MACHINE, "file system from fog-1 to the machine depends on secrets"),
        ("scheduling:", "heartbeat"),
    ):
        finding = finding_of(findings, receiver)
        assert finding.verdict is Verdict.FAIL, (receiver, finding)
        assert any(words in fault for fault in finding.details), finding.details
    assert finding_of(findings, "clock").verdict is Verdict.PASS


def test_an_honest_product_passes_at_level_total(tmp_path):
    findings = live_findings(tmp_path / "twins", "total")
    verdicts = {finding.verdict for finding in findings.values()}
    assert Verdict.FAIL not in verdicts, findings
    for receiver in (AGENT, "clock", "Fog providers", MACHINE, "scheduling:"):
        assert finding_of(findings, receiver).verdict is Verdict.PASS


@pytest.mark.slow
@pytest.mark.parametrize("level", ["count", "total"])
def test_an_honest_product_passes_on_a_busy_machine(tmp_path, level):
    with ExitStack() as stack:
        for _ in range(4):
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(busy.wait)
            stack.callback(busy.kill)
        for repetition in range(5):
            findings = live_findings(tmp_path / f"twins-{repetition}", level, decisions=300)
            assert not [f for f in findings.values() if f.verdict is Verdict.FAIL]
