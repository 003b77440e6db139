"""A participant that misbehaves is refused or named; a healthy run goes on, and is correct."""

from __future__ import annotations

import os
import queue
import re
import shutil
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest
from federated_support import (
    PATIENCE,
    Parts,
    fogveil,
    last_words,
    listening,
    make_scenario,
    participant,
    port_of,
    run_and_disturb,
)
from support import ROOT

from fogveil.broker.launcher import start_broker
from fogveil.core.errors import InfrastructureError, InputError
from fogveil.protocol.channels import PROTOCOL, WELCOME
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import Identity
from fogveil.testbed.launch.federated_run import run_federated
from fogveil.testbed.launch.participant_config import Plan
from fogveil.v1.boundary_pb2 import WatchRequest
from fogveil.v1.boundary_pb2_grpc import QueueServiceStub
from fogveil.v1.clock_pb2 import AgentDone, Hello, JoinRequest, Lost, ProviderReady
from fogveil.v1.clock_pb2_grpc import ClockServiceStub
from fogveil.v1.full_pb2 import LookRequest
from fogveil.v1.full_pb2_grpc import ResourcesServiceStub
from fogveil.v1.total_pb2 import TotalServiceWatchRequest
from fogveil.v1.total_pb2_grpc import TotalServiceStub

TINY = ROOT / "scenarios/tiny.toml"


# --- participants that do not belong to the run ---------------------------------------------------


def start_copy(testbed, name: str, folder: Path, /, **changes):
    """Start a participant from a copy of another one's folder."""
    shutil.copytree(testbed.split.folder_of(name), folder / name)
    config = Parts.change(folder / name / "config.json", lifeline=False, **changes)
    return participant(config)


@pytest.mark.parametrize("secure", [True, False])
def test_a_second_participant_of_the_same_name_is_refused(tmp_path, secure):
    def act(testbed):
        with ExitStack() as stack:
            names = ("fog-1", "agent", "sources", "cloud")
            started = [
                stack.enter_context(start_copy(testbed, name, tmp_path / "second"))
                for name in names
            ]
            for name, process in zip(names, started, strict=True):
                code, said = last_words(process)
                assert code == 2, said
                assert said.endswith(f": the clock refused: {name} has joined already")

    log = run_and_disturb(tmp_path, act, secure=secure)
    assert "refused: agent has joined already" in log


def test_a_participant_of_another_run_or_of_none_is_refused(tmp_path):
    cases = {
        "fog-1": ({"run": "7f7f"}, "fog-1 was set up for another run"),
        "fog-2": ({"name": "fog-9"}, "no participant is called 'fog-9'"),
        "sources": ({"name": "sources-2"}, "no participant is called 'sources-2'"),
    }

    def act(testbed):
        for name, (changes, sentence) in cases.items():
            with start_copy(testbed, name, tmp_path / "second", **changes) as process:
                code, said = last_words(process)
                assert code == 2, said
                assert said.endswith(f": the clock refused: {sentence}")
        address = testbed.addresses["clock"]
        for hello, sentence in (
            (
                Hello(name="fog-1", protocol=9, run=testbed.run),
                f"fog-1 speaks protocol 9, this is {PROTOCOL}",
            ),
            (Hello(), f"somebody speaks protocol 0, this is {PROTOCOL}"),
            (Hello(protocol=PROTOCOL, run=testbed.run), "no participant is called ''"),
            (
                Hello(name="\x1b[2J\x9b", protocol=PROTOCOL, run=testbed.run),
                r"no participant is called '\x1b[2J\x9b'",
            ),
        ):
            with join(address, hello) as other:
                assert other.refusal() == sentence
        with grpc.insecure_channel(address) as channel:  # one that says nothing and leaves
            call = ClockServiceStub(channel).Join(iter(queue.SimpleQueue().get, None))
            call.cancel()

    log = run_and_disturb(tmp_path, act, secure=False)
    for _, sentence in cases.values():
        assert f"refused: {sentence}" in log


@contextmanager
def join(address: str, hello: Hello):
    with grpc.insecure_channel(address) as channel:
        stream = ClockStream(channel, hello)
        try:
            yield stream
        finally:
            stream.leave()


class ClockStream:
    """A participant's stream to the clock, for a test that plays the participant."""

    def __init__(self, channel: grpc.Channel, hello: Hello) -> None:
        self._requests = queue.SimpleQueue()
        self._call = ClockServiceStub(channel).Join(
            iter(self._requests.get, None), timeout=PATIENCE
        )
        self.send(hello=hello)

    def send(self, **kind) -> None:
        self._requests.put(JoinRequest(**kind))

    def wait_for_admission(self) -> None:
        assert set(WELCOME) <= set(self._call.initial_metadata())

    def receive(self):
        return next(self._call)

    def refusal(self) -> str:
        with pytest.raises(grpc.RpcError) as refused:
            self.receive()
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        return refused.value.details()

    def leave(self) -> None:
        self._call.cancel()
        self._requests.put(None)


# --- at the clock ---------------------------------------------------------------------------------


@contextmanager
def clock_with(folder: Path, *names: str, **changes):
    """A clock, and participants that have joined it, played by the test."""
    parts = Parts(folder)
    with participant(Parts.change(parts.split.clock(), **changes)) as clock, ExitStack() as stack:
        address = f"127.0.0.1:{port_of(clock)}"
        hellos = [Hello(name=name, protocol=PROTOCOL, run=parts.run) for name in names]
        streams = {h.name: stack.enter_context(join(address, h)) for h in hellos}
        for each in streams.values():
            each.wait_for_admission()
        yield clock, streams


EVERYBODY = ("sources", "agent", "fog-1", "fog-2", "fog-3", "cloud")


@pytest.mark.parametrize(
    ("name", "message", "sentence"),
    [
        ("agent", {"agent_done": AgentDone(placed=[1, 0, 0])}, "agent sent agent_done out of turn"),
        ("fog-2", {"agent_done": AgentDone(placed=[1, 0, 0])}, "fog-2 sent agent_done out of turn"),
        ("cloud", {"hello": Hello(name="agent")}, "cloud sent hello out of turn"),
        ("fog-1", {}, "fog-1 sent None out of turn"),
        # The first version repeated any name: escapes reached everybody's terminal.
        (
            "fog-3",
            {"lost": Lost(name="\x1b[2Jfog-1")},
            r"fog-3 reported the loss of '\x1b[2Jfog-1', who takes no part",
        ),
    ],
)
def test_a_message_out_of_turn_ends_the_run_with_the_name_of_its_sender(
    tmp_path, name, message, sentence
):
    with clock_with(tmp_path, *EVERYBODY) as (clock, streams):
        for each in streams.values():
            assert each.receive().WhichOneof("kind") == "begin"
        streams[name].send(**message)
        whole = f"the run ended at simulated time 0: {sentence}"
        for each in streams.values():
            end = each.receive().end
            assert end.failed
            assert end.sentence == whole
        for each in streams.values():
            each.leave()
        assert last_words(clock) == (3, f"fogveil.clock: {whole}")


def test_a_message_before_all_have_joined_is_refused_with_the_name_of_its_sender(tmp_path):
    with clock_with(tmp_path, "agent", "fog-1") as (clock, streams):
        streams["fog-1"].send(provider_ready=ProviderReady())
        assert streams["agent"].receive().end.sentence == (
            "the run ended at simulated time 0: "
            "fog-1 sent provider_ready before everybody had joined"
        )
        for each in streams.values():
            each.leave()
        assert last_words(clock)[0] == 3


def test_those_who_never_join_are_named(tmp_path):
    with clock_with(tmp_path, "fog-2", patience=10.0) as (clock, streams):
        sentence = "never joined the clock: sources, agent, fog-1, fog-3, cloud"
        assert streams["fog-2"].receive().end.sentence == sentence
        streams["fog-2"].leave()
        assert last_words(clock) == (3, f"fogveil.clock: {sentence}")


# --- at the boundary ------------------------------------------------------------------------------

CALLS = {
    "QueueService": lambda channel: QueueServiceStub(channel).Watch(WatchRequest()),
    "TotalService": lambda channel: TotalServiceStub(channel).Watch(TotalServiceWatchRequest()),
    "ResourcesService": lambda channel: ResourcesServiceStub(channel).Look(iter([LookRequest()])),
}


REFUSED_WITHIN = 2.0


def answer_of(channel, service: str):
    """Return the status of a call, OK while it is open."""
    call = CALLS[service](channel)
    try:
        list(call.initial_metadata())
        if service == "ResourcesService":
            next(call)
        # A refusal has metadata, too; its status comes with them, but may be read a moment later.
        deadline = time.monotonic() + REFUSED_WITHIN
        while call.is_active() and time.monotonic() < deadline:
            time.sleep(0.01)
    except grpc.RpcError as error:
        return error.code()
    finally:
        call.cancel()
    return call.code() if call.code() is not grpc.StatusCode.CANCELLED else grpc.StatusCode.OK


@pytest.mark.parametrize(
    ("level", "served"),
    [
        ("none", ()),
        ("count", ("QueueService",)),
        ("full", ("QueueService", "ResourcesService")),
    ],
)
def test_a_port_serves_the_services_of_the_level_and_no_other(tmp_path, level, served):
    broker = start_broker("builtin", tmp_path / "broker")
    parts = Parts(tmp_path, broker=broker.address, disclosure=level)
    try:
        with participant(parts.split.clock()) as clock:
            address = f"127.0.0.1:{port_of(clock)}"
            with participant(parts.split.provider("fog-1", address)) as provider:
                port = port_of(provider)
                assert listening(provider.pid) == ({port} if served else set())
                assert (port is None) == (not served)
                if served:
                    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                        reached = [
                            service
                            for service in CALLS
                            if answer_of(channel, service) is not grpc.StatusCode.UNIMPLEMENTED
                        ]
                    assert reached == list(served)
    finally:
        broker.stop()


def test_a_second_watcher_is_refused_and_the_first_one_undisturbed(tmp_path):
    def act(testbed):
        for name in ("fog-1", "fog-3"):
            with grpc.insecure_channel(testbed.addresses[name]) as channel:
                with pytest.raises(grpc.RpcError) as refused:
                    list(QueueServiceStub(channel).Watch(WatchRequest(), timeout=PATIENCE))
                assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
                assert refused.value.details() == "somebody watches already"
                with pytest.raises(grpc.RpcError) as refused:
                    next(ResourcesServiceStub(channel).Look(iter([LookRequest()])))
                assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED

    run_and_disturb(tmp_path, act, secure=False)


def test_with_the_agents_own_identity_a_total_has_no_counts(tmp_path):
    def act(testbed):
        credentials = Credentials(testbed.split.folder_of("agent") / "identity")
        host = Identity(testbed.run, "provider", "fog-2").host
        options = [("grpc.ssl_target_name_override", host)]
        with grpc.secure_channel(
            testbed.addresses["fog-2"], credentials.for_channel(), options
        ) as channel:
            for call in (CALLS["QueueService"], CALLS["ResourcesService"]):
                with pytest.raises(grpc.RpcError) as refused:
                    next(call(channel))
                assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
            with pytest.raises(grpc.RpcError) as refused:
                next(CALLS["TotalService"](channel))
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        with (
            grpc.insecure_channel(testbed.addresses["fog-2"]) as channel,
            pytest.raises(grpc.RpcError) as refused,
        ):
            next(CALLS["TotalService"](channel))
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE

    run_and_disturb(tmp_path, act, "total")


def test_a_look_at_an_unknown_category_is_refused(tmp_path):
    def act(testbed):
        with (
            grpc.insecure_channel(testbed.addresses["fog-2"]) as channel,
            pytest.raises(grpc.RpcError) as refused,
        ):
            next(ResourcesServiceStub(channel).Look(iter([LookRequest(category=77)])))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    run_and_disturb(tmp_path, act, "full", secure=False)


# --- policies -------------------------------------------------------------------------------------

POLICY = """
import os, sys
from fogveil.agent.policy import Level, Policy

class P(Policy):
    needs = Level.COUNT
    answers_within = 2.0

    def reset(self):
        self.decided = 0

    def place(self, seen):
        self.decided += 1
        if self.decided == 50:
            {fault}
        return 0
"""


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (
            "raise ValueError('I give\\n up')",
            r"policy P failed at time 743\.671: ValueError: I give up",
        ),
        ("return 99", "policy P placed a workload on node 99: expected 0 to 2"),
        ("return 'fog-1'", r"policy P failed at time \S+: TypeError: .*integer"),
        ("print('bye'); sys.exit(0)", r"policy P failed at time \S+: SystemExit: 0"),
        ("while True: pass", r"policy P did not return from place at time \S+ within 2 s; .*"),
    ],
)
def test_a_policy_that_fails_is_one_sentence(tmp_path, fault, sentence):
    (tmp_path / "p.py").write_text(POLICY.format(fault=fault))
    with pytest.raises(InputError, match=f"^agent: {sentence}(\n|$)"):
        run_federated(make_scenario(), Plan((f"{tmp_path}/p.py:P",)), tmp_path / "out")
    decided = (tmp_path / "out/participants/agent/decisions-0000.csv").read_text()
    assert decided.count("\n") == 50


def test_a_policy_that_ends_the_process_is_a_lost_agent(tmp_path):
    (tmp_path / "p.py").write_text(POLICY.format(fault="os._exit(0)"))
    with pytest.raises(InfrastructureError, match=r"^the agent was lost at simulated time \S+$"):
        run_federated(make_scenario(), Plan((f"{tmp_path}/p.py:P",)), tmp_path / "out")


def test_a_policy_that_fails_ends_the_command_with_code_2(tmp_path):
    (tmp_path / "p.py").write_text(POLICY.format(fault="import beside; beside.fail()"))
    (tmp_path / "beside.py").write_text("def fail():\n    raise ValueError('no\\x1b[2J')\n")
    command = ("run", TINY, "--federated", "--policy", "./p.py:P", "--out", tmp_path / "out")
    done = fogveil(*command, cwd=tmp_path)
    assert done.returncode == 2
    # A slow machine shows progress first.
    said = done.stderr.splitlines()
    first, *lines = [line for line in said if "% done" not in line]
    assert re.fullmatch(
        r"fogveil: agent: policy P failed at time \S+: ValueError: no\\x1b\[2J", first
    )
    assert re.fullmatch(r"  p.py, line \d+, in place: import beside; beside.fail\(\)", lines[0])
    assert lines[1] == r"  beside.py, line 2, in fail: raise ValueError('no\x1b[2J')"
    assert "Traceback" not in done.stderr + (tmp_path / "out/testbed.log").read_text()


# --- an agent that places jobs which nobody emitted -----------------------------------------------


PHANTOMS = """
import fogveil.agent.process as process
from fogveil.v1.workload_pb2 import Placement, Placements
place = process.BrokerClient.publish
def publish(self, topic, payload, **options):
    message = Placements.FromString(payload)
    last = message.placements[-1]
    for number in range(20):  # after the real ones, with ids that no source uses
        job = 10**6 + 100 * last.job + number
        message.placements.append(Placement(job=job, arrival=last.arrival, category=0))
    place(self, topic, message.SerializeToString(), **options)
process.BrokerClient.publish = publish
from fogveil.agent.__main__ import *
"""


def test_jobs_that_nobody_emitted_are_not_served_and_their_sender_is_named(tmp_path, monkeypatch):
    """In the first version 20 such jobs told the agent a provider's speed to 2 %."""
    (tmp_path / "phantoms").mkdir()
    (tmp_path / "phantoms" / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'fogveil.agent' in sys.orig_argv:\n"
        + "".join(f"    {line}\n" for line in PHANTOMS.strip().splitlines()[:-1])
    )
    path = os.pathsep.join(filter(None, (str(tmp_path / "phantoms"), os.environ.get("PYTHONPATH"))))
    monkeypatch.setenv("PYTHONPATH", path)
    out = tmp_path / "out"
    with pytest.raises(InfrastructureError, match=r"the agent placed \d+ jobs more on fog-\d than"):
        run_federated(make_scenario(horizon=800), Plan(("jsq",), broker="builtin"), out)
    journals = [path.read_text().splitlines()[1:] for path in out.rglob("journal-*.csv")]
    assert journals
    assert all(int(line.split(",")[0]) < 10**6 for lines in journals for line in lines)
