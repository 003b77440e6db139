"""`fogveil inspect --packets`: what was recorded is what was on the wire."""

from __future__ import annotations

import json
import random
import shutil

import grpc
import pytest
from inspect_support import Captured, change, inspect, listed, noted, number, tshark
from support import SCENARIOS
from typer.testing import CliRunner

from fogveil.errors import InputError, SurroundingsError
from testbed.cli.app import app
from testbed.inspecting import capture
from testbed.inspecting.packets import Direction, Segment


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


def test_in_plain_text_there_is_no_reflection(captured):
    assert captured.refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
