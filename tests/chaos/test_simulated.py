"""Simulated chaos: whatever happens to whom, a run has the run hash of the undisturbed one."""

from __future__ import annotations

import pytest
from chaos_support import drawn, plan_of, simulator

from fogveil.protocol.identity import AGENT, BROKER, CLOCK
from fogveil.testbed.chaos.faults import Fault

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
