"""Shared by the commands: options, consoles, and reading a scenario from arguments."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fogveil.core.errors import InputError
from fogveil.core.safe_text import safe_lines
from fogveil.testbed.cli.progress import CommandProgress
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.scenario import Scenario, load_scenario
from fogveil.testbed.scenario.load import Table, parse_overrides
from fogveil.testbed.scenario.world import build_world

ORACLE = "setr"
out = Console()
err = Console(stderr=True)

ScenarioFile = Annotated[
    Path,
    typer.Argument(
        metavar="SCENARIO",
        help="A TOML file, or the name of a shipped scenario (`fogveil scenario list`).",
    ),
]
Override = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Replace a key of the scenario, as in roles.fog=20. Repeatable.",
    ),
]
Disclosure = Annotated[
    str | None,
    typer.Option(help="What providers disclose to the agent: none, total, count or full."),
]
Rate = Annotated[float | None, typer.Option(help="β: mean time between two workloads of a source.")]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Fixes all chance events. [default: the scenario's; with --federated or --docker "
        "128 random bits, kept in run.json]"
    ),
]

Federated = Annotated[
    bool, typer.Option("--federated", help="Run a process per participant, over gRPC and MQTT.")
]
Docker = Annotated[bool, typer.Option("--docker", help="Run a container per participant.")]
Broker = Annotated[
    str, typer.Option(help="Federated: auto, mosquitto, builtin or mqtt[s]://host[:port].")
]
Window = Annotated[
    int | None,
    typer.Option(help="Federated: decisions per time window; 1 is lockstep. [default: automatic]"),
]


class Losses(StrEnum):
    """What a loss means for a federated run."""

    RECOVER = "recover"
    END = "end"


OnLoss = Annotated[
    Losses,
    typer.Option(
        help="Federated: start a participant again that dies or hangs, with the same run hash, or "
        "end the run with exit code 3."
    ),
]
SourceProcesses = Annotated[
    int, typer.Option(help="Federated: processes that share the IoT clusters.")
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure", help="Federated: no identities, no encryption; for packet captures only."
    ),
]
Record = Annotated[
    bool, typer.Option("--record", help="Federated: record every gRPC message, for `inspect`.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Replace other results in the folder of --out.")
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="End with one JSON object on standard output; all else: stderr."),
]
WorkersOption = Annotated[
    str | None,
    typer.Option(
        "--workers",
        metavar="WHERE",
        help="Who does the runs: a number of processes of this machine, dask://HOST:PORT, or "
        "slurm:FILE (docs/sweeps.md). [default: a process per core]",
    ),
]
Speed = Annotated[
    float | None,
    typer.Option(help="Federated: simulated time units per second. [default: unlimited]"),
]


def print_line(text: str, console: Console = out) -> None:
    """Print text, safe for a terminal, and else unchanged: not coloured, cut or wrapped."""
    console.print(safe_lines(text), markup=False, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """Show what a person has to know of the workers."""
    print_line(text, err)


def print_json(result: Any) -> None:
    """Print what --json promises: one object, on a line of its own, for scripts."""
    print(json.dumps(result, default=str))  # noqa: T201


def print_even_if_quiet(text: str) -> None:
    """Print to stderr what nobody may miss: errors, warnings and links."""
    before, err.quiet = err.quiet, False
    print_line(text, err)
    err.quiet = before


def collect_overrides(settings: list[str] | None, **options: Any) -> dict[str, Any]:
    """Return the values that replace keys of the scenario, from --set and from other options."""
    overrides = parse_overrides(settings or [])
    overrides |= {key: value for key, value in options.items() if value is not None}
    return overrides


_notes_said: set[str] = set()
"""A command may load its scenario more than once."""


def print_notes(notes: Iterable[str]) -> None:
    """Print what of the user's files was changed or left out, each line once."""
    for note in notes:
        if note not in _notes_said:
            _notes_said.add(note)
            print_line(note, err)


def load(file: Path | Table, overrides: dict[str, Any], rate: float | None) -> Scenario:
    """Load a scenario with overrides; `rate` replaces that of its sources.

    Of a user's graph or trace it is said what will be changed or left out.
    """
    scenario = _load(file, overrides, rate)
    if scenario.topology.kind == "file" or scenario.sources.kind == "trace":
        print_notes(build_world(scenario).notes)
    return scenario


def _load(file: Path | Table, overrides: dict[str, Any], rate: float | None) -> Scenario:
    if rate is None:
        return load_scenario(file, overrides)
    if not 0 < rate < inf:
        raise InputError(f"--rate {rate:g}: expected a positive number (it sets sources.scale)")
    try:
        return load_scenario(file, {**overrides, "sources.scale": rate})
    except InputError:
        if _replays_trace(file, overrides):
            raise InputError(
                "--rate is for poisson or deterministic sources; this scenario replays a trace: "
                "change its pace with --set sources.time_scale=NUMBER"
            ) from None
        raise


def _replays_trace(file: Path | Table, overrides: dict[str, Any]) -> bool:
    try:
        return load_scenario(file, overrides).sources.kind == "trace"
    except InputError:
        return False


def progress_bar(*columns: str, lines: bool = True) -> CommandProgress:
    """Return a progress bar with the time left; a command with lines of its own has no others."""
    return CommandProgress(err, *columns, lines=lines)


def federated_plan(
    *,
    federated: bool,
    broker: str,
    window: int | None,
    source_processes: int,
    speed: float | None = None,
    insecure: bool = False,
    record: bool = False,
    docker: bool = False,
    on_loss: Losses = Losses.END,
) -> Plan:
    """Return the plan of a federated run; its options are refused for embedded ones."""
    plan = Plan(
        broker=broker,
        window=window or 0,
        source_processes=source_processes,
        speed=speed,
        secure=not insecure,
        record=record,
        contained=docker,
    )
    if window is not None and window < 1:
        raise InputError(f"--window {window}: expected at least one decision")
    if not (federated or docker) and plan != Plan():
        raise InputError(
            "--broker, --window, --source-processes, --speed, --record and --insecure are for "
            "federated runs: add --federated or --docker"
        )
    plan = replace(plan, recovers=(federated or docker) and on_loss is Losses.RECOVER)
    if insecure:
        print_even_if_quiet(
            "INSECURE: participants prove no identity and nothing is encrypted. "
            "Use this on one machine, to look at packets, and for nothing else.",
        )
    return plan
