"""`fogveil report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fogveil.core.errors import InputError
from fogveil.testbed.cli.options import print_line


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
    write_page(make_document(folders), page)
    print_line(f"written: {page} ({page.stat().st_size / 1e6:.1f} MB)")
