"""`fogveil reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from fogveil.core.errors import InputError
from fogveil.testbed.cli.options import AsJson, WorkersOption, err, print_json, print_line
from fogveil.testbed.cli.options import out as standard_output
from fogveil.testbed.report.tables import print_table
from fogveil.testbed.workers.choice import parse_workers


def reproduce(
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Short trainings, fewer seeds: about 15 minutes on two cores. The page says so.",
        ),
    ] = False,
    show_plan: Annotated[
        bool, typer.Option("--plan", help="Print what is planned and how long it takes; no more.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="For trainings and runs. [default: runs/reproduce, or runs/reproduce-quick]",
        ),
    ] = None,
    docs: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="For results.md and images/results. [default: docs; with --quick as --out]",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            envvar="FOGVEIL_DATA",
            help="Folder of real data, for the scenario geant; without it that one is left out.",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Evaluation seeds of each method. [default: 10; with --quick 3]"),
    ] = None,
    workers: WorkersOption = None,
    as_json: AsJson = False,
) -> None:
    """Repeat the paper's whole evaluation, and write docs/results.md with its figures.

    Trains the agents, evaluates all methods, compares the paper's claims with the results. It says
    first how long it will take. After a stop the same command continues. Needs the packages of
    `pip install 'fogveil[train]'`.
    """
    from fogveil.testbed.cli.long_work import execute_with_progress
    from fogveil.testbed.experiments.embedded_training import check_packages
    from fogveil.testbed.experiments.planned_work import describe_work
    from fogveil.testbed.experiments.reproduce.execution import find_outstanding
    from fogveil.testbed.experiments.reproduce.plan import (
        FULL,
        GEANT,
        QUICK,
        TRAINING_COLUMNS,
        check_data,
        make_plan,
    )

    chosen = parse_workers(workers)
    if quick and docs is not None:
        raise InputError(
            "--docs is for the whole evaluation: with --quick the page is written to --out"
        )
    scale = QUICK if quick else FULL
    out = folder or scale.out
    scale = scale._replace(
        out=out, docs=out if quick else docs or scale.docs, seeds=seeds or scale.seeds
    )
    check_data(data)
    if data is None:
        print_line(
            f"the scenario geant is left out: its network is not part of fogveil; give a folder "
            f"with {GEANT} as --data or in FOGVEIL_DATA",
            err,
        )
    plan = make_plan(scale, data)
    outstanding = find_outstanding(plan)
    runs = len(outstanding.runs) + len(outstanding.later_runs)
    total_runs = sum(len(evaluation.comparison.runs()) for evaluation in plan.evaluations)
    print_line(
        f"{len(outstanding.trainings)} of {len(plan.trainings)} trainings and {runs:,} of "
        f"{total_runs:,} runs are to be done: "
        f"{describe_work(outstanding.seconds, chosen.expected)}",
        err,
    )
    if show_plan:
        table = Table(*TRAINING_COLUMNS, box=box.SIMPLE_HEAD)
        for each in plan.scale.sets:
            table.add_row(*each.describe())
        print_table(table, standard_output)
        return
    if outstanding.trainings:
        check_packages()
    execute_with_progress(outstanding, chosen, "reproducing")
    from fogveil.testbed.experiments.reproduce.page import write_page

    paths = list(write_page(plan))
    for path in paths:
        print_line(f"written: {path}", err if as_json else standard_output)
    if as_json:
        print_json({"written": paths})
