"""Simulators of short runs, and plans of faults for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fogveil.testbed.chaos.draw import SIMULATED_KINDS, draw_plan
from fogveil.testbed.chaos.faults import Fault, FaultPlan
from fogveil.testbed.chaos.simulation import Simulator
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.scenario import load_scenario


@contextmanager
def simulator(policy: str = "jsq", scenario: str = "tiny", **overrides: Any) -> Iterator[Simulator]:
    """Simulate about 50 decisions of a scenario."""
    chosen = load_scenario(scenario, {"horizon": 600.0, **overrides})
    plan = Plan(
        policies=(policy,),
        secure=chosen.disclosure == "total",
        separate_users=False,
        recovers=True,
        source_processes=2,
    )
    expected = run_embedded(chosen, policy)["run_hash"]
    with Simulator(chosen, plan, expected) as made:
        yield made


def plan_of(*faults: tuple[Any, ...] | Fault, seed: int = 1) -> FaultPlan:
    """Return a plan of faults, each given as (at, kind, who)."""
    return FaultPlan(seed, tuple(f if isinstance(f, Fault) else Fault(*f) for f in faults))


def first_failure(runner: Simulator, plans: Iterator[FaultPlan]) -> FaultPlan | None:
    """Return the first plan under which a run does not go as if undisturbed."""
    return next((plan for plan in plans if not runner.run(plan).passed), None)


def drawn(runner: Simulator, seeds: range) -> Iterator[FaultPlan]:
    """Yield the plans of seeds."""
    return (draw_plan(seed, runner.roster, SIMULATED_KINDS) for seed in seeds)
