"""`fogveil dashboard`."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer

from fogveil.testbed.cli.options import print_line


def dashboard(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN…",
            help="Folders of runs, finished or running, or of trainings. Several runs of the same "
            "workloads stand side by side.",
        ),
    ],
) -> None:
    """Show runs in a browser: what the agent sees, what crosses, and what stays private.

    The page is served on this machine alone, to whoever opens the printed link first. It is the
    experimenter's: it shows the private speeds. End it with Ctrl-C.
    """
    from fogveil.testbed.dashboard.process import serve
    from fogveil.testbed.dashboard.session import Session

    session = Session(folders)

    def announce(link: str) -> None:
        print_line(f"open in a browser, once: {link}\n(Ctrl-C ends it)")

    async def until_terminated() -> None:
        # A handler that raises would raise in any callback of the event loop, which goes on.
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        await serve(session, frozenset(), announce, stopped.wait())

    asyncio.run(until_terminated())
    raise typer.Exit(128 + signal.SIGTERM)
