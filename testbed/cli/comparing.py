"""`fogveil compare`, `evaluate` and `figures`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fogveil.errors import InputError
from testbed import tables
from testbed.cli.shared import (
    ORACLE,
    Disclosure,
    Override,
    ScenarioFile,
    bar,
    err,
    gather,
    out,
    say,
)
from testbed.compare import Plan, execute, parse_numbers, prepare, write_tables
from testbed.compare import evaluate as evaluate_plan
from testbed.scenario import load_scenario


def compare(
    scenario: ScenarioFile,
    names: Annotated[
        str, typer.Option("--policies", help="Names from `fogveil policies`, with commas.")
    ] = "random,round-robin,nearest,fastest,electre,p2c,jsq,ci-setr,veil,setr",
    rates: Annotated[
        str | None, typer.Option(help="β values with commas; without it the scenario's own.")
    ] = None,
    horizons: Annotated[
        str | None, typer.Option(help="Horizons with commas; without it the scenario's own.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs per cell, on common seeds.")] = 5,
    reference: Annotated[
        str, typer.Option(help="The policy that ratios are taken to, paired by seed.")
    ] = ORACLE,
    disclosure: Disclosure = None,
    override: Override = None,
    folder: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Results, tables and figures go here.")
    ] = Path("runs/compare"),
) -> None:
    """Compare policies over rates, horizons and seeds; a re-run skips what is done.

    Every policy sees the same workloads (common random numbers) and exactly the disclosure level
    it needs, which the table shows; --disclosure fixes one for all and refuses what needs more.
    """
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    overrides = gather(override, disclosure=disclosure)
    _compare(scenario, overrides, chosen, rates, horizons, seeds, reference, folder)


def _compare(
    scenario: Path,
    overrides: dict[str, Any],
    chosen: list[str],
    rates: str | None,
    horizons: str | None,
    seeds: int,
    reference: str,
    folder: Path,
) -> None:
    base = load_scenario(scenario, overrides)
    if rates and base.sources.kind == "trace":
        raise InputError("--rates is for poisson or deterministic sources; a trace has its own")
    plan = Plan(
        file=scenario,
        overrides=overrides,
        policies=tuple(dict.fromkeys(chosen)),
        rates=parse_numbers(rates, "--rates") if rates else (None,),
        horizons=parse_numbers(horizons, "--horizons") if horizons else (base.horizon,),
        seeds=seeds,
        out=folder,
    )
    if reference not in (*plan.policies, ORACLE):
        raise InputError(f"--reference {reference}: expected one of the policies compared")
    done, to_do = prepare(plan)
    total, finished = len(done) + len(to_do), len(done)
    err.print(f"{total} runs, {finished} of them done before, results in {plan.out}/runs")
    try:
        with bar("{task.completed}/{task.total} runs") as progress:
            task = progress.add_task(f"comparing on {base.name}", total=total, completed=finished)
            for _ in execute(plan, to_do):
                finished += 1
                progress.update(task, completed=finished)
    except KeyboardInterrupt:
        err.print(f"stopped with {finished} of {total} runs done; the same command goes on")
        raise
    rows = evaluate_plan(plan, reference)
    for table in tables.compare_tables(rows, reference):
        out.print(table)
    paths = write_tables(rows, plan.out)
    from testbed.figures import plot_delays, plot_loops  # matplotlib takes a while to load

    plot_loops(rows, plan.out / "loops")
    plot_delays(rows, plan.out / "delays")
    paths += [plan.out / "loops.png", plan.out / "delays.png"]
    say("written: " + ", ".join(str(path) for path in paths))


def evaluate(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="A training's agent.npz or checkpoint.npz.")
    ],
    scenario: ScenarioFile,
    against: Annotated[str, typer.Option(help="Policies to put beside it.")] = "random,jsq,setr",
    rates: Annotated[str | None, typer.Option(help="β values with commas.")] = None,
    horizons: Annotated[str | None, typer.Option(help="Horizons with commas.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs per cell, on common seeds.")] = 5,
    override: Override = None,
    folder: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Results, tables and figures go here.")
    ] = Path("runs/evaluate"),
) -> None:
    """Evaluate a trained agent, greedily, beside other policies."""
    chosen = [str(checkpoint), *(name.strip() for name in against.split(",") if name.strip())]
    _compare(scenario, gather(override), chosen, rates, horizons, seeds, ORACLE, folder)


def figures(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUNS…", help="Folders of comparisons and trainings.")
    ],
    folder: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where the pictures go.")
    ] = Path("runs/figures"),
) -> None:
    """Draw the paper's figures from results: loops, delays, distribution, training."""
    from testbed.gallery import draw_all

    for path in draw_all(folders, folder):
        say(f"written: {path}.png and .svg")
