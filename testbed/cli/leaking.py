"""`fogveil leakage`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from agent.policy import Level
from fogveil.errors import InputError
from testbed.cli.shared import (
    Broker,
    Docker,
    Federated,
    Override,
    ScenarioFile,
    bar,
    err,
    federated_plan,
    gather,
    load,
    out,
    say,
)
from testbed.records import write_json, writing


def leakage(
    scenario: ScenarioFile,
    level: Annotated[str, typer.Option(help="What the attacker sees: count or total.")] = "count",
    decisions: Annotated[int, typer.Option(metavar="N", help="Decisions it watches.")] = 1600,
    active: Annotated[
        bool, typer.Option("--active", help="It places in order to learn, not to serve well.")
    ] = False,
    policy: Annotated[
        str | None,
        typer.Option(help="Who places while it watches. [jsq at count, random at total]"),
    ] = None,
    permutations: Annotated[
        int, typer.Option(metavar="N", help="Times the secrets are dealt out anew.")
    ] = 5,
    as_given: Annotated[
        bool, typer.Option("--as-given", help="Leave the secrets where the scenario puts them.")
    ] = False,
    rate: Annotated[float | None, typer.Option(help="β: mean time between workloads.")] = None,
    seed: Annotated[int | None, typer.Option(help="The scenario's seed.")] = None,
    override: Override = None,
    federated: Federated = False,
    docker: Docker = False,
    broker: Broker = "auto",
    folder: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Result and picture go here.")
    ] = Path("runs/leakage"),
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one JSON object on standard output.")
    ] = False,
) -> None:
    """Play the curious agent: how well it infers the nodes' speeds from what it may see.

    The providers' secrets are dealt out at random over the nodes, several times. The attacker
    holds what an agent of its level holds (counts or their total at each decision, its own
    placements, public latencies), and no more; it is asked after N/16, N/8, … N decisions. Its
    error stands beside two guesses without observation. The picture shows all attackers whose
    results on the same scenario are in DIR. With --federated or --docker it watches a real testbed,
    and works from the record in the agent's own folder.
    """
    from testbed.leakage.attackers import ORDINARY, attacker, policy_at
    from testbed.leakage.meter import Plan, measure, permuted
    from testbed.leakage.report import plot, siblings, tables, verdict

    if level not in (known.word for known in Level):
        raise InputError(f"--level {level}: expected count or total")
    if active and policy:
        raise InputError(f"--policy {policy}: an active attacker places by itself")
    how = federated_plan(
        federated=federated, broker=broker, window=None, source_processes=1, docker=docker
    )
    seen = Level.parse(level)
    plan = Plan(
        scenario=load(scenario, gather(override, seed=seed), rate),
        level=seen,
        decisions=decisions,
        policy=None if active else policy or ORDINARY.get(seen),
        permutations=permutations,
        as_given=as_given,
        testbed=how if federated or docker else None,
    )
    attacker(plan.policy, seen, permuted(plan, 0).agent)  # refused here, once, if at all
    if plan.testbed:
        policy_at(plan.policy, seen)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with bar("{task.completed}/{task.total} permutations") as progress:
        task = progress.add_task(f"{plan.name} on {plan.scenario.name}", total=permutations)
        result = measure(plan, lambda done: progress.update(task, completed=done))
    console = err if as_json else out
    for table in tables(result):
        console.print(table)
    say(verdict(result), console)
    kept = folder / f"{plan.name}.json"
    write_json(kept, result)
    plot(siblings(folder, result), folder / "leakage")
    say(f"written: {kept}, {folder}/leakage.png, {folder}/leakage.svg", console)
    if as_json:
        print(json.dumps({k: v for k, v in result.items() if k != "scenario"}))  # noqa: T201
