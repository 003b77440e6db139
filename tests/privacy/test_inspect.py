"""`fogveil inspect` on a recorded testbed: every crossing once, and every fault reported."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest
from inspect_support import (
    FollowedTestbed,
    edit_recording,
    edit_response,
    inspect,
    inspect_json,
    read_entries,
)

from fogveil.agent.decision_record import read_record, record_path
from fogveil.core.errors import InputError
from fogveil.protocol.channels import PROTOCOL
from fogveil.provider_node.journal import journal_path, read_journal
from fogveil.v1.clock_pb2 import JoinRequest
from fogveil.v1.workload_pb2 import Aggregates, Feedback

PROVIDERS = "the providers are cloud, fog-1, fog-2, fog-3$"


@pytest.fixture(scope="module")
def testbed(tmp_path_factory):
    return FollowedTestbed(tmp_path_factory.mktemp("followed"))


@pytest.fixture
def copy(testbed, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(testbed.folder, folder)
    (folder / "run.json").write_text("{}")  # a complete run
    return folder


# --- the list ------------------------------------------------------------------------------------


def test_every_message_is_listed_once_with_both_ends(testbed):
    lines = testbed.crossings
    names = ("agent", "clock", "cloud", "fog-1", "fog-2", "fog-3", "sources")
    sent = [
        (line["from"], line["to"], line["method"], line["kind"], line["bytes"])
        for name in names
        for line in read_entries(testbed.folder, name)
        if line["from"] in (name, "auditor") and line["kind"] in ("request", "response")
    ]
    messages = [line for line in lines if line["kind"] in ("request", "response")]
    keys = ("from", "to", "path", "kind", "bytes")
    assert sorted(tuple(line[key] for key in keys) for line in messages) == sorted(sent)
    for line in messages:
        ends = [line["from"], line["to"]]
        assert line["noted_by"] == [name for name in ends if name != "auditor"]
        assert line["size"] == len(line["bytes"]) / 2
    times = [line["at"] for line in lines]
    assert times == sorted(times)
    kinds = {line["kind"] for line in lines}
    assert kinds >= {"metadata", "initial metadata", "trailing metadata", "status", "delivery"}
    assert not any("faults" in line for line in lines)


def test_a_line_has_time_ends_method_kind_size_and_fields(testbed):
    code, text = inspect(testbed.folder, "--from", "fog-3", "--method", "Watch", "--to", "agent")
    assert code == 0
    header, *lines = text.splitlines()
    assert " ".join(header.split()) == "seconds simulated from → to method kind bytes fields"
    counts = [line for line in lines if '{"counts":[' in line]
    assert len(counts) == len(decisions(testbed))
    assert {line.index("{") for line in counts} == {header.index("fields")}
    cells = counts[0].split()
    assert cells[2:8] == ["fog-3", "→", "agent", "QueueService.Watch", "response", "3"]
    assert "recorded at both ends: same bytes, same order" in text


@pytest.mark.parametrize(
    ("options", "accepts"),
    [
        (("--from", "fog-3"), lambda line: "fog-3" in (line["from"], line["path"][-5:])),
        (("--to", "clock"), lambda line: line["to"] == "clock"),
        (("--method", "Watch"), lambda line: line["path"].endswith("/Watch")),
        (("--method", "ClockService.Join"), lambda line: line["path"].endswith("Service/Join")),
        (("--kind", "status"), lambda line: line["kind"] == "status"),
        (
            ("--kind", "request,initial-metadata", "--to", "agent"),
            lambda line: line["kind"] == "initial metadata" and line["to"] == "agent",
        ),
        (
            ("--between", "agent,fog-1", "--kind", "request,response"),
            lambda line: {line["from"], line["to"]} == {"agent", "fog-1"} and "bytes" in line,
        ),
    ],
)
def test_filters(testbed, options, accepts):
    chosen = [line for line in testbed.crossings if accepts(line)]
    if options == ("--from", "fog-3"):  # of deliveries: what it published, not what it received
        chosen = [line for line in chosen if not line["method"].startswith("placement/")]
    assert inspect_json(testbed.folder, *options) == chosen != []
    assert inspect_json(testbed.folder, *options, "--limit", 1) == chosen[:1]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--from", "fog-9"), "--from fog-9: not in this recording, which has agent,"),
        (("--method", "Wach"), "--method Wach: not in this recording, which has ClockService.Join"),
        (("--kind", "answer"), "--kind answer: expected some of request, response"),
        (("--between", "agent"), "--between agent: expected two names"),
        (("--about", "fog-9"), f"--about fog-9: not in this recording; {PROVIDERS}"),
        (("--about", "agent"), f"--about agent: not a provider; {PROVIDERS}"),
        (("--about", "broker"), f"--about broker: not a provider; {PROVIDERS}"),
        (("--about", "fog-3", "--summary"), "choose one of"),
        (("--whole",), "--whole goes with --about"),
        (("--live",), "no testbed is running here"),
        (("--packets", "/dev/null"), "its channels were encrypted"),
    ],
)
def test_wrong_options_are_refused(testbed, options, error):
    with pytest.raises(InputError, match=error):
        inspect(testbed.folder, *options)


def test_a_path_without_a_recording_is_refused(tmp_path):
    for path, error in ((tmp_path, "no recording found"), (tmp_path / "x", "does not exist")):
        with pytest.raises(InputError, match=error):
            inspect(path)
    (tmp_path / "traffic.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match="is not a recording"):
        inspect(tmp_path)


@contextmanager
def unprivileged():
    """Drop root's right to read everything."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize("closed", ["run", "run/participants", "run/participants/agent"])
@pytest.mark.parametrize("inspected", ["run", "run/participants/agent/traffic.jsonl"])
def test_an_unreadable_path_is_reported(closed, inspected):
    with tempfile.TemporaryDirectory() as folder:  # other users cannot enter pytest's tmp_path
        parent = Path(folder)
        agent = parent / "run" / "participants" / "agent"
        agent.mkdir(parents=True)
        (agent / "traffic.jsonl").write_text("")
        parent.chmod(0o755)
        (parent / closed).chmod(0)
        try:
            with (
                unprivileged(),
                pytest.raises(InputError, match="cannot be read: Permission denied$"),
            ):
                inspect(parent / inspected)
        finally:
            (parent / closed).chmod(0o755)


def test_one_participants_recording_can_be_inspected_alone(testbed):
    lines = inspect_json(testbed.participant("fog-3"))
    file = testbed.participant("fog-3") / "traffic.jsonl"
    assert lines == inspect_json(file)
    assert len(lines) == len(read_entries(testbed.folder, "fog-3"))
    assert {name for line in lines for name in line["noted_by"]} == {"fog-3"}


def test_a_running_testbed_is_followed_until_it_ends(testbed):
    assert json.loads(testbed.first_line)["kind"] in ("request", "metadata")
    # The order of simultaneous crossings may differ; none is missing, and none is there twice.
    followed, listed = (
        sorted(json.dumps({**line, "since": 0}) for line in lines)
        for lines in (testbed.followed, testbed.crossings)
    )
    assert followed == listed


# --- what the agent learned ----------------------------------------------------------------------


def decisions(testbed):
    return list(read_record(record_path(testbed.participant("agent"), 0)))


def test_the_summary_agrees_with_the_journal_and_the_decisions(testbed):
    code, text = inspect(testbed.folder, "--about", "fog-3", "--whole", "--json")
    assert code == 0
    summary = json.loads(text)
    sent = [count for message in summary["sequence"] for count in message["counts"]]
    record = decisions(testbed)
    assert sent == [decision.counts[2] for decision in record]
    rows = [row for row, _ in read_journal(journal_path(testbed.participant("fog-3"), 0))]
    instants = [decision.emitted for decision in record]
    arrived, started = (np.sort([row[column] for row in rows]) for column in (2, 3))
    waiting = np.searchsorted(arrived, instants, "right") - np.searchsorted(
        started, instants, "right"
    )
    assert sent == waiting.tolist()
    counts = {"number": len(sent), "least": min(sent), "most": max(sent)}
    assert summary["numbers"] == {"WatchResponse.counts": counts}
    request, response = summary["messages"]
    assert (request["message"], request["fields"], request["number"]) == ("WatchRequest", [], 1)
    assert (response["message"], response["fields"]) == ("WatchResponse", ["counts"])
    assert (response["number"], response["bytes"]) == (len(sent), 3 * len(sent))
    assert summary["one"] == {"bytes": f"0a01{max(sent):02x}", "fields": {"counts": [max(sent)]}}


def test_the_summary_has_every_provider_the_agent_called(testbed):
    code, text = inspect(testbed.folder, "--summary")
    assert code == 0
    record = decisions(testbed)
    for node, name in enumerate(("fog-1", "fog-2", "fog-3")):
        seen = [decision.counts[node] for decision in record]
        (row,) = (line for line in text.splitlines() if line.startswith(name))
        assert row.split()[1:4] == ["WatchResponse", str(len(seen)), str(3 * len(seen))]
        assert f"counts: {len(seen)} values from {min(seen)} to {max(seen)}" in row
    assert "cloud" not in text
    code, text = inspect(testbed.folder, "--about", "fog-2")
    assert "initial metadata: none" in text
    assert "on the wire  0a 01" in text


# --- faults that must be reported -----------------------------------------------------------------


def test_a_recording_edited_at_one_end_is_reported(copy):
    edit_recording(copy, "agent", edit_response(5, lambda line: {**line, "bytes": "0a0107"}))
    code, text = inspect(copy, "--limit", 1)
    assert code == 1
    assert "THE TWO ENDS RECORDED DIFFERENT BYTES: 1 message" in text
    assert "fog-3 → agent QueueService.Watch response #6: fog-3 recorded 0a010" in text
    assert "agent recorded 0a0107" in text
    code, text = inspect(copy, "--about", "fog-3")
    assert code == 1
    assert "WatchResponse.counts: 21 values from 0 to 7" in text  # by the agent's recording


@pytest.mark.parametrize("end", ["agent", "fog-3"])
def test_a_message_recorded_at_one_end_only_is_reported(copy, end):
    edit_recording(copy, end, edit_response(20, lambda line: None))
    code, text = inspect(copy, "--limit", 1)
    assert code == 1
    assert "RECORDED AT ONE END ONLY: 1 message" in text


@pytest.mark.parametrize("end", ["agent", "fog-3", "clock"])
def test_a_missing_recording_is_reported(copy, end):
    (copy / "participants" / end / "traffic.jsonl").unlink()
    os.utime(copy / "run.json", (1, 1))  # a copied run has the times of the copy
    code, text = inspect(copy, "--summary")
    assert code == 1
    assert f"MISSING RECORDING: {end}" in text
    assert "RECORDED AT ONE END ONLY: " in text
    assert "recorded at both ends" not in text


def test_a_participant_that_does_not_record_is_not_missing(copy):
    (copy / "participants" / "fog-3" / "traffic.jsonl").unlink()
    config = copy / "participants" / "fog-3" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "record": False}))
    assert inspect(copy, "--summary")[0] == 0


def test_the_recording_of_a_killed_participant_is_cut_off_but_not_wrong(copy):
    (copy / "run.json").unlink()
    path = copy / "participants" / "fog-3" / "traffic.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-9]) + lines[-9][:40])
    code, text = inspect(copy, "--limit", 1)
    assert code == 0
    assert "messages cut off by the end of the testbed" in text
    path.write_text("".join(lines[:-9]))
    edit_recording(copy, "fog-3", edit_response(5, lambda line: {**line, "bytes": "0a0107"}))
    assert inspect(copy, "--limit", 1)[0] == 1


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ("0a01001007", "field 2: 7"),
        ("0a028100", "WatchResponse in a non-canonical encoding"),
        ("0801", "WatchResponse in a non-canonical encoding"),
        ("0a05", "2 bytes that do not parse as WatchResponse"),
    ],
)
def test_bytes_that_no_field_explains_are_reported(copy, payload, reason):
    for end in ("agent", "fog-3"):
        edit_recording(copy, end, edit_response(3, lambda line: {**line, "bytes": payload}))
    code, text = inspect(copy, "--from", "fog-3", "--method", "Watch")
    assert code == 1
    assert f"    NOT EXPLAINED BY THE PROTOCOL: {reason}" in text
    assert "NOT EXPLAINED BY THE PROTOCOL: 1 message" in text


def test_a_nested_unknown_field_is_reported(copy):
    def hide(line):
        grant = bytes.fromhex(line.get("bytes", ""))
        if line["kind"] != "response" or grant[:1] != b"\x12" or line["to"] != "fog-1":
            return line
        return {**line, "bytes": (b"\x12" + bytes([grant[1] + 2]) + grant[2:] + b"\x78\x2a").hex()}

    for end in ("clock", "fog-1"):
        edit_recording(copy, end, hide)
    code, text = inspect(copy)
    assert code == 1
    assert "NOT EXPLAINED BY THE PROTOCOL: grant.field 15: 42" in text


# --- padding and protocols -----------------------------------------------------------------------


def edit_deliveries(folder, kind, edit):
    """Edit the messages of a type that the broker delivered; return how many have padding."""
    padded = 0
    topic = {Aggregates: "/aggregate/", Feedback: "/feedback/"}[kind]

    def edit_entry(entry):
        nonlocal padded
        if topic not in entry["method"]:
            return entry
        message = kind.FromString(bytes.fromhex(entry["bytes"]))
        padded += bool(message.padding)
        edit(message)
        return {**entry, "bytes": message.SerializeToString().hex()}

    for name in ("cloud", "sources"):
        edit_recording(folder, name, edit_entry)
    return padded


def test_padding_is_shown_as_what_it_is(testbed):
    shown = [
        (line["fields"]["padding"], Aggregates.FromString(bytes.fromhex(line["bytes"])))
        for line in testbed.crossings
        if line["method"].startswith("aggregate/") and "padding" in line["fields"]
    ]
    assert shown
    assert all(
        text == f"{sum(map(len, message.padding)):,} bytes" and not any(map(any, message.padding))
        for text, message in shown
    )
    _, text = inspect(testbed.folder, "--method", "aggregate")
    assert all(f'"padding":"{text_}"' in text for text_, _ in shown)


@pytest.mark.parametrize("kind", [Aggregates, Feedback])
def test_what_is_hidden_in_padding_is_reported(copy, kind):
    def hide(message):
        if message.padding and len(message.padding[0]):
            message.padding[0] = message.padding[0][:-1] + b"\x07"

    hidden = edit_deliveries(copy, kind, hide)
    assert hidden
    code, text = inspect(copy)
    assert code == 1
    plural = "messages" if hidden > 1 else "message"
    assert f"NOT EXPLAINED BY THE PROTOCOL: {hidden} {plural}" in text
    assert "padding that is not zero" in text


def greet_by(protocol):
    """Return an edit of the greetings of fog-1, which name its protocol."""

    def edit_entry(entry):
        if (entry["from"], entry["kind"]) != ("fog-1", "request"):
            return entry
        request = JoinRequest.FromString(bytes.fromhex(entry["bytes"]))
        if request.WhichOneof("kind") == "hello":
            assert request.hello.protocol == PROTOCOL
            request.hello.protocol = protocol
        return {**entry, "bytes": request.SerializeToString().hex()}

    return edit_entry


def test_a_recording_of_protocol_1_which_had_no_padding_is_read(copy):
    for end in ("clock", "fog-1"):
        edit_recording(copy, end, greet_by(1))
    for kind in (Aggregates, Feedback):
        assert edit_deliveries(copy, kind, lambda message: message.ClearField("padding"))
    assert inspect(copy)[0] == 0


def test_a_recording_of_a_later_protocol_is_refused(copy):
    for end in ("clock", "fog-1"):
        edit_recording(copy, end, greet_by(PROTOCOL + 1))
    with pytest.raises(
        InputError,
        match=f"fog-1/traffic.jsonl: was recorded by protocol {PROTOCOL + 1}, .*{PROTOCOL}",
    ):
        inspect(copy)
    # What strangers claim is no reason: the clock records that, and goes on.
    assert inspect(copy / "participants/clock")[0] == 0


# --- the auditor ---------------------------------------------------------------------------------


def test_reflection_shows_the_auditor_what_is_served(testbed):
    assert testbed.services.stdout.split() == ["fogveil.v1.QueueService"], testbed.services.stderr
    for methods in (testbed.methods, testbed.methods_by_v1alpha):
        assert methods.stdout.split() == ["fogveil.v1.QueueService/Watch"], methods.stderr
    assert (testbed.folder / "auditor").stat().st_mode & 0o777 == 0o700


def test_the_auditor_gets_no_count_and_the_agent_no_reflection(testbed):
    refusal = "this identity may not call this method"
    assert testbed.watch_as_auditor.returncode == grpc.StatusCode.PERMISSION_DENIED.value[0] << 3
    assert json.loads(testbed.watch_as_auditor.stderr) == {
        "code": "permission_denied",
        "message": refusal,
    }
    assert testbed.services_as_agent.returncode
    assert refusal in testbed.services_as_agent.stderr
    refused = inspect_json(testbed.folder, "--to", "auditor", "--kind", "status")
    assert [line["text"][:2] for line in refused] == [["PERMISSION_DENIED", refusal]]
    assert inspect_json(testbed.folder, "--to", "auditor", "--method", "Watch", "--kind", "status")
