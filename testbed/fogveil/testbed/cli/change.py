"""`fogveil change`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fogveil.core.version import source_commit
from fogveil.testbed.cli.options import AsJson, WorkersOption, err, out, print_json, print_line
from fogveil.testbed.workers.choice import parse_workers


def change(
    show_plan: Annotated[
        bool,
        typer.Option("--plan", help="Print what is to be done and how long it takes."),
    ] = False,
    docs: Annotated[
        Path, typer.Option(metavar="DIR", help="For change.md and images/change.")
    ] = Path("docs"),
    workers: WorkersOption = None,
    as_json: AsJson = False,
) -> None:
    """Measure how policies and agents adapt when the world changes, and write docs/change.md.

    Upgrades, departures, crashes, a surge and more happen in the middle of runs on `paper`; agents
    that infer, that learn at work and that are trained again are compared with an oracle that is
    told every change. Results are kept in runs/change; after a stop the same command continues.
    Needs the packages of `pip install 'fogveil[train]'`.
    """
    from fogveil.testbed.cli.long_work import execute_with_progress
    from fogveil.testbed.experiments.change.execution import find_outstanding
    from fogveil.testbed.experiments.change.page import write_change
    from fogveil.testbed.experiments.change.plan import KINDS
    from fogveil.testbed.experiments.embedded_training import check_packages
    from fogveil.testbed.experiments.planned_work import describe_work

    chosen = parse_workers(workers)
    outstanding = find_outstanding()
    runs = len(outstanding.runs) + len(outstanding.later_runs)
    print_line(
        f"{len(KINDS)} kinds of change: {len(outstanding.trainings)} trainings and {runs:,} runs "
        f"are to be done, {describe_work(outstanding.seconds, chosen.expected)}",
        err,
    )
    if show_plan:
        return
    if runs or outstanding.trainings:
        check_packages()
        execute_with_progress(outstanding, chosen, "changing")
    written = write_change(docs, source_commit() or "unknown")
    print_line(f"written: {written}", err if as_json else out)
    if as_json:
        print_json({"written": written})
