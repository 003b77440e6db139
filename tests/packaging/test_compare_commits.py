"""The script that compares commits: it notices one changed byte, and not what is random."""

from __future__ import annotations

import json
import secrets

import pytest

from benchmarks.compare_commits import compare_streams, read_streams
from fogveil.v1.clock_pb2 import Hello, JoinRequest
from fogveil.v1.total_pb2 import KeyAnnouncement, TotalServiceWatchResponse

MODULUS = 2**32


def record(
    folder, *, shares=(3, 4), names=("fog-1", "fog-2"), count=b"\x0a\x01\x03", level="total"
):
    """Write what two providers and the clock record of a small run."""
    run, mask = secrets.token_hex(16), secrets.randbelow(MODULUS)
    lines = {name: [] for name in (*names, "clock")}

    def add(recorder, sender, receiver, method, kind, body):
        line = {"from": sender, "to": receiver, "method": method, "kind": kind, "bytes": body.hex()}
        lines[recorder].append({"at": secrets.randbelow(99), **line})

    for name, share, sign in zip(names, shares, (1, -1), strict=True):
        hello = JoinRequest(hello=Hello(name=name, run=run)).SerializeToString()
        add(name, name, "clock", "/fogveil.v1.ClockService/Join", "request", hello)
        masked = TotalServiceWatchResponse(shares=[(share + sign * mask) % MODULUS])
        body = masked.SerializeToString()
        add(name, name, "agent", "/fogveil.v1.TotalService/Watch", "response", body)
        key = KeyAnnouncement(run=run, name=name, public_key=secrets.token_bytes(32), level=level)
        topic = f"fogveil/v1/{run}/keys/{name}"
        add(names[0], "broker", names[0], topic, "delivery", key.SerializeToString())
    add("clock", "clock", "fog-1", "/fogveil.v1.ClockService/Join", "response", count)
    for name, recorded in lines.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(json.dumps({"run": run}))
        text = "".join(json.dumps(line) + "\n" for line in recorded)
        (folder / name / "traffic.jsonl").write_text(text)
    return read_streams(folder)


def test_two_runs_of_one_program_are_equal(tmp_path):
    assert compare_streams(record(tmp_path / "one"), record(tmp_path / "other")) == []


@pytest.mark.parametrize(
    ("change", "stream"),
    [
        ({"count": b"\x0a\x01\x04"}, "clock fog-1 /fogveil.v1.ClockService/Join response"),
        ({"shares": (3, 5)}, "all providers agent /fogveil.v1.TotalService/Watch sum"),
        ({"level": "count"}, f"broker fog-1 fogveil/v1/{'0' * 32}/keys/fog-1 delivery"),
    ],
)
def test_what_changed_is_named(tmp_path, change, stream):
    changed = compare_streams(record(tmp_path / "one"), record(tmp_path / "other", **change))
    assert stream in [difference.where for difference in changed]
