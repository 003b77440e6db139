"""Simulated chaos: whatever happens to whom, a run has the run hash of the undisturbed one."""

from __future__ import annotations

import re

import pytest
from chaos_support import drawn, plan_of, simulator

from fogveil.core.errors import InputError
from fogveil.protocol.identity import AGENT, BROKER, CLOCK
from fogveil.protocol.roster import Roster
from fogveil.testbed.chaos.draw import SIMULATED_KINDS, draw_plan
from fogveil.testbed.chaos.faults import Fault, FaultPlan

CHUNK = 100


def assert_undisturbed(runner, plans):
    losses = 0
    for plan in plans:
        outcome = runner.run(plan)
        assert outcome.passed, f"{outcome.faults}: {plan.text()}"
        losses += outcome.losses
    return losses


@pytest.mark.parametrize("chunk", range(4))
def test_lockstep_runs_recover(chunk):
    with simulator("jsq") as runner:
        assert assert_undisturbed(runner, drawn(runner, range(CHUNK * chunk, CHUNK * (chunk + 1))))


@pytest.mark.parametrize("chunk", range(4, 7))
def test_pipelined_runs_recover(chunk):
    with simulator("random") as runner:
        assert assert_undisturbed(runner, drawn(runner, range(CHUNK * chunk, CHUNK * (chunk + 1))))


@pytest.mark.parametrize(
    ("policy", "level", "seeds"),
    [("setr", "full", range(1000, 1040)), ("veil-total", "total", range(2000, 2004))],
)
def test_other_levels_recover(policy, level, seeds):
    with simulator(policy, disclosure=level) as runner:
        assert assert_undisturbed(runner, drawn(runner, seeds))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["jsq", "random"])
@pytest.mark.parametrize("thousand", range(10, 15))
def test_ten_thousand_runs_recover(policy, thousand):
    seeds = range(1000 * thousand, 1000 * (thousand + 1))
    with simulator(policy) as runner:
        assert assert_undisturbed(runner, drawn(runner, seeds))


def test_everybody_may_be_killed_at_once():
    with simulator() as runner:
        everybody = (*runner.roster.all, CLOCK, BROKER)
        for at in (0.0, 0.3, 0.6, 0.9):
            outcome = runner.run(plan_of(*((at, "kill", name) for name in everybody)))
            assert outcome.passed, outcome.faults
            assert at > 0.8 or outcome.losses >= len(everybody) - 1


def test_a_plan_gives_the_same_run_each_time():
    with simulator() as runner:
        for plan in drawn(runner, range(5)):
            first, second = runner.run(plan), runner.run(plan)
            assert (first.steps, first.seconds) == (second.steps, second.seconds)


def test_messages_that_are_lost_are_asked_for():
    with simulator() as runner:
        plan = plan_of(Fault(0.3, "drop", AGENT, number=5), Fault(0.4, "drop", "fog-2", number=5))
        outcome = runner.run(plan)
        assert outcome.passed
        assert outcome.losses == 0
        assert outcome.steps > runner.steps


# --- what chaos has found ------------------------------------------------------------------------

CRASH = {"at": 300.0, "kind": "crash", "node": "fog-1", "back": 450.0}
CRASHES = [CRASH, {**CRASH, "jobs": "lost", "notice": 30.0}]


def test_the_clock_is_lost_before_the_agent_is_started():
    with simulator("random") as runner:
        faults = (0.1, "kill", CLOCK), (0.2, "kill", "fog-1"), (0.25, "kill", CLOCK)
        assert_undisturbed(runner, [plan_of(*faults, seed=seed) for seed in range(5)])


def test_the_clock_is_lost_while_it_ends_the_run():
    with simulator("random") as runner:
        plans = [plan_of((0.9 + 0.005 * n, "kill", CLOCK), seed=n) for n in range(20)]
        assert_undisturbed(runner, plans)


@pytest.mark.parametrize("crash", CRASHES, ids=["jobs kept", "jobs lost"])
@pytest.mark.parametrize("who", [AGENT, "fog-1", "sources-1"])
def test_a_loss_after_a_crash_of_the_scenario(crash, who):
    with simulator(events=[crash]) as runner:
        plans = [plan_of((at, "kill", who)) for at in (0.4, 0.85, 0.9)]
        assert assert_undisturbed(runner, plans)


# --- plans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("kill", "Expecting value"),
        ('{"seed":1}', "expected {"),
        ('{"seed":1,"faults":[7]}', "expected the keys"),
        ('{"seed":1,"faults":[{"at":0.5,"kind":"kill"}]}', "who: field required"),
        ('{"seed":1,"faults":[{"at":2,"kind":"kill","who":"agent"}]}', "at from 0 to 1"),
        ('{"seed":1,"faults":[{"at":"x","kind":"kill","who":"agent"}]}', "valid number"),
        ('{"seed":1,"faults":[{"at":0.5,"kind":"tickle","who":"agent"}]}', "none of the kinds"),
        ('{"seed":1,"faults":[{"at":0.5,"kind":"kill","who":"nobody"}]}', "'nobody' is none of"),
        ('{"seed":1,"faults":[{"at":0.5,"kind":"torn","who":"agent"}]}', "only the clock"),
        ('{"seed":1,"faults":[{"at":0.5,"kind":"cut","who":"agent"}]}', "none of the streams"),
        ('{"seed":1,"faults":[{"at":0.5,"kind":"drop","who":"clock"}]}', "publishes no messages"),
    ],
)
def test_bad_plans_are_refused_in_a_sentence(text, reason):
    names = Roster(("sources",), ("fog-1",), "cloud")
    with pytest.raises(InputError, match=f"(?s)--plan: .*{re.escape(reason)}"):
        FaultPlan.parse(text, SIMULATED_KINDS, names)


def test_a_plan_is_read_back_as_it_was_printed():
    names = Roster(("sources",), ("fog-1", "fog-2"), "cloud")
    for seed in range(50):
        plan = draw_plan(seed, names, SIMULATED_KINDS)
        assert FaultPlan.parse(plan.text(), SIMULATED_KINDS, names) == plan
