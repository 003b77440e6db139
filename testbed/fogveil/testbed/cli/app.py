"""The command `fogveil`: its subcommands, and errors as one sentence and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from io import TextIOWrapper
from typing import Annotated

import typer

from fogveil.core.errors import FogveilError
from fogveil.core.version import VERSION
from fogveil.testbed.cli.adapt import AdaptCommand
from fogveil.testbed.cli.around import AroundCommand
from fogveil.testbed.cli.audit import audit
from fogveil.testbed.cli.change import change
from fogveil.testbed.cli.chaos import chaos
from fogveil.testbed.cli.compare import compare, evaluate, figures
from fogveil.testbed.cli.dashboard import dashboard
from fogveil.testbed.cli.docker import app as docker_app
from fogveil.testbed.cli.docker import down
from fogveil.testbed.cli.inspect import inspect
from fogveil.testbed.cli.league import league
from fogveil.testbed.cli.leakage import leakage
from fogveil.testbed.cli.map import map_parl
from fogveil.testbed.cli.options import err, print_line
from fogveil.testbed.cli.quiet import with_quiet
from fogveil.testbed.cli.report import report
from fogveil.testbed.cli.reproduce import reproduce
from fogveil.testbed.cli.resume import resume
from fogveil.testbed.cli.run import run, up
from fogveil.testbed.cli.show import list_policies, list_scenarios, show
from fogveil.testbed.cli.sweep import plot, sweep
from fogveil.testbed.cli.train import train
from fogveil.testbed.cli.workers import app as workers_app

TOUR = """
Place IoT workloads on the nodes of competing fog providers that keep their speed and load private.

A scenario is one TOML file, given by its path or, if it is shipped, by its name. A policy decides
which Fog node serves each workload, from what the providers disclose: nothing, the total of queued
jobs, each node's count, or everything.

\b
  fogveil scenario list                       the shipped scenarios
  fogveil scenario show paper                 what a scenario contains, and a figure of its network
  fogveil scenario show paper --as fog-3      what one participant receives of it
  fogveil policies                            the policies, and the disclosure level each needs
  fogveil run tiny --policy jsq               one run, in seconds
  fogveil run tiny --policy jsq --federated   the same run, one process per participant
  fogveil up paper --policy veil              the federated testbed, with a live table
  fogveil up paper --policy veil --dashboard  the same in a browser: both sides of the boundary
  fogveil up tiny --policy veil --docker      the same, one container per participant
  fogveil resume runs/up/DIR                  go on with a run whose launcher was lost
  fogveil inspect --live                      every message of a running testbed, decoded
  fogveil audit paper                         tests of what a provider discloses, with evidence
  fogveil chaos tiny --simulated --runs 1000  kill, stop and cut off anybody: the run is the same
  fogveil leakage paper                       what the disclosed counts still reveal
  fogveil compare paper --policies jsq,ci-setr,setr --seeds 5
  fogveil compare day --policies jsq,ci-setr --around-events  delays around the events of a scenario
  fogveil sweep examples/sweep.toml           any keys of a scenario varied, in one table
  fogveil sweep examples/sweep.toml --workers dask://10.0.0.7:8786  the same on many hosts
  fogveil plot runs/sweep/sweep --x rate --y p95              any column of it drawn
  fogveil league --policy my_policy.py:Mine   a policy's score on a fixed set of scenarios
  fogveil train tiny --agent parl --out runs/parl             train the paper's agent
  fogveil run tiny --policy runs/parl/agent.npz --adapt=auto  it learns again when it must
  fogveil evaluate runs/parl/agent.npz tiny                   compare it with other policies
  fogveil figures runs/compare runs/parl                      the paper's figures
  fogveil report runs/first --out report.html                 any result as one page to mail
  fogveil reproduce --quick                                   the paper's whole evaluation, short

Exit codes: 0 success, 1 a check failed, 2 wrong input, 3 a participant or the environment failed.
"""
app = typer.Typer(
    help=TOUR,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
COMMANDS: tuple[tuple[str, Callable[..., None]], ...] = (
    ("run", with_quiet(run)),
    ("up", with_quiet(up)),
    ("resume", with_quiet(resume)),
    ("down", down),
    ("compare", with_quiet(compare)),
    ("sweep", with_quiet(sweep)),
    ("plot", plot),
    ("league", with_quiet(league)),
    ("train", with_quiet(train)),
    ("evaluate", with_quiet(evaluate)),
    ("figures", with_quiet(figures)),
    ("report", with_quiet(report)),
    ("reproduce", with_quiet(reproduce)),
    ("change", with_quiet(change)),
    ("audit", with_quiet(audit)),
    ("chaos", with_quiet(chaos)),
    ("inspect", inspect),
    ("leakage", with_quiet(leakage)),
    ("dashboard", dashboard),
    ("map", with_quiet(map_parl)),
)
"""Those that may take longer than two seconds say how far they are, and have --quiet."""
KINDS = {"run": AdaptCommand, "up": AdaptCommand, "compare": AroundCommand}
"""Those with options that may have a value."""
for name, command in COMMANDS:
    app.command(name=name, cls=KINDS.get(name))(command)
app.command(name="policies")(list_policies)
scenario_app = typer.Typer(help="List and show scenarios.", no_args_is_help=True)
scenario_app.command(name="list")(list_scenarios)
scenario_app.command()(show)
app.add_typer(scenario_app, name="scenario")
app.add_typer(docker_app, name="docker")
app.add_typer(workers_app, name="workers")


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"fogveil {VERSION}")  # noqa: T201
        raise typer.Exit


class Terminated(BaseException):
    """SIGTERM was received; as an exception it lets every context manager clean up."""


def _terminate(_number: int, _frame: object) -> None:
    raise Terminated


def main() -> None:
    """Run the command; an error is one sentence and an exit code (see fogveil.core.errors)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal that cannot show β shows a question mark
            stream.reconfigure(errors="replace")
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app(prog_name="fogveil")
    except FogveilError as error:
        if os.environ.get("FOGVEIL_TRACEBACK"):
            raise
        for sentence in (f"fogveil: {error}", *getattr(error, "__notes__", ())):
            print_line(sentence, err)
        sys.exit(error.exit_code)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # typer exits with 1: a failed check here
            sys.exit(141)
        raise
    except KeyboardInterrupt:
        sys.exit(130)
    except Terminated:
        sys.exit(143)
