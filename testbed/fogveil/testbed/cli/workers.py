"""`fogveil workers`: the scheduler of a cluster, and the workers of a host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fogveil.testbed.cli.options import err, print_line, say
from fogveil.testbed.workers.choice import check_extra
from fogveil.testbed.workers.code import installed_code
from fogveil.testbed.workers.folder import DEFAULT_FOLDER, DRIVER, WORKER
from fogveil.testbed.workers.local import cores

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="The cluster's keys and certificates, by role.")
]
app = typer.Typer(help="Start a cluster, for --workers dask://HOST:PORT.", no_args_is_help=True)


@app.command()
def scheduler(
    folder: Folder = DEFAULT_FOLDER,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where all hosts of the cluster reach it.")
    ] = "127.0.0.1:8786",
    dashboard_port: Annotated[
        int, typer.Option(metavar="PORT", help="Of Dask's dashboard, on this host's loopback.")
    ] = 8787,
) -> None:
    """Start a scheduler, to which only holders of this cluster's certificates can connect.

    Makes DIR with the keys and certificates of three roles, unless it is there. Copy DIR/worker to
    the hosts of workers and DIR/driver to where commands are typed, as the secrets that they are:
    whoever has one of them can execute code on all workers. Runs until it is stopped.
    """
    check_extra()
    from fogveil.testbed.workers.hosts import parse_address, prepare_folder, run_scheduler

    parse_address(listen, "--listen")
    prepare_folder(folder, listen)
    lines = [
        f"workers join with: fogveil workers start DIR (a copy of {folder / WORKER})",
        f"commands use them with: --workers dask://DIR@{listen} (a copy of {folder / DRIVER})",
        f"Dask's dashboard: http://127.0.0.1:{dashboard_port}/status",
    ]
    for line in lines:
        print_line(line, err)
    run_scheduler(folder, listen, dashboard_port)


@app.command()
def start(
    folder: Folder = DEFAULT_FOLDER,
    count: Annotated[
        int | None, typer.Option(min=1, help="Processes. [default: one per core]")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            "--scheduler", metavar="HOST:PORT", help="[default: as written in DIR by the scheduler]"
        ),
    ] = None,
) -> None:
    """Start workers on this host, for all commands that use the scheduler.

    DIR is that of `fogveil workers scheduler`, or a copy of its folder worker. Only commands with
    the same code get work done here. Runs until it is stopped: a lost scheduler is joined again.
    """
    check_extra()
    from fogveil.testbed.workers.hosts import run_workers

    number = count or cores()
    print_line(f"starting {number} workers with code {installed_code()}", err)
    run_workers(folder, number, address, say)
