"""Real chaos: processes are killed and stopped at drawn moments; the run is the undisturbed one."""

from __future__ import annotations

import pytest

from fogveil.protocol.identity import AGENT, BROKER, CLOCK
from fogveil.testbed.chaos.draw import REAL_KINDS, draw_plan
from fogveil.testbed.chaos.faults import Fault, FaultPlan
from fogveil.testbed.chaos.real import RealRunner
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.scenario import load_scenario


def make_runner(policy="jsq", **options):
    scenario = load_scenario("tiny", {"horizon": 600.0})
    plan = Plan(policies=(policy,), recovers=True, source_processes=2, **options)
    return RealRunner(scenario, plan, run_embedded(scenario, policy)["run_hash"])


def assert_undisturbed(runner, plan):
    outcome = runner.run(plan)
    assert outcome.passed, f"{outcome.faults}: {plan.text()}"
    return outcome


def test_two_at_once_and_the_broker_are_killed():
    faults = Fault(0.3, "kill", AGENT), Fault(0.3, "kill", "fog-2"), Fault(0.6, "kill", BROKER)
    outcome = assert_undisturbed(make_runner(), FaultPlan(1, faults))
    assert outcome.losses >= 2


def test_the_clock_is_killed_while_somebody_stands_still():
    faults = Fault(0.3, "stall", "fog-1", seconds=1.0), Fault(0.4, "kill", CLOCK)
    outcome = assert_undisturbed(make_runner("random", broker="builtin"), FaultPlan(1, faults))
    assert outcome.losses >= 1


@pytest.mark.parametrize("seed", [5])
def test_a_drawn_plan(seed):
    runner = make_runner()
    assert_undisturbed(runner, draw_plan(seed, runner.roster, REAL_KINDS))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_ten_drawn_plans(seed):
    runner = make_runner("jsq" if seed % 2 else "random")
    assert_undisturbed(runner, draw_plan(seed, runner.roster, REAL_KINDS))


def test_another_run_hash_and_what_is_left_over_are_faults(monkeypatch):
    runner = make_runner()
    runner._expected = "another"

    monkeypatch.setattr(
        "fogveil.testbed.chaos.real._left_over", lambda _hands, _folder: ["process 7"]
    )
    outcome = runner.run(FaultPlan(1, ()))
    assert not outcome.passed
    assert "not another" in outcome.faults[0]
    assert outcome.faults[1:] == ["left over: process 7"]
