"""The wire tap: it changes nothing, and sees what the participants record, and more."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import SCENARIOS

import fogveil.agent.policies as policies
from fogveil.protocol.identity import AGENT, BROKER, CLOCK
from fogveil.protocol.recording import REQUEST, RESPONSE, TRAFFIC
from fogveil.protocol.roster import Roster
from fogveil.testbed.engine.embedded import simulate
from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.join_records import join
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.launch.socket_folders import SocketFolders
from fogveil.testbed.privacy.audit import procedure
from fogveil.testbed.privacy.audit.wire_log import WireLog
from fogveil.testbed.privacy.audit.wire_tap import WireTap
from fogveil.testbed.privacy.inspect.http2 import read_connection
from fogveil.testbed.privacy.inspect.recordings import read_recording
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import build_world


@pytest.mark.parametrize(
    ("level", "policy", "broker"),
    [("count", "jsq", "builtin"), ("total", procedure.TOTAL_OBSERVER, "mosquitto")],
)
def test_a_tapped_run_is_the_same_and_the_log_has_every_recorded_message(
    tmp_path, level, policy, broker
):
    overrides = {"horizon": 600, "disclosure": level, "seed": 5}
    world = build_world(load_scenario(SCENARIOS / "tiny.toml", overrides))
    plan = Plan(policies=(policy,), broker=broker, record=True)
    with (
        WireTap(tmp_path / "tap") as tap,
        create_testbed(world, plan, tmp_path / "testbed", interposer=tap) as testbed,
    ):
        testbed.wait()
    split, log = testbed.split, tap.log
    assert join(world, split, 0, []) == simulate(world, policies.load(policy, world.agent), [])

    roster = split.roster
    watched = (*roster.fogs, roster.cloud) if level == "total" else roster.fogs
    dialled = {(name, callee) for name in roster.all for callee in (CLOCK, BROKER)}
    dialled |= {(AGENT, name) for name in watched}
    assert {(c.caller, c.callee) for c in log.connections} == dialled
    assert len(log.connections) == len(dialled)

    for name in roster.all:
        on_the_wire: list[bytes] = []
        for peer in (CLOCK, *watched) if name == AGENT else (CLOCK,):
            [connection] = log.between(name, peer)
            for call in read_connection(connection).calls:
                on_the_wire += [*call.messages(REQUEST), *call.messages(RESPONSE)]
        recorded = [
            crossing.payload
            for crossing in read_recording(split.folder_of(name) / TRAFFIC)
            if crossing.kind in (REQUEST, RESPONSE)
            and name in (AGENT, crossing.sender, crossing.receiver)
            and (name == AGENT or CLOCK in (crossing.sender, crossing.receiver))
        ]
        assert recorded
        assert sorted(recorded) == sorted(on_the_wire)

    for connection in log.connections:
        for handshake, name in (
            (connection.caller_tls, connection.caller),
            (connection.callee_tls, connection.callee),
        ):
            assert handshake.version == "TLSv1.3"
            assert split.mint is not None
            assert handshake.chain[0] == split.mint.issued[split.folder_of(name) / "identity"]

    log.save(tmp_path / "log")
    assert WireLog.load(tmp_path / "log") == log


def test_a_tap_stands_in_for_a_unix_socket(tmp_path):
    """A caller finds the tap's socket where it would have found the callee's."""
    sockets = SocketFolders((CLOCK,))
    with socket.socket(socket.AF_UNIX) as server, WireTap(tmp_path / "tap") as tap:
        server.bind(sockets.outside(CLOCK))
        server.listen()

        def echo() -> None:
            accepted, _ = server.accept()
            with accepted:
                while data := accepted.recv(2**16):
                    accepted.sendall(data.upper())

        thread = threading.Thread(target=echo)
        thread.start()
        roster, site = Roster(("sources",), ("fog-1",), "cloud"), SimpleNamespace(sockets=sockets)
        tap.attach(SimpleNamespace(run="7f", mint=None, own_broker=False, roster=roster, site=site))
        address = f"unix:{sockets.inside(CLOCK)}"
        assert tap.interpose("fog-1", CLOCK, address) == address
        assert tap.interpose("fog-1", CLOCK, address) == address
        [(folder, _)] = sockets.dialled("fog-1", (CLOCK,))
        [(other, _)] = sockets.dialled("fog-2", (CLOCK,))
        assert other == str(Path(sockets.outside(CLOCK)).parent)
        place = Path(folder) / "socket"
        assert place.stat().st_mode & 0o777 == 0o666
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(place))
            client.sendall(b"abc")
            assert client.recv(3) == b"ABC"
        thread.join()
    sockets.remove()
    [connection] = tap.log.between("fog-1", CLOCK)
    assert bytes(connection.up.content) == b"abc"
    assert bytes(connection.down.content) == b"ABC"
    assert connection.closed is not None
