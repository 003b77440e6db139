"""`fogveil map`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fogveil.core.version import source_commit
from fogveil.testbed.cli.options import AsJson, WorkersOption, err, out, print_json, print_line
from fogveil.testbed.workers.choice import parse_workers


def map_parl(
    show_plan: Annotated[
        bool,
        typer.Option("--plan", help="Print what is to be done and how long it takes."),
    ] = False,
    docs: Annotated[Path, typer.Option(metavar="DIR", help="For map.md and images/map.")] = Path(
        "docs"
    ),
    workers: WorkersOption = None,
    as_json: AsJson = False,
) -> None:
    """Map where the paper's agent works, and write docs/map.md with its figure.

    Trains PARL in environments that differ in latency and load, evaluates it beside other methods,
    and changes one thing at a time to test why. Results are kept in runs/map; after a stop the same
    command continues. Needs the packages of `pip install 'fogveil[train]'`.
    """
    from fogveil.testbed.cli.long_work import execute_with_progress
    from fogveil.testbed.experiments.embedded_training import check_packages
    from fogveil.testbed.experiments.map.execution import find_outstanding
    from fogveil.testbed.experiments.map.page import write_map
    from fogveil.testbed.experiments.map.plan import POINTS
    from fogveil.testbed.experiments.planned_work import describe_work

    chosen = parse_workers(workers)
    outstanding = find_outstanding()
    runs = len(outstanding.runs) + len(outstanding.later_runs)
    print_line(
        f"{len(POINTS)} environments: {len(outstanding.trainings)} trainings and {runs:,} runs are "
        f"to be done, {describe_work(outstanding.seconds, chosen.expected)}",
        err,
    )
    if show_plan:
        return
    if outstanding.trainings:
        check_packages()
    execute_with_progress(outstanding, chosen, "mapping")
    written = write_map(docs, source_commit() or "unknown")
    print_line(f"written: {written}", err if as_json else out)
    if as_json:
        print_json({"written": written})
