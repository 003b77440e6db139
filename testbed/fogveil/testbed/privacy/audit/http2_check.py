"""The gRPC channel checks: connections, calls with the values of all headers, HTTP/2 frames."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator

from hyperframe.frame import (
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from fogveil.protocol.channels import WELCOME
from fogveil.protocol.identity import AGENT, BROKER, CLOCK
from fogveil.testbed.privacy.audit.evidence import Evidence
from fogveil.testbed.privacy.audit.findings import Finding, judge
from fogveil.testbed.privacy.audit.grpc_habits import GOAWAYS, SHUTDOWN_TRAILERS, observe_habits
from fogveil.testbed.privacy.audit.reference import JOIN
from fogveil.testbed.privacy.audit.traffic import GrpcSide, GrpcTraffic
from fogveil.testbed.privacy.inspect.http2 import FRAME_HEADER, MESSAGE_PREFIX, frame_name

SETTING = struct.Struct("!HL")

NO_ERROR, CANCEL = 0, 8
"""The codes with which a stream may end: nobody's state shows in them."""
NO_STREAM_LIMIT = 2**31 - 1
DEFAULT_WINDOW = 2**16 - 1
"""Bytes that may be sent on a connection before any WINDOW_UPDATE."""
FRAMES = (
    DataFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
    GoAwayFrame,
)
FLAGS = {
    DataFrame: {"END_STREAM"},
    HeadersFrame: {"END_HEADERS", "END_STREAM"},
    PingFrame: {"ACK"},
    SettingsFrame: {"ACK"},
}
"""Flags that a frame may have: no padding, no priority."""
HEADERS_AND_TRAILERS = 2
"""Blocks that a direction of a call has at most."""


def check_connections(evidence: Evidence) -> Finding:
    """Compare who connected to whom, and how often, with the reference."""
    expected = Counter((name, callee) for name in evidence.roster.all for callee in (CLOCK, BROKER))
    flows = evidence.reference.grpc
    expected += Counter({(s, r): 1 for s, r, m in flows if s == AGENT and r != CLOCK})
    found = Counter((c.caller, c.callee) for c in evidence.wire.connections)
    faults = [
        f"{caller} connected to {callee} {found[caller, callee]} times, expected "
        f"{expected[caller, callee]}"
        for caller, callee in sorted({*found, *expected})
        if found[caller, callee] != expected[caller, callee]
    ]
    accepted = Counter(evidence.wire.accepted)
    faults += [
        f"{caller} connected to {callee} {accepted[caller, callee]} times, and agreed on TLS "
        f"{found[caller, callee]} times"
        for caller, callee in sorted({*accepted, *found})
        if accepted[caller, callee] != found[caller, callee]
    ]
    faults += [
        f"{each} failed: {each.failure}" for each in evidence.wire.connections if each.failure
    ]
    number = len(evidence.wire.connections)
    text = (
        f"{number} connections: every pair that the protocol joins has one, and no other has any; "
        "none was opened that did not go on to TLS"
    )
    return judge("connections: nobody connects more often than once", text, faults, number)


def check_calls(evidence: Evidence) -> Finding:
    """Compare the streams, headers and trailers of every gRPC connection, with their values."""
    habits = observe_habits()
    faults: list[str] = []
    headers = 0
    for traffic in evidence.traffic.grpc:
        faults += _stream_faults(evidence, traffic)
        authority = evidence.identity(traffic.connection.callee).host
        for side, stream, call in traffic.half_calls():
            where = f"{side.sender} → {side.receiver} stream {stream}"
            method = traffic.method(stream)
            expected = habits.request_to(method, authority)
            if side is traffic.down:
                expected = [*habits.response, *(WELCOME if method == JOIN else ())]
            headers += sum(map(len, call.blocks))
            if not call.blocks:
                faults.append(f"{where}: it has no headers")
                continue
            faults += [
                f"{where}: the header {name}: {value}"
                for name, value in call.blocks[0]
                if (name, value) not in expected
            ]
            if sorted(call.blocks[0]) == sorted(expected) and call.blocks[0] != expected:
                faults.append(f"{where}: its headers come in another order")
            missing = [name for name, value in expected if (name, value) not in call.blocks[0]]
            repeated = len(call.blocks[0]) != len(set(call.blocks[0]))
            if missing or repeated:
                faults.append(f"{where}: headers are missing or repeated {missing}")
            faults += [
                f"{where}: the trailers {block}"
                for block in call.blocks[1:]
                if side is traffic.up or block != SHUTDOWN_TRAILERS
            ]
            if len(call.blocks) > HEADERS_AND_TRAILERS:
                faults.append(f"{where}: it has {len(call.blocks)} blocks of headers")
    text = (
        f"{headers:,} headers on {len(evidence.traffic.grpc)} gRPC connections have the values "
        "that the installed gRPC sends by itself; no metadata, trailers or error texts of others"
    )
    return judge("calls: streams, headers and trailers are gRPC's own", text, faults, headers)


def _stream_faults(evidence: Evidence, traffic: GrpcTraffic) -> Iterator[str]:
    """Yield streams that the protocol does not have."""
    caller, callee = traffic.connection.caller, traffic.connection.callee
    expected = sorted(m for s, r, m in evidence.reference.grpc if (s, r) == (caller, callee))
    streams = sorted({*traffic.up.calls, *traffic.down.calls})
    found = sorted(traffic.method(stream) for stream in streams)
    if found != expected:
        yield f"{caller} calls {', '.join(found)} of {callee}, expected {', '.join(expected)}"
    if streams != [2 * number + 1 for number in range(len(streams))]:
        yield f"{caller} numbers its streams to {callee} {streams}"


def check_frames(evidence: Evidence) -> Finding:
    """Check every HTTP/2 frame: its type, flags, length, and what it says."""
    habits = observe_habits()
    faults: list[str] = []
    number = 0
    for traffic in evidence.traffic.grpc:
        for side, other in ((traffic.up, traffic.down), (traffic.down, traffic.up)):
            number += len(side.frames)
            where = f"{side.sender} → {side.receiver}"
            settings = habits.client_settings if side is traffic.up else habits.server_settings
            found = [
                *([side.fault] if side.fault else []),
                *_frame_faults(side),
                *_settings_faults(side, settings),
                *_ping_faults(side, other),
                *_window_faults(side, other, settings),
                *_ending_faults(side),
            ]
            faults += [f"{where}: {fault}" for fault in found]
    text = (
        f"{number:,} HTTP/2 frames: only types and flags that gRPC uses, without padding or unused "
        "bits; settings have gRPC's values, pings are echoed, window updates add up to what was "
        "received, streams end without an error"
    )
    return judge("frames: HTTP/2 carries nothing of its own", text, faults, number)


def _frame_faults(side: GrpcSide) -> Iterator[str]:
    streams = {0, *side.calls}
    for read in side.frames:
        frame = read.frame
        if not isinstance(frame, FRAMES):
            yield f"a frame {frame_name(frame)}: {read.raw[:32].hex()}"
            continue
        flags = set(frame.flags) - FLAGS.get(type(frame), set())
        if flags or _serialise(frame) != read.raw:  # so reserved bits are seen, too
            yield f"{frame_name(frame)} with unusual flags or bits: {read.raw[:32].hex()}"
        if isinstance(frame, DataFrame) and not frame.data and "END_STREAM" not in frame.flags:
            yield "an empty DATA frame"
        if isinstance(frame, WindowUpdateFrame) and frame.stream_id not in streams:
            yield f"WINDOW_UPDATE of stream {frame.stream_id}, which is not open"


def _serialise(frame: Frame) -> bytes:
    """Return the canonical bytes of a frame; the library knows only settings below 256."""
    if not isinstance(frame, SettingsFrame):
        return frame.serialize()
    body = b"".join(SETTING.pack(*setting) for setting in frame.settings.items())
    header = SettingsFrame(flags=[*frame.flags]).serialize()
    return len(body).to_bytes(3, "big") + header[3:FRAME_HEADER] + body


def _settings_faults(side: GrpcSide, expected: dict[int, int]) -> Iterator[str]:
    sent = [read.frame for read in side.frames if isinstance(read.frame, SettingsFrame)]
    values = [dict(frame.settings) for frame in sent if "ACK" not in frame.flags]
    if side.frames and values != [expected]:
        yield f"SETTINGS {values}, expected {expected} once"
    if len(sent) - len(values) > 1:
        yield "SETTINGS are acknowledged more than once"


def _ping_faults(side: GrpcSide, other: GrpcSide) -> Iterator[str]:
    """Yield acknowledgements that do not echo the other side's pings in order."""

    def pings(of: GrpcSide, *, acknowledged: bool) -> list[bytes]:
        frames = [read.frame for read in of.frames if isinstance(read.frame, PingFrame)]
        return [f.opaque_data for f in frames if ("ACK" in f.flags) == acknowledged]

    echoes, asked = pings(side, acknowledged=True), pings(other, acknowledged=False)
    if echoes != asked[: len(echoes)]:
        yield "PING acknowledgements that do not echo the pings"


def _window_faults(side: GrpcSide, other: GrpcSide, settings: dict[int, int]) -> Iterator[str]:
    """Yield window updates that add up to more than what was received."""
    granted: Counter[int] = Counter()
    for read in side.frames:
        if isinstance(read.frame, WindowUpdateFrame):
            granted[read.frame.stream_id] += read.frame.window_increment
    # gRPC asks for the prefix of the next message before that is sent.
    ahead = MESSAGE_PREFIX.size
    received = Counter({s: len(call.content) + ahead for s, call in other.calls.items()})
    initial = settings.get(SettingsFrame.INITIAL_WINDOW_SIZE, DEFAULT_WINDOW)
    received[0] = received.total() + initial - DEFAULT_WINDOW
    for stream, total in granted.items():
        if total > received[stream]:
            yield (
                f"WINDOW_UPDATEs of stream {stream} add up to {total:,}, more than the "
                f"{received[stream]:,} bytes received"
            )


def _ending_faults(side: GrpcSide) -> Iterator[str]:
    for read in side.frames:
        frame = read.frame
        if isinstance(frame, RstStreamFrame) and frame.error_code not in (NO_ERROR, CANCEL):
            yield f"RST_STREAM with code {frame.error_code}"
        if isinstance(frame, GoAwayFrame):
            said = frame.error_code, frame.additional_data
            last = frame.last_stream_id
            if said not in GOAWAYS or last not in {0, NO_STREAM_LIMIT, *side.calls}:
                yield f"GOAWAY with code {said[0]}, {said[1]!r}, last stream {last}"
