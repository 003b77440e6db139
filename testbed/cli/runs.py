"""`fogveil run` and `fogveil up`."""

from __future__ import annotations

import json
import os
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fogveil.errors import InputError
from testbed import tables
from testbed.cli.shared import (
    Broker,
    Disclosure,
    Docker,
    Federated,
    Insecure,
    Override,
    Record,
    ScenarioFile,
    SourceProcesses,
    Speed,
    Window,
    bar,
    err,
    federated_plan,
    gather,
    load,
    out,
    say,
)
from testbed.federated.declared import declared
from testbed.federated.launch import Report, Testbed
from testbed.federated.live import LiveTable
from testbed.federated.run import run_federated
from testbed.federated.split import check
from testbed.inspecting.capture import capturing, free_ports
from testbed.inspecting.recordings import at_work
from testbed.records import writing
from testbed.run import run_embedded
from testbed.world import build_world

PolicyName = Annotated[
    str, typer.Option(help="A name from `fogveil policies`, file.npz, or file.py:Class.")
]
Rate = Annotated[float | None, typer.Option(help="β: mean time between workloads.")]
Horizon = Annotated[float | None, typer.Option(help="Simulated time at which sources stop.")]
Seed = Annotated[int | None, typer.Option(help="The scenario's seed.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="End with one JSON object on standard output.")
]


def run(
    scenario: ScenarioFile,
    policy: PolicyName,
    rate: Rate = None,
    horizon: Horizon = None,
    seed: Seed = None,
    disclosure: Disclosure = None,
    override: Override = None,
    folder: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Keep the records here.")
    ] = None,
    federated: Federated = False,
    docker: Docker = False,
    broker: Broker = "auto",
    window: Window = None,
    source_processes: SourceProcesses = 1,
    speed: Speed = None,
    record: Record = False,
    insecure: Insecure = False,
    as_json: AsJson = False,
) -> None:
    """Run a scenario under one policy and print its delays."""
    overrides = gather(override, horizon=horizon, seed=seed, disclosure=disclosure)
    chosen = load(scenario, overrides, rate)
    plan = federated_plan(
        federated=federated,
        broker=broker,
        window=window,
        source_processes=source_processes,
        speed=speed,
        insecure=insecure,
        record=record,
        docker=docker,
    )
    with bar("{task.fields[jobs]:,} jobs") as progress_bar:
        task = progress_bar.add_task(f"{chosen.name} under {policy}", total=chosen.horizon, jobs=0)

        def progress(time: float, jobs: int) -> None:
            progress_bar.update(task, completed=time, jobs=jobs)

        def watch(_testbed: Testbed, _name: str, report: Report) -> None:
            if "clock" in report:
                progress(report["clock"]["time"], report["clock"]["decisions"])

        if federated or docker:
            declared(policy, build_world(chosen)).check_window(plan.window, policy)
            plan = replace(plan, policies=(policy,))
            (result,) = run_federated(chosen, plan, folder, watch, _before)
        else:
            if folder and at_work(folder):
                raise InputError(f"{folder}: a testbed is at work here")
            result = run_embedded(chosen, policy, folder, progress)
    _show(result, folder, as_json=as_json)


def up(
    scenario: ScenarioFile,
    policy: PolicyName,
    rate: Rate = None,
    horizon: Horizon = None,
    seed: Seed = None,
    disclosure: Disclosure = None,
    override: Override = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Records and logs. [runs/up/NAME-TIME]"),
    ] = None,
    broker: Broker = "auto",
    window: Window = None,
    source_processes: SourceProcesses = 1,
    speed: Speed = None,
    docker: Docker = False,
    insecure: Insecure = False,
    packets: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --insecure: capture the gRPC packets, for `inspect`."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Bring the federated testbed up and watch it: a process or container for each participant.

    Every participant gets a folder below DIR/participants with its own share of the scenario and
    its own record. Ctrl-C ends them all; so does the horizon, and then the records are joined.
    """
    overrides = gather(override, horizon=horizon, seed=seed, disclosure=disclosure)
    chosen = load(scenario, overrides, rate)
    plan = federated_plan(
        federated=True,
        broker=broker,
        window=window,
        source_processes=source_processes,
        speed=speed,
        insecure=insecure,
        record=True,
        docker=docker,
    )
    plan = replace(plan, policies=(policy,))
    if packets and not insecure:
        raise InputError(f"--packets {packets}: what is encrypted tells nothing: add --insecure")
    if packets and docker:
        raise InputError("--packets captures on loopback, where containers do not meet")
    world = build_world(chosen)
    if packets:
        plan = replace(plan, ports=free_ports(len(world.nodes) + 2))
    check(plan, world)
    declared(policy, world).check_window(plan.window, policy)
    made = None if folder else _new_folder(chosen.name)
    folder = folder or made
    assert folder is not None
    say(f"testbed: {folder} (log of all participants: {folder}/testbed.log)", err)
    try:
        capture = capturing(packets, plan.ports) if packets else nullcontext()
        with capture, LiveTable(err, chosen.horizon) as table:
            (result,) = run_federated(chosen, plan, folder, table.watch, _before)
    except KeyboardInterrupt:
        say(f"stopped; what each participant recorded is in {folder}/participants", err)
        raise
    finally:
        with suppress(OSError):
            if made:
                made.rmdir()  # where nothing came of it
    _show(result, folder, as_json=as_json)


def _before(words: str) -> None:
    """Say what takes long before anything runs."""
    say(words, err)


def _new_folder(name: str) -> Path:
    """Make a folder for a testbed, which is not that of another one brought up this very second."""
    folder = Path("runs/up") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    with writing(folder):
        try:
            folder.mkdir(parents=True, mode=0o700)
        except FileExistsError:
            folder = folder.with_name(f"{folder.name}-{os.getpid()}")
    return folder


def _show(result: dict[str, Any], folder: Path | None, *, as_json: bool) -> None:
    console: Console = err if as_json else out
    for table in tables.run_tables(result):
        console.print(table)
    summary = result["summary"]
    console.print(
        f"{summary['workloads']:,} workloads, {summary['unserved']:,} of them unserved "
        f"at the horizon\nrun hash {result['run_hash']}"
    )
    if folder:
        say(f"records: {folder}/jobs.parquet, decisions.parquet, run.json", console)
    if as_json:
        keys = ("name", "policy", "level", "mode", "seed", "run_hash", "wall_seconds")
        line = {key: result[key] for key in (*keys, "cpu_seconds")} | result["summary"]
        print(json.dumps(line))  # noqa: T201 (the promised last line)
