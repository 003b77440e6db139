"""`fogveil inspect --packets`: captured packets agree with the recording, or are reported."""

from __future__ import annotations

import json
import random
import shutil

import grpc
import hpack
import pytest
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    ExtensionFrame,
    GoAwayFrame,
    HeadersFrame,
)
from inspect_support import (
    CapturedTestbed,
    edit_recording,
    edit_response,
    inspect,
    inspect_json,
    read_entries,
    tshark,
)
from support import SCENARIOS
from typer.testing import CliRunner

from fogveil.core.errors import InfrastructureError, InputError
from fogveil.testbed.cli.app import app
from fogveil.testbed.privacy.inspect import capture
from fogveil.testbed.privacy.inspect.http2 import PREFACE, read_connection
from fogveil.testbed.privacy.inspect.pcap import Connection, Direction, Segment


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    return CapturedTestbed(tmp_path_factory.mktemp("captured"))


@pytest.fixture(scope="module")
def quiet(captured):
    """The same run and capture without the unknown client."""
    unknown = [line for line in read_entries(captured.folder, "fog-3") if "ipv4" in line["from"]]
    (port,) = {line["address"].rpartition(":")[2] for line in unknown if "address" in line}
    path = captured.packets.with_name("quiet.pcapng")
    tshark("-r", captured.packets, "-Y", f"!(tcp.port=={port})", "-w", path)
    folder = captured.folder.with_name("quiet")
    shutil.copytree(captured.folder, folder)
    edit_recording(folder, "fog-3", lambda line: None if line in unknown else line)
    return folder, path


# --- the wire ------------------------------------------------------------------------------------


def test_the_wire_and_the_recording_agree(quiet):
    folder, packets = quiet
    code, text = inspect(folder, "--packets", packets, "--json")
    result = json.loads(text)
    assert (code, result["faults"]) == (0, [])
    messages = [line for line in inspect_json(folder) if line["kind"] in ("request", "response")]
    assert sum(flow["on_the_wire"] for flow in result["flows"]) == len(messages)
    assert sum(flow["bytes"] for flow in result["flows"]) == sum(line["size"] for line in messages)
    # An independent program reads the same from the packets.
    ports = {
        header["value"].rpartition(":")[2]
        for header in result["headers"]
        if header["name"] == ":authority"
    }
    decode = [option for port in ports for option in ("-d", f"tcp.port=={port},http2")]
    lengths = tshark(
        "-r", packets, *decode, "-Y", "grpc", "-T", "fields", "-e", "grpc.message_length"
    )
    sizes = [int(size) for line in lengths.split() for size in line.split(",")]
    assert sorted(sizes) == sorted(line["size"] for line in messages)
    code, text = inspect(folder, "--packets", packets)
    assert code == 0
    assert f"the wire and the recording agree: {len(messages)} messages" in text
    # The older file format gives the same result.
    older = packets.with_suffix(".pcap")
    tshark("-r", packets, "-F", "pcap", "-w", older)
    assert json.loads(inspect(folder, "--packets", older, "--json")[1]) == result


def test_a_recording_edited_at_both_ends_differs_from_the_wire(quiet, tmp_path):
    folder = tmp_path / "changed"
    shutil.copytree(quiet[0], folder)
    for end in ("agent", "fog-3"):
        edit_recording(folder, end, edit_response(4, lambda line: {**line, "bytes": "0a0109"}))
        edit_recording(folder, end, edit_response(2, lambda line: None, sender="fog-1"))
    edit_recording(folder, "fog-1", edit_response(2, lambda line: None, sender="fog-1"))
    code, text = inspect(folder, "--packets", quiet[1])
    assert code == 1
    assert "THE WIRE AND THE RECORDING DIFFER" in text
    assert "fog-3 → agent QueueService.Watch response #5: on the wire 0a010" in text
    assert ", recorded 0a0109" in text
    assert sum("DIFFERENT" in line for line in text.splitlines()) == 2


def test_unrecorded_messages_and_connections_are_reported(captured, quiet):
    """The unknown client called a method that is not served; gRPC never read its message."""
    code, text = inspect(captured.folder, "--packets", captured.packets)
    assert code == 1
    assert "ServerReflection.ServerReflectionInfo request: 1 on the wire but not recorded" in text
    assert "this method is not served here" in text
    # A client that no server has recorded.
    code, text = inspect(quiet[0], "--packets", captured.packets)
    assert code == 1
    assert "is on the wire but in no recording" in text


def test_a_broken_capture_is_reported(quiet, tmp_path):
    folder, packets = quiet
    content, broken = packets.read_bytes(), tmp_path / "broken.pcapng"
    broken.write_bytes(content[: len(content) * 2 // 3])
    code, text = inspect(folder, "--packets", broken)
    assert code == 1
    assert "recorded but not on the wire" in text
    broken.write_bytes(b"no packets")
    with pytest.raises(InputError, match="is not a packet capture"):
        inspect(folder, "--packets", broken)


def test_segments_are_reassembled():
    sent = bytes(random.Random(1).randrange(256) for _ in range(5000))
    first = 2**32 - 700  # sequence numbers wrap around
    cuts = [0, *sorted(random.Random(2).sample(range(1, 5000), 60)), 5000]
    pieces = [(begin, sent[begin:end]) for begin, end in zip(cuts, cuts[2:], strict=False)]
    random.Random(3).shuffle(pieces)
    direction = Direction(first)
    for begin, piece in [*pieces, *pieces[:9]]:
        direction.add(Segment("a", "b", (first + begin) % 2**32, 0, piece))
    assert bytes(direction.content) == sent
    assert not direction.has_gap
    direction.add(Segment("a", "b", (first + 6000) % 2**32, 0, b"later"))
    assert direction.has_gap


def grpc_connection(*frames):
    """Return a connection whose client sent these frames, and whose server sent nothing."""
    up, down = Direction(0), Direction(0)
    up.content += PREFACE + b"".join(frame.serialize() for frame in frames)
    return Connection("ipv4:1.2.3.4:5", "ipv4:1.2.3.4:6", up, down)


def test_padded_prioritized_and_continued_frames_are_read():
    block = hpack.Encoder().encode([(":path", "/service/Method"), ("x-secret", "42")])
    begin = HeadersFrame(1, block[:5], flags=("PADDED", "PRIORITY"), pad_length=3)
    end = ContinuationFrame(1, block[5:], flags=("END_HEADERS",))
    messages = b"\0\0\0\0\x03abc" + b"\0\0\0\0\0" + b"\0\0\0\0\x09cut"
    content = DataFrame(1, messages, flags=("PADDED",), pad_length=7)
    goaway = GoAwayFrame(0, additional_data=b"bye")
    unknown = ExtensionFrame(type=0xFA, stream_id=1, body=b"?")
    parsed = read_connection(grpc_connection(begin, end, content, goaway, unknown))
    (call,) = parsed.calls
    assert call.path == "/service/Method"
    assert call.headers["request"] == [(":path", "/service/Method"), ("x-secret", "42")]
    assert list(call.messages("request")) == [b"abc", b"", messages[-8:]]
    assert parsed.goaways == ["bye"]
    names = ("HEADERS", "CONTINUATION", "DATA", "GOAWAY", "type 250")
    assert parsed.frames == dict.fromkeys(names, 1)


def test_an_incomplete_frame_is_left_out_and_an_invalid_one_refused():
    connection = grpc_connection(DataFrame(1, b"\0\0\0\0\x03abc"))
    del connection.up.content[-1:]
    assert read_connection(connection).calls == []
    connection = grpc_connection(DataFrame(1, b"", flags=("PADDED",), pad_length=9))
    connection.up.content[-10:] = b"\x0b" + bytes(9)  # more padding than there is content
    with pytest.raises(InputError, match="has invalid HTTP/2: Padding is too long"):
        read_connection(connection)


def test_capturing_needs_plaintext_a_program_and_permission(monkeypatch, tmp_path):
    command = ["up", str(SCENARIOS / "tiny.toml"), "--policy", "jsq", "--packets", "x.pcapng"]
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, InputError)
    assert "add --insecure" in str(result.exception)
    with (
        pytest.raises(InfrastructureError, match="packets cannot be captured"),
        capture.packet_capture(tmp_path / "no" / "folder.pcapng", (20000,)),
    ):
        pass
    output = (
        b"Capturing on 'lo'\ndumpcap: You do not have permission to capture on device \"lo\".\n(so"
    )
    assert capture._reason(output).startswith("this needs root, or the permission to capture")
    monkeypatch.setattr(capture, "PROGRAM", "dumpcap-that-does-not-exist")
    with (
        pytest.raises(InfrastructureError, match="apt install tshark"),
        capture.packet_capture(tmp_path / "x.pcapng", (20000,)),
    ):
        pass


def test_a_plaintext_testbed_serves_no_reflection(captured):
    assert captured.refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
