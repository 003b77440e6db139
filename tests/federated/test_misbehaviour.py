"""Whoever misbehaves is refused or named; a healthy run goes on and is the right one."""

from __future__ import annotations

import queue
import shutil
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

from broker.starting import start_broker
from fogveil.channels import PROTOCOL
from fogveil.errors import InputError, SurroundingsError
from fogveil.identity import Credentials, Identity
from fogveil.v1.boundary_pb2 import WatchRequest
from fogveil.v1.boundary_pb2_grpc import QueueServiceStub
from fogveil.v1.clock_pb2 import AgentDone, Hello, JoinRequest, ProviderReady
from fogveil.v1.clock_pb2_grpc import ClockServiceStub
from fogveil.v1.full_pb2 import LookRequest
from fogveil.v1.full_pb2_grpc import ResourcesServiceStub
from fogveil.v1.total_pb2 import TotalServiceWatchRequest
from fogveil.v1.total_pb2_grpc import TotalServiceStub
from testbed.federated.run import run_federated
from testbed.federated.split import Plan

TINY = ROOT / "scenarios/tiny.toml"


# --- others who want to take part -----------------------------------------------------------------


def second(testbed, name: str, folder: Path, /, **changes):
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
                stack.enter_context(second(testbed, name, tmp_path / "second")) for name in names
            ]
            for name, process in zip(names, started, strict=True):
                code, said = last_words(process)
                assert code == 2, said
                assert said.endswith(f": the clock refused: {name} has joined already")

    log = run_and_disturb(tmp_path, act, secure=secure)
    assert "refused: agent has joined already" in log


def test_whoever_belongs_to_another_run_or_to_none_is_refused(tmp_path):
    cases = {
        "fog-1": ({"run": "7f7f"}, "fog-1 was set up for another run"),
        "fog-2": ({"name": "fog-9"}, "nobody called 'fog-9' takes part"),
        "sources": ({"name": "sources-2"}, "nobody called 'sources-2' takes part"),
    }

    def act(testbed):
        for name, (changes, sentence) in cases.items():
            with second(testbed, name, tmp_path / "second", **changes) as process:
                code, said = last_words(process)
                assert code == 2, said
                assert said.endswith(f": the clock refused: {sentence}")
        address = testbed.addresses["clock"]
        for hello, sentence in (
            (
                Hello(name="fog-1", protocol=9, run=testbed.run),
                "fog-1 speaks protocol 9, this is 1",
            ),
            (Hello(), "somebody speaks protocol 0, this is 1"),
            (Hello(protocol=PROTOCOL, run=testbed.run), "nobody called '' takes part"),
        ):
            with seat(address, hello) as other:
                assert other.refusal() == sentence
        with grpc.insecure_channel(address) as channel:  # one that says nothing and leaves
            call = ClockServiceStub(channel).Join(iter(queue.SimpleQueue().get, None))
            call.cancel()

    log = run_and_disturb(tmp_path, act, secure=False)
    for _, sentence in cases.values():
        assert f"refused: {sentence}" in log


@contextmanager
def seat(address: str, hello: Hello):
    with grpc.insecure_channel(address) as channel:
        made = Seat(channel, hello)
        try:
            yield made
        finally:
            made.leave()


class Seat:
    """A seat at the clock for one that says what it is told to."""

    def __init__(self, channel: grpc.Channel, hello: Hello) -> None:
        self._words = queue.SimpleQueue()
        self._call = ClockServiceStub(channel).Join(iter(self._words.get, None), timeout=PATIENCE)
        self.say(hello=hello)

    def say(self, **kind) -> None:
        self._words.put(JoinRequest(**kind))

    def hear(self):
        return next(self._call)

    def refusal(self) -> str:
        with pytest.raises(grpc.RpcError) as refused:
            self.hear()
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        return refused.value.details()

    def leave(self) -> None:
        self._call.cancel()
        self._words.put(None)


# --- at the clock ---------------------------------------------------------------------------------


@contextmanager
def clock_with(folder: Path, *names: str, **changes):
    """A clock, and the named participants at it, played by the test."""
    parts = Parts(folder)
    with participant(Parts.change(parts.split.clock(), **changes)) as clock, ExitStack() as stack:
        address = f"127.0.0.1:{port_of(clock)}"
        hellos = [Hello(name=name, protocol=PROTOCOL, run=parts.run) for name in names]
        yield clock, {h.name: stack.enter_context(seat(address, h)) for h in hellos}


EVERYBODY = ("sources", "agent", "fog-1", "fog-2", "fog-3", "cloud")


@pytest.mark.parametrize(
    ("who", "words", "sentence"),
    [
        ("agent", {"agent_done": AgentDone(placed=[1, 0, 0])}, "agent said agent_done out of turn"),
        ("fog-2", {"agent_done": AgentDone(placed=[1, 0, 0])}, "fog-2 said agent_done out of turn"),
        ("cloud", {"hello": Hello(name="agent")}, "cloud said hello out of turn"),
        ("fog-1", {}, "fog-1 said None out of turn"),
    ],
)
def test_whoever_speaks_out_of_turn_is_named_to_all(tmp_path, who, words, sentence):
    with clock_with(tmp_path, *EVERYBODY) as (clock, seats):
        for each in seats.values():
            assert each.hear().WhichOneof("kind") == "begin"
        seats[who].say(**words)
        whole = f"the run ended at simulated time 0: {sentence}"
        for each in seats.values():
            end = each.hear().end
            assert end.failed
            assert end.sentence == whole
        for each in seats.values():
            each.leave()
        assert last_words(clock) == (3, f"testbed.federated.clock: {whole}")


def test_whoever_speaks_before_all_are_there_is_named(tmp_path):
    with clock_with(tmp_path, "agent", "fog-1") as (clock, seats):
        seats["fog-1"].say(provider_ready=ProviderReady())
        assert seats["agent"].hear().end.sentence == (
            "the run ended at simulated time 0: "
            "fog-1 said provider_ready before everybody was there"
        )
        for each in seats.values():
            each.leave()
        assert last_words(clock)[0] == 3


def test_who_never_joins_is_named_to_those_who_did(tmp_path):
    with clock_with(tmp_path, "fog-2", own__patience=2.0) as (clock, seats):
        sentence = "never joined the clock: sources, agent, fog-1, fog-3, cloud"
        assert seats["fog-2"].hear().end.sentence == sentence
        seats["fog-2"].leave()
        assert last_words(clock) == (3, f"testbed.federated.clock: {sentence}")


# --- at the boundary ------------------------------------------------------------------------------

CALLS = {
    "QueueService": lambda channel: QueueServiceStub(channel).Watch(WatchRequest()),
    "TotalService": lambda channel: TotalServiceStub(channel).Watch(TotalServiceWatchRequest()),
    "ResourcesService": lambda channel: ResourcesServiceStub(channel).Look(iter([LookRequest()])),
}


def answer_of(channel, service: str):
    """Return how a call ends, or OK if it goes on."""
    call = CALLS[service](channel)
    try:
        list(call.initial_metadata())
        if service == "ResourcesService":
            next(call)
    except grpc.RpcError as error:
        return error.code()
    finally:
        call.cancel()
    # A refusal has metadata, too: then the call is over.
    return call.code() if call.code() is not grpc.StatusCode.CANCELLED else grpc.StatusCode.OK


@pytest.mark.parametrize(
    ("level", "served"),
    [
        ("none", ()),
        ("count", ("QueueService",)),
        ("full", ("QueueService", "ResourcesService")),
    ],
)
def test_a_port_serves_what_the_level_says_and_nothing_else(tmp_path, level, served):
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
from agent.policy import Level, Policy

class P(Policy):
    needs = Level.COUNT

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
    ],
)
def test_a_policy_that_fails_is_one_sentence(tmp_path, fault, sentence):
    (tmp_path / "p.py").write_text(POLICY.format(fault=fault))
    with pytest.raises(InputError, match=f"^agent: {sentence}$"):
        run_federated(make_scenario(), Plan((f"{tmp_path}/p.py:P",)), tmp_path / "out")
    decided = (tmp_path / "out/participants/agent/decisions-0000.csv").read_text()
    assert decided.count("\n") == 50


def test_a_policy_that_ends_the_process_is_a_lost_agent(tmp_path):
    (tmp_path / "p.py").write_text(POLICY.format(fault="os._exit(0)"))
    with pytest.raises(SurroundingsError, match=r"^the agent was lost at simulated time \S+$"):
        run_federated(make_scenario(), Plan((f"{tmp_path}/p.py:P",)), tmp_path / "out")


def test_a_policy_that_fails_ends_the_command_with_code_2(tmp_path):
    (tmp_path / "p.py").write_text(POLICY.format(fault="raise ValueError('no')"))
    words = ("run", TINY, "--federated", "--policy", "./p.py:P", "--out", tmp_path / "out")
    done = fogveil(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("fogveil: agent: policy P failed at time ")
    assert "Traceback" not in done.stderr + (tmp_path / "out/testbed.log").read_text()
