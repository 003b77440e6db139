"""The command `fogveil`: its commands, and how errors become a sentence and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from fogveil import __version__
from fogveil.errors import FogveilError
from testbed.cli.auditing import audit
from testbed.cli.comparing import compare, evaluate, figures
from testbed.cli.containers import app as docker_app
from testbed.cli.containers import down
from testbed.cli.inspecting import inspect
from testbed.cli.leaking import leakage
from testbed.cli.looking import list_policies, show
from testbed.cli.runs import run, up
from testbed.cli.shared import err, say
from testbed.cli.training import train

TOUR = """
Spread IoT work over fog providers that will not say how fast or how loaded they are.

A scenario is one TOML file; a policy decides which Fog node serves each workload, from what the
providers disclose: nothing, the total of queued jobs, each node's count, or everything.

\b
  fogveil scenario show scenarios/paper.toml        what is in it, and a picture
  fogveil scenario show scenarios/paper.toml --as fog-3   what one participant is given
  fogveil policies                                  who decides, and what each needs to know
  fogveil run scenarios/tiny.toml --policy jsq      one run, seconds
  fogveil run scenarios/tiny.toml --policy jsq --federated    the same run, a process each
  fogveil up scenarios/paper.toml --policy veil     the testbed at work, to watch
  fogveil up scenarios/tiny.toml --policy veil --docker    the same, a container each
  fogveil inspect --live                            every message, as it crosses
  fogveil audit scenarios/paper.toml                what a provider gives away, and proof
  fogveil leakage scenarios/paper.toml              what its count still reveals
  fogveil compare scenarios/paper.toml --policies jsq,ci-setr,setr --seeds 5
  fogveil train scenarios/tiny.toml --agent parl --out runs/parl     the paper's agent
  fogveil evaluate runs/parl/agent.npz scenarios/tiny.toml
  fogveil figures runs/compare runs/parl                       the paper's figures
"""
app = typer.Typer(
    help=TOUR,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (run, up, down, compare, train, evaluate, figures, audit, inspect, leakage):
    app.command()(command)
app.command(name="policies")(list_policies)
scenario_app = typer.Typer(help="Look at a scenario.", no_args_is_help=True)
scenario_app.command()(show)
app.add_typer(scenario_app, name="scenario")
app.add_typer(docker_app, name="docker")


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"fogveil {__version__}")  # noqa: T201
        raise typer.Exit


class Terminated(BaseException):
    """The process was asked to end: what is half done is cleaned up on the way out."""


def _terminate(_number: int, _frame: object) -> None:
    raise Terminated


def main() -> None:
    """Run the command; an error is one sentence and an exit code (see fogveil.errors)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal without β gets a question mark
            stream.reconfigure(errors="replace")
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app(standalone_mode=True)
    except FogveilError as error:
        if os.environ.get("FOGVEIL_TRACEBACK"):
            raise
        for sentence in (f"fogveil: {error}", *getattr(error, "__notes__", ())):
            say(sentence, err)
        sys.exit(error.exit_code)
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):  # typer says 1, a failed check here
            sys.exit(141)
        raise
    except KeyboardInterrupt:
        sys.exit(130)
    except Terminated:
        sys.exit(143)
