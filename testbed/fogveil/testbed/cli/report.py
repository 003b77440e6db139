"""`fogveil report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fogveil.core.errors import InputError
from fogveil.testbed.cli.options import AsJson, err, out, print_json, print_line, progress_bar


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN…",
            help="Folders of runs, comparisons, sweeps, trainings, audits, leakage measurements.",
        ),
    ],
    page: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page to write.")] = Path(
        "report.html"
    ),
    as_json: AsJson = False,
) -> None:
    """Write results as one HTML file that works without a network, as from a mail.

    It has figures, tables that sort and copy as CSV or LaTeX, the scenario, where each result comes
    from, and the command that draws each figure again. It shows all that the experimenter knows,
    private speeds of the scenario among it.
    """
    from fogveil.testbed.page.files import write_page
    from fogveil.testbed.page.kinds import make_document

    if page.is_dir():
        raise InputError(f"--out {page}: is a folder; name a file in it, as in {page}/report.html")
    with progress_bar("{task.completed}/{task.total} folders") as progress:
        task = progress.add_task("drawing", total=len(folders))
        document = make_document(folders, lambda done: progress.update(task, completed=done))
        write_page(document, page)
    size = page.stat().st_size
    print_line(f"written: {page} ({size / 1e6:.1f} MB)", err if as_json else out)
    if as_json:
        print_json(
            {"written": page, "bytes": size, "sections": [s.title for s in document.sections]}
        )
