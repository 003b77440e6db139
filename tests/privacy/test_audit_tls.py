"""The audit's checks of TLS and of random values, on recorded runs that are changed."""

from __future__ import annotations

import pytest
from audit_support import broken

from fogveil.protocol.identity import BROKER, CLOCK
from fogveil.testbed.privacy.audit.findings import Verdict
from fogveil.testbed.privacy.audit.freshness_check import DrawnValues
from fogveil.testbed.privacy.audit.tls_transcript import Content, Transcript
from fogveil.testbed.privacy.audit.twins.wire_form import wire_form

ALPN = 16
DISCONNECT = b"\xe0\x00"


def said_by(evidence, caller, callee, *, by_caller=True):
    [connection] = evidence.wire.between(caller, callee)
    return (connection.caller_tls if by_caller else connection.callee_tls).said


def split_hello(hello):
    """Return a client's hello up to its extensions, and each extension."""
    at = 4 + 2 + 32
    at += 1 + hello[at]
    at += 2 + int.from_bytes(hello[at : at + 2], "big")
    at += 1 + hello[at]
    head, rest, extensions = hello[4:at], hello[at + 2 :], []
    while rest:
        size = 4 + int.from_bytes(rest[2:4], "big")
        extensions.append(rest[:size])
        rest = rest[size:]
    return head, extensions


def join_hello(head, extensions):
    block = b"".join(extensions)
    body = head + len(block).to_bytes(2, "big") + block
    return b"\x01" + len(body).to_bytes(3, "big") + body


def offer(said, name):
    """Add an ALPN offer."""
    head, extensions = split_hello(said.messages[0])
    names = bytes((len(name),)) + name
    value = len(names).to_bytes(2, "big") + names
    extensions.append(ALPN.to_bytes(2, "big") + len(value).to_bytes(2, "big") + value)
    said.messages[0] = join_hello(head, extensions)


def reorder(said):
    head, extensions = split_hello(said.messages[0])
    said.messages[0] = join_hello(head, extensions[::-1])


def reorder_ciphers(said):
    head, extensions = split_hello(said.messages[0])
    at = 2 + 32
    at += 1 + head[at] + 2
    head = head[:at] + head[at + 2 : at + 4] + head[at : at + 2] + head[at + 4 :]
    said.messages[0] = join_hello(head, extensions)


@pytest.mark.parametrize(
    "change",
    [
        lambda said: offer(said, b"mqtt/7"),
        reorder,
        reorder_ciphers,
        lambda said: said.messages.__setitem__(0, said.messages[0][:60]),
        lambda said: said.messages.append(b"\x18\x00\x00\x01\x00"),  # a change of keys
        lambda said: said.alerts.append(b"\x01\x5a"),
        lambda said: said.versions.append("170301"),
        lambda said: setattr(said, "changes", said.changes + 1),
        lambda said: setattr(said, "padding", 3),
        lambda said: setattr(said, "records", 9 * said.records),
    ],
    ids=[
        "alpn",
        "order",
        "ciphers",
        "cut",
        "message",
        "alert",
        "version",
        "change",
        "padding",
        "cuts",
    ],
)
@pytest.mark.parametrize("callee", [CLOCK, BROKER])
def test_a_handshake_that_says_something_of_its_own_is_noticed(honest, callee, change):
    changed = honest.copy()
    change(said_by(changed, "fog-2", callee))
    assert broken(changed) == {"handshakes"}


def test_random_values_are_no_part_of_a_handshakes_shape(honest):
    changed = honest.copy()
    said = said_by(changed, "fog-2", CLOCK)
    hello = bytearray(said.messages[0])
    hello[6:38] = bytes(32)
    said.messages[0] = bytes(hello)
    assert broken(changed) == set()


def test_a_broker_of_others_says_the_same_to_everybody(honest_total):
    changed = honest_total.copy()
    said_by(changed, "fog-2", BROKER, by_caller=False).messages.pop()
    assert broken(changed) == {"handshakes"}


def test_a_connection_without_tls_is_counted(honest):
    changed = honest.copy()
    changed.wire.accepted.append(("fog-2", CLOCK))
    assert broken(changed) == {"connections"}


def test_leaving_the_broker_without_a_word_is_noticed(honest):
    changed = honest.copy()
    [connection] = changed.wire.between("fog-2", BROKER)
    assert connection.up.content.endswith(DISCONNECT)
    del connection.up.content[-len(DISCONNECT) :]
    assert broken(changed) == {"packets"}


def test_twins_compare_offers_and_attempts(honest):
    changed = honest.copy()
    offer(said_by(changed, "fog-2", BROKER), b"mqtt/7")
    changed.wire.accepted.append(("fog-3", CLOCK))
    one, other = (wire_form(e.wire, honest.world.cloud).content for e in (honest, changed))
    differing = {(c.sender, c.receiver) for c in {*one, *other} if one.get(c) != other.get(c)}
    assert differing == {("fog-2", BROKER), ("fog-3", CLOCK)}


def test_padding_is_what_records_hold_beside_data_and_messages():
    transcript = Transcript()
    header = b"\x17\x03\x03" + (17 + 10).to_bytes(2, "big")
    transcript.note(Content.RECORD_HEADER, header)
    transcript.note_data(0)
    assert transcript.padding == 0  # it has not been decrypted
    transcript.note(Content.OPENED, b"\x17")
    transcript.note_data(10)
    assert transcript.padding == 0
    transcript.note(Content.RECORD_HEADER, header)
    transcript.note(Content.OPENED, b"\x17")
    transcript.note_data(16)
    assert transcript.padding == 4
    assert transcript.records == 2


def finding_of(*logs):
    drawn = DrawnValues()
    for log in logs:
        drawn.add(log)
    return drawn.finding()


def test_random_values_of_different_runs_differ(honest, honest_total):
    assert finding_of(honest.wire).verdict is Verdict.NOT_SHOWN
    assert finding_of(honest.wire, honest_total.wire).verdict is Verdict.PASS


def test_everything_that_recurs_is_named(honest_total):
    finding = finding_of(honest_total.wire, honest_total.wire)
    assert finding.verdict is Verdict.FAIL
    kinds = {
        fault.removeprefix("the ").partition(" of fog-1 of run 2")[0] for fault in finding.details
    }
    assert {"mask key", "masked counts", "signature of a key"} <= kinds
    for kind in ("random number", "session id", "key share", "session ticket", "signature"):
        assert any(fault.startswith(f"the {kind} in TLS") for fault in finding.details)
    assert any(fault.startswith("the end of an MQTT client id") for fault in finding.details)


def test_a_value_that_recurs_within_a_run_is_named(honest):
    changed = honest.copy()
    said_by(changed, "fog-2", CLOCK).messages[0] = said_by(changed, "fog-1", CLOCK).messages[0]
    assert finding_of(changed.wire).verdict is Verdict.FAIL
