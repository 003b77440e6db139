"""`fogveil resume`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fogveil.testbed.cli.options import AsJson, err, print_line, progress_bar
from fogveil.testbed.cli.run import print_result
from fogveil.testbed.launch.federated_run import resume as go_on
from fogveil.testbed.launch.reports import Report
from fogveil.testbed.launch.resume import read_standing
from fogveil.testbed.launch.testbed import Testbed


def resume(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="The folder of a run that `up` or `run --out` started."),
    ],
    as_json: AsJson = False,
) -> None:
    """Go on with a federated run whose launcher was lost, from where it stood.

    The participants are told all of the episode once more, and the run ends with the run hash that
    it would have had. A training goes on by the command that started it.
    """
    before = read_standing(folder)
    with progress_bar("{task.fields[jobs]:,} jobs") as progress:
        name = f"{before.scenario.name} under {', '.join(before.plan.policies)}"
        task = progress.add_task(name, total=before.scenario.horizon, jobs=0)

        def watch(_testbed: Testbed, _name: str, report: Report) -> None:
            if "clock" in report:
                place = report["clock"]
                progress.update(task, completed=place["time"], jobs=place["decisions"])

        results = go_on(folder, watch, lambda step: print_line(step, err))
    for result in results:
        print_result(result, folder, as_json=as_json)
