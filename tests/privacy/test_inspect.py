"""`fogveil inspect` on real testbeds: all that crossed, once, as it was on the wire."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest
from support import ROOT, SCENARIOS
from typer.testing import CliRunner

from agent.record import read_record, record_path
from fogveil.errors import InputError, SurroundingsError
from fogveil.identity import PROVIDER, Identity
from provider_node.journal import journal_path, read_journal
from testbed.cli.app import app
from testbed.federated.launch import Testbed
from testbed.federated.split import Plan
from testbed.inspecting import capture
from testbed.inspecting.packets import Direction, Segment
from testbed.scenario import load_scenario
from testbed.world import build_world

PROGRAMS = Path(sys.executable).parent
WATCH = "/fogveil.v1.QueueService/Watch"
HORIZON = 300.0
ASKABLE = "the providers to ask about are cloud, fog-1, fog-2, fog-3$"


def inspect(*words):
    """Run the command here; return its exit code and what it printed."""
    done = CliRunner().invoke(app, ["inspect", *map(str, words)], catch_exceptions=True)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout


def listed(*words):
    code, text = inspect(*words, "--json")
    assert code == 0, text
    return [json.loads(line) for line in text.splitlines()]


def buf(identity, host, address, *words):
    """Call a provider as an auditor does, with a client that is not ours."""
    return subprocess.run(
        [
            *(PROGRAMS / "buf", "curl", "--protocol", "grpc", "--servername", host),
            *("--cacert", identity / "authority.pem", "--cert", identity / "certificate.pem"),
            *("--key", identity / "key.pem", *words[:-1], f"https://{address}{words[-1]}"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


class Watched:
    """A testbed that was followed while it ran, with what an auditor could do meanwhile."""

    def __init__(self, place):
        self.folder = place / "runs" / "up" / "tiny"
        world = build_world(load_scenario(SCENARIOS / "tiny.toml", {"horizon": HORIZON}))
        plan = Plan(policies=("jsq",), broker="builtin", record=True)
        with Testbed(world, plan, self.folder, hold=True) as testbed:
            with (place / "followed").open("w") as shown:
                follower = subprocess.Popen(
                    [PROGRAMS / "fogveil", "inspect", "--live", "--json"], cwd=place, stdout=shown
                )
            self._audit(testbed)
            while follower.poll() is None and not (place / "followed").stat().st_size:
                time.sleep(0.05)
            self.early = (place / "followed").read_text().splitlines()[0]
            testbed.release()
            testbed.wait()
        assert follower.wait(timeout=60) == 0
        self.followed = [*map(json.loads, (place / "followed").read_text().splitlines())]
        self.listed = listed(self.folder)

    def _audit(self, testbed):
        host, address = Identity(testbed.run, PROVIDER, "fog-3").host, testbed.addresses["fog-3"]
        auditor, agent = self.folder / "auditor", self.folder / "participants/agent/identity"
        testbed.split.identify("agent", "agent", agent)  # it is not up yet
        self.words = (auditor / "grpcurl.txt").read_text()
        assert f"-authority {host} {address} list" in self.words
        self.services = buf(auditor, host, address, "--list-services", "")
        self.methods = buf(auditor, host, address, "--list-methods", "")
        old = "--reflect-protocol", "grpc-v1alpha", "--list-methods", ""
        self.old_methods = buf(auditor, host, address, *old)
        self.watching = buf(auditor, host, address, WATCH)
        self.as_agent = buf(agent, host, address, "--list-services", "")

    def participant(self, name):
        return self.folder / "participants" / name


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    return Watched(tmp_path_factory.mktemp("watched"))


class Captured:
    """A testbed in plain text, with its packets, and with a stranger's among them."""

    def __init__(self, place):
        self.folder, self.packets = place / "plain", place / "all.pcapng"
        words = ("scenarios/tiny.toml", "--policy", "jsq", "--horizon", HORIZON, "--speed", 100)
        words += ("--out", self.folder, "--insecure", "--packets", self.packets)
        up = subprocess.Popen(
            [PROGRAMS / "fogveil", "up", *map(str, words)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        log = self.folder / "testbed.log"
        while not (log.exists() and "started agent" in log.read_text()):
            assert up.poll() is None, up.communicate()
            time.sleep(0.05)
        config = self.folder / "participants" / "agent" / "config.json"
        address = json.loads(config.read_text())["own"]["providers"]["fog-3"]
        with grpc.insecure_channel(address) as channel:
            reflect = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
            with pytest.raises(grpc.RpcError) as self.refused:
                channel.unary_unary(reflect)(b"\x3a\x00", timeout=30)
        _, said = up.communicate(timeout=120)
        assert up.returncode == 0, said


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    return Captured(tmp_path_factory.mktemp("captured"))


@pytest.fixture(scope="module")
def quiet(captured):
    """The same capture without the stranger's packets."""
    strangers = [line for line in noted(captured.folder, "fog-3") if "ipv4" in line["from"]]
    (port,) = {line["address"].rpartition(":")[2] for line in strangers if "address" in line}
    path = captured.packets.with_name("quiet.pcapng")
    tshark("-r", captured.packets, "-Y", f"!(tcp.port=={port})", "-w", path)
    folder = captured.folder.with_name("quiet")
    shutil.copytree(captured.folder, folder)
    change(folder, "fog-3", lambda line: None if line in strangers else line)
    return folder, path


def tshark(*words):
    words = ["tshark", *map(str, words)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def noted(folder, name):
    text = (folder / "participants" / name / "traffic.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def change(folder, name, changed):
    """Change one end's recording, line by line; None takes a line away."""
    lines = [each for line in noted(folder, name) if (each := changed(line)) is not None]
    path = folder / "participants" / name / "traffic.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def number(which, change_it, sender="fog-3"):
    """Return a change of the so-manieth count that a provider told."""
    seen = iter(range(10**6))

    def changed(line):
        told = (line["from"], line["to"], line["kind"]) == (sender, "agent", "response")
        return change_it(line) if told and next(seen) == which else line

    return changed


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


# --- the wire ------------------------------------------------------------------------------------


def test_what_was_recorded_is_what_was_on_the_wire(quiet):
    folder, packets = quiet
    code, text = inspect(folder, "--packets", packets, "--json")
    found = json.loads(text)
    assert (code, found["faults"]) == (0, [])
    messages = [line for line in listed(folder) if line["kind"] in ("request", "response")]
    assert sum(flow["on_the_wire"] for flow in found["flows"]) == len(messages)
    assert sum(flow["bytes"] for flow in found["flows"]) == sum(line["size"] for line in messages)
    # A witness that is not ours reads the same off the wire.
    ports = {
        flow["value"].rpartition(":")[2] for flow in found["headers"] if "auth" in flow["name"]
    }
    decode = [word for port in ports for word in ("-d", f"tcp.port=={port},http2")]
    lengths = tshark(
        "-r", packets, *decode, "-Y", "grpc", "-T", "fields", "-e", "grpc.message_length"
    )
    sizes = [int(size) for line in lengths.split() for size in line.split(",")]
    assert sorted(sizes) == sorted(line["size"] for line in messages)
    code, text = inspect(folder, "--packets", packets)
    assert code == 0
    assert f"what was recorded is what was on the wire: {len(messages)} messages" in text
    # The older format holds the same.
    older = packets.with_suffix(".pcap")
    tshark("-r", packets, "-F", "pcap", "-w", older)
    assert json.loads(inspect(folder, "--packets", older, "--json")[1]) == found


def test_a_recording_that_was_changed_at_both_ends_is_not_the_wires(quiet, tmp_path):
    folder = tmp_path / "changed"
    shutil.copytree(quiet[0], folder)
    for end in ("agent", "fog-3"):
        change(folder, end, number(4, lambda line: {**line, "bytes": "0a0109"}))
        change(folder, end, number(2, lambda line: None, sender="fog-1"))
    change(folder, "fog-1", number(2, lambda line: None, sender="fog-1"))
    code, text = inspect(folder, "--packets", quiet[1])
    assert code == 1
    assert "THE WIRE AND THE RECORDING DIFFER" in text
    assert "fog-3 → agent QueueService.Watch response number 5: on the wire 0a010" in text
    assert ", recorded 0a0109" in text
    assert sum("DIFFERENT" in line for line in text.splitlines()) == 2


def test_what_nobody_sent_or_recorded_is_listed(captured, quiet):
    """A stranger called a method that is not there; gRPC's reader never read the message."""
    code, text = inspect(captured.folder, "--packets", captured.packets)
    assert code == 1
    assert "ServerReflection.ServerReflectionInfo request: 1 on the wire and not recorded" in text
    assert "this method is not served here" in text
    # Somebody whom no server has noted at all.
    code, text = inspect(quiet[0], "--packets", captured.packets)
    assert code == 1
    assert "is on the wire and nobody recorded it" in text


def test_a_broken_capture_is_noticed(quiet, tmp_path):
    folder, packets = quiet
    content, broken = packets.read_bytes(), tmp_path / "broken.pcapng"
    broken.write_bytes(content[: len(content) * 2 // 3])
    code, text = inspect(folder, "--packets", broken)
    assert code == 1
    assert "recorded and not on the wire" in text
    broken.write_bytes(b"no packets")
    with pytest.raises(InputError, match="is not a capture of packets"):
        inspect(folder, "--packets", broken)


def test_segments_are_put_in_order():
    said = bytes(random.Random(1).randrange(256) for _ in range(5000))
    first = 2**32 - 700  # numbers begin anew on the way
    cuts = [0, *sorted(random.Random(2).sample(range(1, 5000), 60)), 5000]
    pieces = [(begin, said[begin:end]) for begin, end in zip(cuts, cuts[2:], strict=False)]
    random.Random(3).shuffle(pieces)
    direction = Direction(first)
    for begin, piece in [*pieces, *pieces[:9]]:
        direction.take(Segment("a", "b", (first + begin) % 2**32, 0, piece))
    assert bytes(direction.content) == said
    assert not direction.gap
    direction.take(Segment("a", "b", (first + 6000) % 2**32, 0, b"later"))
    assert direction.gap


def test_packets_are_captured_in_plain_text_and_with_rights_only(monkeypatch, tmp_path):
    words = ["up", str(SCENARIOS / "tiny.toml"), "--policy", "jsq", "--packets", "x.pcapng"]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, InputError)
    assert "add --insecure" in str(done.exception)
    with (
        pytest.raises(SurroundingsError, match="packets cannot be captured"),
        capture.capturing(tmp_path / "no" / "folder.pcapng", (20000,)),
    ):
        pass
    said = (
        b"Capturing on 'lo'\ndumpcap: You do not have permission to capture on device \"lo\".\n(so"
    )
    assert capture._reason(said).startswith("this takes root, or the right to capture")
    monkeypatch.setattr(capture, "PROGRAM", "dumpcap-that-is-not-there")
    with (
        pytest.raises(SurroundingsError, match="apt install tshark"),
        capture.capturing(tmp_path / "x.pcapng", (20000,)),
    ):
        pass


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


def test_in_plain_text_there_is_no_reflection(captured):
    assert captured.refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
