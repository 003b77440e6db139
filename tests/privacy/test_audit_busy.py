"""The audit on a busy machine: whoever is late or gone is no broken promise, and no pass."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager

import grpc
import pytest
from audit_support import broken
from grpc import aio
from support import SCENARIOS

from fogveil.core.errors import InfrastructureError
from fogveil.protocol.identity import AGENT, CLOCK
from fogveil.protocol.namespaces import available_namespaces
from fogveil.protocol.recording import STATUS
from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.launch.testbed import HELD_FOR
from fogveil.testbed.privacy.audit import grpc_access_check
from fogveil.testbed.privacy.audit.canaries import plant
from fogveil.testbed.privacy.audit.findings import Verdict, judge
from fogveil.testbed.privacy.audit.grpc_access_check import ANSWERED, LOST, check_grpc_access
from fogveil.testbed.privacy.audit.procedure import ENDED_EARLY, telling_what_is_broken
from fogveil.testbed.privacy.audit.recording_check import STATUS_TEXTS, check_wire
from fogveil.testbed.privacy.audit.tapped_run import run_tapped
from fogveil.testbed.privacy.audit.traffic import Traffic
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import build_world

DISCONNECT = b"\xe0\x00"


def planted_world():
    return build_world(plant(load_scenario(SCENARIOS / "tiny.toml", {"horizon": 300})))


# --- the end of a run ----------------------------------------------------------------------------


def test_an_agent_that_leaves_late_is_told_nothing_by_the_providers(sabotage, run_testbed):
    """It was told of lost connections, which counted as error texts of the providers."""
    sabotage("""
        import sys
        if "fogveil.agent" in sys.orig_argv:
            import asyncio
            from fogveil.protocol.clock_client import ClockClient
            orders = ClockClient.orders
            async def late(self):
                async for order in orders(self):
                    yield order
                await asyncio.sleep(3)
            ClockClient.orders = late
    """)
    patience = []

    def before_agent(testbed, _world):
        config = testbed.split.folder_of(CLOCK) / "config.json"
        patience.append(json.loads(config.read_text())["patience"])

    run, _ = run_testbed(before_agent=before_agent)
    wire = check_wire(run)
    assert wire.verdict is Verdict.PASS, wire
    providers = {*run.world.nodes, run.world.cloud}
    ends = [c.text for c in run.crossings(AGENT) if c.sender in providers and c.kind == STATUS]
    assert ends == []
    # The clock does not count the time in which an auditor holds the run.
    assert patience[0] > HELD_FOR


@pytest.mark.parametrize(
    ("status", "own"),
    [
        ("OK ", True),
        ("CANCELLED Locally cancelled by application!", True),
        ("UNAVAILABLE Cancelling all calls", True),
        ("UNAVAILABLE Stream removed (Secure read failed (Socket closed))", True),
        (
            "UNAVAILABLE Stream removed (Secure read failed (recvmsg:Connection reset by peer))",
            True,
        ),
        ("UNAVAILABLE Socket closed at 377918273", False),
        ("UNAVAILABLE 377918273", False),
        ("INTERNAL Socket closed", False),
        ("FAILED_PRECONDITION ", False),
    ],
)
def test_the_ends_of_calls_that_are_grpcs_own(status, own):
    assert bool(STATUS_TEXTS.fullmatch(status)) is own


# --- what the auditor tries ----------------------------------------------------------------------


def test_a_testbed_that_ended_is_no_testbed_that_refuses_wrongly(tmp_path):
    """Calls without an answer counted as answered, and those without a connection as refused."""
    world = planted_world()
    plan = Plan(policies=("jsq",), broker="builtin")
    with create_testbed(world, plan, tmp_path / "testbed", hold=True) as testbed:
        provider = testbed.participants["fog-1"].process
        provider.kill()
        provider.wait()
        with pytest.raises(InfrastructureError, match="could not be reached as agent"):
            check_grpc_access(testbed, world)


def test_the_agent_waits_while_it_is_examined(tmp_path):
    """It was stopped instead, maybe after it had joined, and then the clock lost it."""
    states = []

    def with_agent(testbed):
        time.sleep(3)
        testbed._handle_events(0.1)
        states.append(testbed.participants[AGENT].state)

    evidence = run_tapped(
        planted_world(), Plan(policies=("jsq",), broker="builtin"), tmp_path, with_agent=with_agent
    )
    if available_namespaces() != "none":
        assert states == ["starting"]
    assert evidence.hashes


@asynccontextmanager
async def served(answer):
    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            async def call(_request, context):
                await answer(details.method, context)
                yield b""

            return grpc.unary_stream_rpc_method_handler(call)

    server = aio.server()
    server.add_generic_rpc_handlers((Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(None)


def test_a_slow_refusal_is_told_from_a_call_that_stays_open():
    """Whatever was not refused in some seconds counted as answered."""

    async def answer(method, context):
        if method == "/open":
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(2 * grpc_access_check.QUIET)
        if method != "/answered":
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "no")

    async def call():
        async with served(answer) as channel:
            calls = dict.fromkeys(("/open", "/refused", "/answered"), b"")
            return await grpc_access_check._call_all(channel, "fog-1", calls)

    results = {method: result for method, (result, _) in asyncio.run(call()).items()}
    assert results == {"/open": ANSWERED, "/refused": "PERMISSION_DENIED", "/answered": ANSWERED}


def test_a_server_that_answers_nothing_shows_nothing(monkeypatch):
    monkeypatch.setattr(grpc_access_check, "ANSWERED_WITHIN", 0.5)

    async def answer(_method, _context):
        await asyncio.get_running_loop().create_future()

    async def call():
        async with served(answer) as channel:
            await grpc_access_check._call_all(channel, "fog-1", {"/refused": b""})

    with pytest.raises(InfrastructureError, match=r"fog-1 answered no call within 0\.5 s"):
        asyncio.run(call())
    assert LOST in grpc_access_check.CUT_OFF  # so a server that is gone must be told from a refusal


# --- what the auditor records --------------------------------------------------------------------


@pytest.mark.parametrize("plane", ["mqtt", "clock"])
def test_a_recording_that_lacks_its_end_is_no_evidence(honest, plane):
    evidence = honest.copy()
    connection = next(evidence.wire.on(plane))
    del connection.up.content[-len(DISCONNECT) :]
    connection.cut = False  # after its end it may have been, which tells nothing
    Traffic(evidence.wire).require_ends()  # nothing hints at the tap: it is the sender's doing
    assert broken(evidence) >= {"frames" if plane == "clock" else "packets"}
    connection.cut = True
    with pytest.raises(InfrastructureError, match=f"lost the end of {connection}"):
        Traffic(evidence.wire).require_ends()


def test_a_connection_that_was_cut_after_its_end_is_evidence(honest):
    evidence = honest.copy()
    for connection in evidence.wire.connections:
        connection.cut = True
    assert all(c.up.content.endswith(DISCONNECT) for c in evidence.wire.on("mqtt"))
    Traffic(evidence.wire).require_ends()


def test_an_early_end_is_told_with_what_is_broken_and_else_it_is_the_error():
    findings = [judge("a promise", "shown", [], 1)]
    with pytest.raises(InfrastructureError), telling_what_is_broken(findings):
        raise InfrastructureError("fog-1 was lost")
    assert [finding.verdict for finding in findings] == [Verdict.PASS]
    findings.append(judge("another", "", ["a fault"], 1))
    with telling_what_is_broken(findings):
        raise InfrastructureError("fog-1 was lost")
    assert findings[-1].promise == ENDED_EARLY
    assert findings[-1].verdict is Verdict.NOT_SHOWN
    assert findings[-1].evidence == "fog-1 was lost"
