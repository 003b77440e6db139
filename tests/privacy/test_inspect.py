"""`fogveil inspect` on real testbeds: all that crossed, once, as it was on the wire."""

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
from inspect_support import Watched, change, inspect, listed, noted, number

from agent.record import read_record, record_path
from fogveil.errors import InputError
from provider_node.journal import journal_path, read_journal

ASKABLE = "the providers to ask about are cloud, fog-1, fog-2, fog-3$"


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    return Watched(tmp_path_factory.mktemp("watched"))


@pytest.fixture
def copy(watched, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(watched.folder, folder)
    (folder / "run.json").write_text("{}")  # it came to its end
    return folder


# --- the list ------------------------------------------------------------------------------------


def test_every_message_is_listed_once_with_both_its_ends(watched):
    lines = watched.listed
    names = ("agent", "clock", "cloud", "fog-1", "fog-2", "fog-3", "sources")
    sent = [
        (line["from"], line["to"], line["method"], line["kind"], line["bytes"])
        for name in names
        for line in noted(watched.folder, name)
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


def test_a_line_says_when_who_what_and_how_much(watched):
    code, text = inspect(watched.folder, "--from", "fog-3", "--method", "Watch", "--to", "agent")
    assert code == 0
    header, *lines = text.splitlines()
    assert " ".join(header.split()) == "seconds simulated from → to method kind bytes fields"
    told = [line for line in lines if '{"counts":[' in line]
    assert len(told) == len(decisions(watched))
    assert {line.index("{") for line in told} == {header.index("fields")}
    words = told[0].split()
    assert words[2:8] == ["fog-3", "→", "agent", "QueueService.Watch", "response", "3"]
    assert "recorded at both ends, the same bytes in the same order" in text


@pytest.mark.parametrize(
    ("words", "wanted"),
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
def test_filters(watched, words, wanted):
    chosen = [line for line in watched.listed if wanted(line)]
    if words == ("--from", "fog-3"):  # by the broker: what it published, not what it was sent
        chosen = [line for line in chosen if not line["method"].startswith("placement/")]
    assert listed(watched.folder, *words) == chosen != []
    assert listed(watched.folder, *words, "--limit", 1) == chosen[:1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--from", "fog-9"), "--from fog-9: not in this recording, which has agent,"),
        (("--method", "Wach"), "--method Wach: not in this recording, which has ClockService.Join"),
        (("--kind", "answer"), "--kind answer: expected some of request, response"),
        (("--between", "agent"), "--between agent: expected two names"),
        (("--about", "fog-9"), f"--about fog-9: not in this recording; {ASKABLE}"),
        (("--about", "agent"), f"--about agent: not a provider; {ASKABLE}"),
        (("--about", "broker"), f"--about broker: not a provider; {ASKABLE}"),
        (("--about", "fog-3", "--summary"), "choose one of"),
        (("--whole",), "--whole goes with --about"),
        (("--live",), "no testbed is at work here"),
        (("--packets", "/dev/null"), "its channels were encrypted"),
    ],
)
def test_wrong_words_are_refused(watched, words, sentence):
    with pytest.raises(InputError, match=sentence):
        inspect(watched.folder, *words)


def test_what_is_no_recording_is_refused(tmp_path):
    for place, sentence in ((tmp_path, "no recording is here"), (tmp_path / "x", "does not exist")):
        with pytest.raises(InputError, match=sentence):
            inspect(place)
    (tmp_path / "traffic.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match="is not a recording"):
        inspect(tmp_path)


@contextmanager
def nobody():
    """Be a user who may not read what root may."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize("closed", ["run", "run/participants", "run/participants/agent"])
@pytest.mark.parametrize("asked", ["run", "run/participants/agent/traffic.jsonl"])
def test_what_may_not_be_read_is_told_in_a_sentence(closed, asked):
    with tempfile.TemporaryDirectory() as place:  # pytest's own are closed to others altogether
        whole = Path(place) / "run" / "participants" / "agent"
        whole.mkdir(parents=True)
        (whole / "traffic.jsonl").write_text("")
        Path(place).chmod(0o755)
        (Path(place) / closed).chmod(0)
        try:
            with nobody(), pytest.raises(InputError, match="cannot be read: Permission denied$"):
                inspect(Path(place) / asked)
        finally:
            (Path(place) / closed).chmod(0o755)


def test_one_participants_recording_is_enough(watched):
    lines = listed(watched.participant("fog-3"))
    file = watched.participant("fog-3") / "traffic.jsonl"
    assert lines == listed(file)
    assert len(lines) == len(noted(watched.folder, "fog-3"))
    assert {name for line in lines for name in line["noted_by"]} == {"fog-3"}


def test_a_testbed_at_work_is_followed_until_it_ends(watched):
    assert json.loads(watched.early)["kind"] in ("request", "metadata")
    # Which of two at once is seen first may differ; nothing is missing, nothing is there twice.
    spelled = [json.dumps({**line, "since": 0}) for line in watched.followed]
    assert sorted(spelled) == sorted(json.dumps({**line, "since": 0}) for line in watched.listed)


# --- what the agent learned ----------------------------------------------------------------------


def decisions(watched):
    return list(read_record(record_path(watched.participant("agent"), 0)))


def test_what_the_agent_learned_is_what_journal_and_decisions_say(watched):
    code, text = inspect(watched.folder, "--about", "fog-3", "--whole", "--json")
    assert code == 0
    learned = json.loads(text)
    told = [count for message in learned["sequence"] for count in message["counts"]]
    taken = decisions(watched)
    assert told == [decision.seen[2] for decision in taken]
    rows = [row for row, _ in read_journal(journal_path(watched.participant("fog-3"), 0))]
    instants = [decision.emitted for decision in taken]
    arrived, begun = (np.sort([row[place] for row in rows]) for place in (2, 3))
    waiting = np.searchsorted(arrived, instants, "right") - np.searchsorted(
        begun, instants, "right"
    )
    assert told == waiting.tolist()
    counts = {"number": len(told), "least": min(told), "most": max(told)}
    assert learned["numbers"] == {"WatchResponse.counts": counts}
    request, response = learned["messages"]
    assert (request["message"], request["fields"], request["number"]) == ("WatchRequest", [], 1)
    assert (response["message"], response["fields"]) == ("WatchResponse", ["counts"])
    assert (response["number"], response["bytes"]) == (len(told), 3 * len(told))
    assert learned["one"] == {"bytes": f"0a01{max(told):02x}", "fields": {"counts": [max(told)]}}


def test_the_summary_has_every_provider_that_was_asked(watched):
    code, text = inspect(watched.folder, "--summary")
    assert code == 0
    taken = decisions(watched)
    for place, name in enumerate(("fog-1", "fog-2", "fog-3")):
        seen = [decision.seen[place] for decision in taken]
        (row,) = (line for line in text.splitlines() if line.startswith(name))
        assert row.split()[1:4] == ["WatchResponse", str(len(seen)), str(3 * len(seen))]
        assert f"counts {len(seen)} from {min(seen)} to {max(seen)}" in row
    assert "cloud" not in text
    code, text = inspect(watched.folder, "--about", "fog-2")
    assert "initial metadata: none" in text
    assert "on the wire  0a 01" in text


# --- what must be noticed ------------------------------------------------------------------------


def test_a_recording_that_was_changed_at_one_end_is_noticed(copy):
    change(copy, "agent", number(5, lambda line: {**line, "bytes": "0a0107"}))
    code, text = inspect(copy, "--limit", 1)
    assert code == 1
    assert "RECORDED DIFFERENTLY AT BOTH ENDS: 1 message" in text
    assert "fog-3 → agent QueueService.Watch response number 6: fog-3 noted 0a010" in text
    assert "agent noted 0a0107" in text
    code, text = inspect(copy, "--about", "fog-3")
    assert code == 1
    assert "WatchResponse.counts: 21 from 0 to 7" in text  # what the agent says it was told


@pytest.mark.parametrize("end", ["agent", "fog-3"])
def test_a_message_that_one_end_left_out_is_noticed(copy, end):
    change(copy, end, number(20, lambda line: None))
    code, text = inspect(copy, "--limit", 1)
    assert code == 1
    assert "RECORDED AT ONE END ONLY: 1 message" in text


@pytest.mark.parametrize("end", ["agent", "fog-3", "clock"])
def test_a_whole_recording_that_is_missing_is_noticed(copy, end):
    (copy / "participants" / end / "traffic.jsonl").unlink()
    os.utime(copy / "run.json", (1, 1))  # a copy of a run has the times of the copying
    code, text = inspect(copy, "--summary")
    assert code == 1
    assert f"NO RECORDING OF {end}" in text
    assert "RECORDED AT ONE END ONLY: " in text
    assert "recorded at both ends" not in text


def test_who_was_not_to_record_is_not_missed(copy):
    (copy / "participants" / "fog-3" / "traffic.jsonl").unlink()
    config = copy / "participants" / "fog-3" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "record": False}))
    assert inspect(copy, "--summary")[0] == 0


def test_a_participant_that_was_killed_is_no_fault(copy):
    (copy / "run.json").unlink()
    path = copy / "participants" / "fog-3" / "traffic.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-9]) + lines[-9][:40])
    code, text = inspect(copy, "--limit", 1)
    assert code == 0
    assert "messages that the end of the testbed cut off: " in text
    path.write_text("".join(lines[:-9]))
    change(copy, "fog-3", number(5, lambda line: {**line, "bytes": "0a0107"}))
    assert inspect(copy, "--limit", 1)[0] == 1


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ("0a01001007", "field 2: 7"),
        ("0a028100", "WatchResponse in an encoding of its own"),
        ("0801", "WatchResponse in an encoding of its own"),
        ("0a05", "2 bytes that are no WatchResponse"),
    ],
)
def test_bytes_that_no_field_explains_are_noticed(copy, payload, words):
    for end in ("agent", "fog-3"):
        change(copy, end, number(3, lambda line: {**line, "bytes": payload}))
    code, text = inspect(copy, "--from", "fog-3", "--method", "Watch")
    assert code == 1
    assert f"    NOT EXPLAINED BY THE PROTOCOL: {words}" in text
    assert "NOT EXPLAINED BY THE PROTOCOL: 1 message" in text


def test_an_unknown_field_deep_inside_is_noticed(copy):
    def hide(line):
        grant = bytes.fromhex(line.get("bytes", ""))
        if line["kind"] != "response" or grant[:1] != b"\x12" or line["to"] != "fog-1":
            return line
        return {**line, "bytes": (b"\x12" + bytes([grant[1] + 2]) + grant[2:] + b"\x78\x2a").hex()}

    for end in ("clock", "fog-1"):
        change(copy, end, hide)
    code, text = inspect(copy)
    assert code == 1
    assert "NOT EXPLAINED BY THE PROTOCOL: grant.field 15: 42" in text


# --- the auditor ---------------------------------------------------------------------------------


def test_the_auditor_is_told_what_is_served(watched):
    assert watched.services.stdout.split() == ["fogveil.v1.QueueService"], watched.services.stderr
    for methods in (watched.methods, watched.old_methods):
        assert methods.stdout.split() == ["fogveil.v1.QueueService/Watch"], methods.stderr
    assert (watched.folder / "auditor").stat().st_mode & 0o777 == 0o700


def test_the_auditor_is_told_no_count_and_the_agent_nothing_by_reflection(watched):
    refusal = "this identity may not call this method"
    assert watched.watching.returncode == grpc.StatusCode.PERMISSION_DENIED.value[0] << 3
    assert json.loads(watched.watching.stderr) == {"code": "permission_denied", "message": refusal}
    assert watched.as_agent.returncode
    assert refusal in watched.as_agent.stderr
    refused = listed(watched.folder, "--to", "auditor", "--kind", "status")
    assert [line["text"][:2] for line in refused] == [["PERMISSION_DENIED", refusal]]
    assert listed(watched.folder, "--to", "auditor", "--method", "Watch", "--kind", "status")
