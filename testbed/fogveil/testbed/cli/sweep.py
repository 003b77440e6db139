"""`fogveil sweep` and `fogveil plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fogveil.core.errors import InputError
from fogveil.testbed.cli.options import (
    AsJson,
    Force,
    WorkersOption,
    err,
    out,
    print_json,
    print_line,
)
from fogveil.testbed.workers.choice import parse_workers


def sweep(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A TOML file that says what is varied.")
    ],
    folder: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="For results. [default: runs/sweep/FILE's name]"),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say how many cells there are and how long they take."),
    ] = False,
    force: Force = False,
    workers: WorkersOption = None,
    as_json: AsJson = False,
) -> None:
    """Run policies over a grid of scenario keys and seeds, into one table.

    Trains agents first where the file names some. Writes results.parquet and results.csv, a row per
    run with every key as a column; `fogveil plot` draws them. After a stop the same command
    continues with the cells that are not done.
    """
    from fogveil.testbed.cli.long_work import execute_with_progress
    from fogveil.testbed.experiments.embedded_training import check_packages
    from fogveil.testbed.experiments.planned_work import describe_work
    from fogveil.testbed.experiments.sweep.definition import read_sweep
    from fogveil.testbed.experiments.sweep.execution import (
        TABLE,
        claim,
        default_folder,
        write_results,
    )
    from fogveil.testbed.experiments.sweep.plan import SweepPlan
    from fogveil.testbed.experiments.sweep.results import results_digest
    from fogveil.testbed.report.sweep_figure import varied_columns

    chosen = parse_workers(workers)
    plan = SweepPlan(read_sweep(file), folder or default_folder(file.stem))
    outstanding = plan.find_outstanding()  # which refuses what is wrong before anything is written
    if not dry_run:
        claim(plan, force=force)
    runs = len(outstanding.runs) + len(outstanding.later_runs)
    total = sum(len(cell.comparison.runs()) for cell in plan.cells)
    print_line(
        f"{len(plan.cells)} cells: {len(outstanding.trainings)} of {len(plan.trainings)} trainings "
        f"and {runs:,} of {total:,} runs are to be done, "
        f"{describe_work(outstanding.seconds, chosen.expected)}",
        err,
    )
    if dry_run:
        return
    if outstanding.trainings:
        check_packages()
    execute_with_progress(outstanding, chosen, f"sweeping {file.stem}")
    table = write_results(plan)
    console = err if as_json else out
    written = f"written: {plan.out}/{TABLE}.parquet and .csv, {table.num_rows:,} rows"
    print_line(written, console)
    digest = results_digest(table)
    print_line(f"digest of results: {digest}", console)
    key, *others = varied_columns(table) or ["policy"]
    by = ",".join(["policy", *others])
    plot_command = f'fogveil plot {plan.out} --x "{key}" --y mean --by "{by}"'
    print_line(f"draw them: {plot_command}", console)
    if as_json:
        table_file = plan.out / f"{TABLE}.parquet"
        counted = {"rows": table.num_rows, "digest": digest}
        print_json({"written": table_file, **counted, "plot": plot_command})


def plot(
    result: Annotated[
        Path,
        typer.Argument(
            metavar="RESULT", help="A folder of a sweep or comparison, or a Parquet or CSV file."
        ),
    ],
    x: Annotated[str, typer.Option(help="A column: the key on the horizontal axis.")],
    y: Annotated[
        str, typer.Option(help="A measure: a column, or mean, p50, p90, p95, p99 of the Fog loop.")
    ] = "mean",
    by: Annotated[str, typer.Option(help="Columns, separated by commas: a line for each.")] = (
        "policy"
    ),
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Draw only such rows. Repeatable."),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="NAME",
            help="Draw to NAME.png, .svg and .pdf. [default: RESULT/Y-over-X]",
        ),
    ] = None,
) -> None:
    """Draw a measure over a key of a table of results, with 95 % intervals over seeds."""
    import fogveil.api as fogveil
    from fogveil.testbed.report.sweep_figure import read_table

    table, folder = read_table(result)
    conditions = {}
    for text in where or []:
        column, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--where {text}: expected COLUMN=VALUE, as in rate=100")
        conditions[column] = value
    columns = [name.strip() for name in by.split(",") if name.strip()]
    target = picture or folder / f"{y}-over-{x}".replace("/", "-")
    fogveil.plot(table, x, y, columns, to=target, where=conditions)
    print_line(f"written: {target}.png, .svg and .pdf")
