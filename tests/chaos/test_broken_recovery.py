"""Simulated chaos is able to fail: recovery that is broken on purpose is caught, each by name."""

from __future__ import annotations

import pytest
from chaos_support import drawn, first_failure, plan_of, simulator

import fogveil.protocol.clock_client as clock_client
from fogveil.agent.boundary_client import BoundaryClient
from fogveil.clock.process import EpisodeLog
from fogveil.clock.session import Session
from fogveil.protocol.identity import AGENT
from fogveil.protocol.message_order import OrderedInbox
from fogveil.testbed.chaos.draw import SIMULATED_KINDS
from fogveil.testbed.chaos.faults import Fault, FaultPlan
from fogveil.testbed.chaos.outcome import run_plans
from fogveil.testbed.chaos.shrink import shrink
from fogveil.v1.clock_pb2 import Hello

SEEDS = range(150)
"""In which each breakage must be caught."""


def the_clocks_log_is_not_written(monkeypatch):
    monkeypatch.setattr(EpisodeLog, "begin", lambda _self: None)
    monkeypatch.setattr(EpisodeLog, "append", lambda _self, _entry: None)


def nothing_that_comes_twice_is_dropped(monkeypatch):
    def take(inbox, _episode, _sequence, message, _content=b""):
        inbox._next += 1
        return [message]

    monkeypatch.setattr(OrderedInbox, "take", take)


def a_count_is_answered_anew_after_a_restart(monkeypatch):
    counts_call = BoundaryClient._counts_call

    def from_the_start(client, name):
        client._received[name] = 0
        return counts_call(client, name)

    monkeypatch.setattr(BoundaryClient, "_counts_call", from_the_start)


def the_clock_ignores_that_messages_are_missing(monkeypatch):
    monkeypatch.setattr(Session, "_ask_again", lambda *_: None)


def who_joins_again_does_not_say_what_it_has(monkeypatch):
    def hello(*, received, episode, said, **facts):
        return Hello(**facts)

    monkeypatch.setattr(clock_client, "Hello", hello)


BREAKAGES = [
    the_clocks_log_is_not_written,
    nothing_that_comes_twice_is_dropped,
    a_count_is_answered_anew_after_a_restart,
    the_clock_ignores_that_messages_are_missing,
    who_joins_again_does_not_say_what_it_has,
]


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda each: each.__name__)
def test_chaos_catches_broken_recovery(monkeypatch, breakage):
    with simulator() as runner:
        assert runner.steps  # the undisturbed run needs no recovery
        breakage(monkeypatch)
        assert first_failure(runner, drawn(runner, SEEDS)), "it was not caught"


def test_the_guilty_fault_is_found(monkeypatch):
    guilty = Fault(0.4, "drop", AGENT, number=1)
    harmless = [
        Fault(0.2, "double", AGENT, number=2),
        Fault(0.3, "stall", "fog-1", seconds=0.2),
        Fault(0.7, "delay", "sources-1", seconds=0.1, number=1),
    ]
    with simulator() as runner:
        the_clock_ignores_that_messages_are_missing(monkeypatch)
        assert runner.run(plan_of(*harmless)).passed
        plan = plan_of(harmless[0], guilty, *harmless[1:])
        (tally,) = run_plans(runner, [plan], shrinking=lambda _plan: None)
        (failure,) = tally.failures
        assert failure.plan == plan
        assert failure.smallest.faults == (guilty,)
        assert "waited" in failure.faults[0]
        again = FaultPlan.parse(failure.smallest.text(), SIMULATED_KINDS, runner.roster)
        assert again == failure.smallest, "what is printed repeats it"


def test_two_faults_that_are_guilty_together_are_found():
    faults = [Fault(0.1 * n, "kill", f"fog-{n}") for n in range(6)]
    smallest = shrink(plan_of(*faults), lambda plan: {faults[1], faults[4]} <= set(plan.faults))
    assert smallest.faults == (faults[1], faults[4])


def test_shrinking_ends_after_a_number_of_tries():
    tries = []
    faults = [Fault(0.01 * n, "kill", "fog-1") for n in range(50)]
    smallest = shrink(plan_of(*faults), lambda plan: bool(tries.append(plan)), tries=30)
    assert smallest.faults == tuple(faults)
    assert len(tries) == 30
