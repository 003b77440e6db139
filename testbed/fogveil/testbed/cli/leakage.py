"""`fogveil leakage`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fogveil.agent.policy import Level
from fogveil.core.errors import InputError
from fogveil.testbed.cli.options import (
    Broker,
    Docker,
    Federated,
    Override,
    ScenarioFile,
    Seed,
    WorkersOption,
    collect_overrides,
    err,
    federated_plan,
    load,
    out,
    print_line,
    progress_bar,
    say,
)
from fogveil.testbed.cli.seeds import with_seed
from fogveil.testbed.records.output import reporting_write_errors, write_json
from fogveil.testbed.records.provenance import provenance
from fogveil.testbed.report.tables import print_table
from fogveil.testbed.workers.choice import Workers, parse_workers

if TYPE_CHECKING:
    from fogveil.testbed.privacy.leakage.meter import AttackPlan


def leakage(
    scenario: ScenarioFile,
    level: Annotated[str, typer.Option(help="What the agent is shown: count or total.")] = "count",
    decisions: Annotated[int, typer.Option(metavar="N", help="Decisions that it observes.")] = 1600,
    active: Annotated[
        bool, typer.Option("--active", help="Place in order to learn (probe), not to serve well.")
    ] = False,
    policy: Annotated[
        str | None,
        typer.Option(help="The policy it places by. [default: jsq at count, random at total]"),
    ] = None,
    permutations: Annotated[
        int, typer.Option(metavar="N", help="How often to permute the secrets and repeat.")
    ] = 5,
    as_given: Annotated[
        bool,
        typer.Option("--as-given", help="Do not permute: use the scenario's own speeds."),
    ] = False,
    rate: Annotated[float | None, typer.Option(help="β: mean time between workloads.")] = None,
    seed: Seed = None,
    override: Override = None,
    federated: Federated = False,
    docker: Docker = False,
    broker: Broker = "auto",
    folder: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where to write result and figure.")
    ] = Path("runs/leakage"),
    workers: WorkersOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one JSON object on standard output.")
    ] = False,
) -> None:
    """Measure how well a curious agent infers the providers' speeds from what it is shown.

    The providers' speeds are permuted at random over the nodes, several times. The agent knows what
    its level permits and no more: the count of each provider, or their total, at each decision; its
    own placements; the public latencies. It estimates after N/16, N/8, … N decisions. Two guesses
    without observation are there to compare with: the best one speed for all nodes, and speeds that
    follow the topology. The figure shows all results in DIR on the same scenario. With --federated
    or --docker the agent runs in a testbed, and infers from the record in its own folder.

    Where the scenario changes a speed ([[events]] of kind speed), it is measured after how many
    decisions since then the agent knows: N decisions are observed from the first such change on.
    """
    from fogveil.testbed.privacy.leakage.attackers import (
        DEFAULT_POLICIES,
        load_attacker,
        policy_on_testbed,
    )
    from fogveil.testbed.privacy.leakage.leakage_report import (
        comparable_results,
        plot,
        tables,
        verdict,
    )
    from fogveil.testbed.privacy.leakage.meter import AttackPlan, measure, permuted_world

    if level not in (known.word for known in Level):
        raise InputError(f"--level {level}: expected count or total")
    if active and policy:
        raise InputError(f"--policy {policy}: leave it out, --active has a policy of its own")
    chosen_workers = parse_workers(workers)
    testbed_plan = federated_plan(
        federated=federated, broker=broker, window=None, source_processes=1, docker=docker
    )
    shown = Level.parse(level)
    overrides = with_seed(collect_overrides(override, seed=seed), federated=federated or docker)
    plan = AttackPlan(
        scenario=load(scenario, overrides, rate),
        level=shown,
        decisions=decisions,
        policy=None if active else policy or DEFAULT_POLICIES.get(shown),
        permutations=permutations,
        as_given=as_given,
        testbed=testbed_plan if federated or docker else None,
    )
    # Refuse a wrong policy before any worker process does.
    load_attacker(plan.policy, shown, permuted_world(plan, 0).agent)
    if plan.testbed:
        policy_on_testbed(plan.policy, shown)
    with reporting_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    console = err if as_json else out
    if plan.scenario.events:
        _measure_change(plan, folder, chosen_workers, as_json=as_json)
        return
    with (
        chosen_workers.open(say) as crew,
        progress_bar("{task.completed}/{task.total} permutations") as progress,
    ):
        task = progress.add_task(f"{plan.name} on {plan.scenario.name}", total=permutations)
        result = measure(plan, crew, lambda done: progress.update(task, completed=done))
    for table in tables(result):
        print_table(table, console)
    print_line(verdict(result), console)
    path = folder / f"{plan.name}.json"
    write_json(path, {**result, "provenance": provenance()})
    plot(comparable_results(folder, result), folder / "leakage")
    print_line(f"written: {path}, {folder}/leakage.png, {folder}/leakage.svg", console)
    if as_json:
        figures = {key: value for key, value in result.items() if key != "scenario"}
        print(json.dumps(figures))  # noqa: T201 (the promised object)


def _measure_change(plan: AttackPlan, folder: Path, workers: Workers, *, as_json: bool) -> None:
    """Measure when the agent knows that a speed has changed; print and write it."""
    from fogveil.testbed.privacy.leakage.after_change import measure_change, speed_event
    from fogveil.testbed.privacy.leakage.change_report import change_tables, plot_courses

    if speed_event(plan.scenario) is None:
        raise InputError(
            f"scenario {plan.scenario.name} has events, but none of kind speed: expected one whose "
            "secret is to be found out, or no events (--set events=[])"
        )
    with (
        workers.open(say) as crew,
        progress_bar("{task.completed}/{task.total} permutations") as progress,
    ):
        task = progress.add_task(f"{plan.name} on {plan.scenario.name}", total=plan.permutations)
        result = measure_change(plan, crew, lambda done: progress.update(task, completed=done))
    console = err if as_json else out
    for table in change_tables(result):
        print_table(table, console)
    path = folder / f"{plan.name}-change.json"
    write_json(path, {**result, "provenance": provenance()})
    plot_courses({plan.scenario.name: [result]}, folder / "leakage-change")
    print_line(f"written: {path}, {folder}/leakage-change.png, .svg", console)
    if as_json:
        print(json.dumps(result))  # noqa: T201 (the promised object)
