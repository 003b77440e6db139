"""`fogveil chaos`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from fogveil.core.errors import InputError
from fogveil.testbed.cli.options import (
    AsJson,
    Broker,
    Disclosure,
    Docker,
    Override,
    ScenarioFile,
    Window,
    collect_overrides,
    err,
    federated_plan,
    load,
    out,
    print_json,
    print_line,
    progress_bar,
)
from fogveil.testbed.cli.options import Losses as OnLoss
from fogveil.testbed.scenario import Scenario

if TYPE_CHECKING:
    from fogveil.testbed.chaos.faults import FaultPlan
    from fogveil.testbed.chaos.outcome import Failure, Runner, Tally
    from fogveil.testbed.launch.participant_config import Plan

DECISIONS = 50
"""Decisions of a run where no horizon is given."""
CHOOSE_RUNS = ("--seed", "--runs", "--plan")


def chaos(
    scenario: ScenarioFile,
    policy: Annotated[str, typer.Option(help="Policy of the runs.")] = "jsq",
    first: Annotated[
        int, typer.Option("--seed", metavar="N", help="Draws the faults of the first run.")
    ] = 1,
    runs: Annotated[
        int, typer.Option(min=1, metavar="K", help="Runs, with the seeds N, N + 1, ….")
    ] = 10,
    simulated: Annotated[
        bool,
        typer.Option(
            "--simulated", help="All participants in this process, under virtual time: fast."
        ),
    ] = False,
    docker: Docker = False,
    text: Annotated[
        str | None,
        typer.Option("--plan", metavar="JSON", help="One run with these faults, as printed."),
    ] = None,
    horizon: Annotated[
        float | None, typer.Option(help="Simulated time. [default: about 50 decisions]")
    ] = None,
    disclosure: Disclosure = None,
    override: Override = None,
    broker: Broker = "auto",
    window: Window = None,
    as_json: AsJson = False,
) -> None:
    """Disturb runs by faults that are drawn from seeds: each must end as if there were none.

    Participants are killed, stopped and cut off, the broker and the clock too, and two at once;
    with --simulated also messages are lost, doubled, delayed and reordered. A run passes if its run
    hash is that of the undisturbed run, every workload was served exactly once, and no process,
    socket, container or temporary file is left. Of a run that fails the smallest part of its faults
    that still fails is printed, with the command that repeats it, and the exit code is 1.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # before gRPC is imported
    from fogveil.testbed.chaos.draw import DOCKER_KINDS, REAL_KINDS, SIMULATED_KINDS, draw_plan
    from fogveil.testbed.chaos.faults import FaultPlan
    from fogveil.testbed.chaos.outcome import run_plans

    if simulated and docker:
        raise InputError("--simulated and --docker exclude each other")
    if simulated and broker != "auto":
        raise InputError("--broker: a simulated run has a broker of its own")
    chosen = load(
        scenario, collect_overrides(override, horizon=horizon, disclosure=disclosure), None
    )
    chosen = chosen if horizon else _short(chosen)
    plan = federated_plan(
        federated=True,
        broker=broker,
        window=window,
        source_processes=min(2, _clusters(chosen)),
        docker=docker,
        on_loss=OnLoss.RECOVER,
    )
    kinds = SIMULATED_KINDS if simulated else DOCKER_KINDS if docker else REAL_KINDS
    with _runner(chosen, plan, policy, simulated=simulated) as runner:
        plans: list[FaultPlan]
        if text is not None:
            plans = [FaultPlan.parse(text, kinds, runner.roster)]
        else:
            plans = [draw_plan(seed, runner.roster, kinds) for seed in range(first, first + runs)]
        console = err if as_json else out

        def shrinking(failing: FaultPlan) -> None:
            print_line(f"seed {failing.seed} fails; leaving out faults …", err)

        tally: Tally | None = None
        with progress_bar() as bar:
            task = bar.add_task("runs under chaos", total=len(plans))
            for tally in run_plans(runner, plans, shrinking):
                bar.update(task, completed=tally.runs)
        assert tally
        command = _command()
        for failure in tally.failures:
            for line in _describe(failure, command):
                print_line(line, console)
        passed = tally.runs - len(tally.failures)
        kind = "virtual" if simulated else "wall-clock"
        print_line(
            f"{passed} of {tally.runs} runs ended as if undisturbed: {tally.carried_out} faults, "
            f"{tally.losses} participants started again, {tally.seconds:.0f} {kind} seconds",
            console,
        )
    if as_json:
        print_json(
            {
                "scenario": chosen.name,
                "policy": policy,
                "runs": tally.runs,
                "passed": passed,
                "faults": tally.carried_out,
                "losses": tally.losses,
                "seconds": tally.seconds,
                "failures": [failure.describe() for failure in tally.failures],
            }
        )
    if tally.failures:
        raise typer.Exit(1)


def _clusters(scenario: Scenario) -> int:
    """Return how many IoT clusters a scenario has."""
    from fogveil.testbed.scenario.world import build_world

    return len(build_world(scenario).clusters)


def _short(scenario: Scenario) -> Scenario:
    from fogveil.testbed.privacy.audit.procedure import horizon_for

    return scenario.model_copy(update={"horizon": horizon_for(scenario, DECISIONS)})


@contextmanager
def _runner(scenario: Scenario, plan: Plan, policy: str, *, simulated: bool) -> Iterator[Runner]:
    """Yield what runs plans of faults, with the run hash of the undisturbed run to expect."""
    from dataclasses import replace

    from fogveil.testbed.chaos.real import RealRunner
    from fogveil.testbed.chaos.simulation import Simulator
    from fogveil.testbed.engine.run import run_embedded

    expected = run_embedded(scenario, policy)["run_hash"]
    plan = replace(plan, policies=(policy,))
    if not simulated:
        with nullcontext(RealRunner(scenario, plan, expected)) as runner:
            yield runner
        return
    # Only the keys of a total need identities; issuing them is most of a short run.
    secure = scenario.disclosure == "total"
    plan = replace(plan, secure=secure, separate_users=False)
    with Simulator(scenario, plan, expected) as simulator:
        yield simulator


def _describe(failure: Failure, command: str) -> Iterator[str]:
    yield f"seed {failure.plan.seed} FAILED: {'; '.join(failure.faults)}"
    for fault in failure.smallest.faults:
        yield f"  {fault.describe()}"
    yield f"  repeat it: {command} --plan '{failure.smallest.text()}'"


def _command() -> str:
    """Return this command without what chooses the runs."""
    words, kept = sys.argv[1:], ["fogveil"]
    while words:
        word = words.pop(0)
        name, given, _ = word.partition("=")
        if name not in CHOOSE_RUNS:
            kept.append(word)
        elif not given:
            del words[:1]
    return shlex.join(kept)
