"""What the commands share: options, consoles, and how a scenario is read from arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fogveil.errors import InputError
from testbed.federated.split import Plan
from testbed.scenario import Scenario, load_scenario
from testbed.scenario.load import parse_overrides

ORACLE = "setr"
out = Console()
err = Console(stderr=True)

ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO", help="A scenario file (TOML).")]
Override = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Replace a key, as in roles.fog=20."),
]
Disclosure = Annotated[
    str | None,
    typer.Option(help="What providers disclose: none, total, count or full."),
]

Federated = Annotated[
    bool, typer.Option("--federated", help="A process for each participant, gRPC and MQTT.")
]
Docker = Annotated[bool, typer.Option("--docker", help="A container for each participant.")]
Broker = Annotated[
    str, typer.Option(help="Federated: auto, mosquitto, builtin or mqtt[s]://host[:port].")
]
Window = Annotated[
    int | None,
    typer.Option(help="Federated: decisions per window of time; 1 is lockstep. [auto]"),
]
SourceProcesses = Annotated[
    int, typer.Option(help="Federated: processes that share the IoT clusters.")
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Federated: no identities, plain text; for packet captures."),
]
Record = Annotated[
    bool, typer.Option("--record", help="Federated: record what crosses gRPC, for `inspect`.")
]
Speed = Annotated[
    float | None,
    typer.Option(help="Federated: simulated time per second; without it as fast as it goes."),
]


def say(sentence: str, console: Console = out) -> None:
    """Print a sentence as it is: paths are not coloured, cut or wrapped."""
    console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def gather(given: list[str] | None, **options: Any) -> dict[str, Any]:
    """Return what replaces keys of the scenario, from --set and from options of their own."""
    found = parse_overrides(given or [])
    found |= {key: value for key, value in options.items() if value is not None}
    return found


def load(file: Path, overrides: dict[str, Any], rate: float | None) -> Scenario:
    """Read a scenario with what replaces its keys."""
    if rate is not None:
        overrides = {**overrides, "sources.scale": rate}
        if load_scenario(file).sources.kind == "trace":
            raise InputError("--rate is for poisson or deterministic sources; a trace has its own")
    return load_scenario(file, overrides)


def bar(*columns: str) -> Progress:
    """Return a progress bar, which only a terminal shows."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *(TextColumn(column) for column in columns),
        TimeRemainingColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )


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
) -> Plan:
    """Read the options that only federated runs have."""
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
    if insecure:
        say(
            "INSECURE: no identity is proved, nothing is encrypted, nobody is refused. "
            "For looking at packets on this machine, and for nothing else.",
            err,
        )
    return plan
