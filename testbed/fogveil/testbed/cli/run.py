"""`fogveil run` and `fogveil up`."""

from __future__ import annotations

import json
import os
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

import fogveil.api as fogveil
from fogveil.agent.policies import label_of
from fogveil.core.errors import InputError
from fogveil.testbed.cli.adapt import (
    AdaptHyperparameters,
    AdaptWord,
    adaptation_lines,
    adaptation_request,
)
from fogveil.testbed.cli.options import (
    AsJson,
    Broker,
    Disclosure,
    Docker,
    Federated,
    Insecure,
    Losses,
    OnLoss,
    Override,
    Rate,
    Record,
    ScenarioFile,
    Seed,
    SourceProcesses,
    Speed,
    Window,
    collect_overrides,
    err,
    federated_plan,
    load,
    out,
    print_even_if_quiet,
    print_line,
    progress_bar,
)
from fogveil.testbed.cli.repeat import EarlierRun, read_earlier_run
from fogveil.testbed.cli.seeds import noting_seed, with_seed
from fogveil.testbed.launch.federated_run import run_federated
from fogveil.testbed.launch.join_records import mark_line
from fogveil.testbed.launch.live_table import LiveTable
from fogveil.testbed.launch.participant_config import check, check_windows
from fogveil.testbed.launch.recovery import loss_line
from fogveil.testbed.launch.reports import Report
from fogveil.testbed.launch.run_folder import is_running
from fogveil.testbed.launch.side_by_side import run_side_by_side
from fogveil.testbed.launch.testbed import Testbed
from fogveil.testbed.privacy.inspect.capture import free_ports, packet_capture
from fogveil.testbed.records.output import reporting_write_errors
from fogveil.testbed.report import tables
from fogveil.testbed.scenario import Scenario
from fogveil.testbed.scenario.world import build_world

if TYPE_CHECKING:
    from fogveil.testbed.dashboard.run_page import RunPage

Horizon = Annotated[float | None, typer.Option(help="Simulated time at which sources stop.")]


def run(
    scenario: Annotated[
        Path | None,
        typer.Argument(
            metavar="SCENARIO",
            help="A TOML file, or the name of a shipped scenario (`fogveil scenario list`).",
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="A name from `fogveil policies`, a trained agent's file.npz, or file.py:Class."
        ),
    ] = None,
    rate: Rate = None,
    horizon: Horizon = None,
    seed: Seed = None,
    disclosure: Disclosure = None,
    override: Override = None,
    adapt: AdaptWord = None,
    hyperparameters: AdaptHyperparameters = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="For the records. [default: none are kept]"),
    ] = None,
    federated: Federated = False,
    docker: Docker = False,
    broker: Broker = "auto",
    window: Window = None,
    source_processes: SourceProcesses = 1,
    speed: Speed = None,
    record: Record = False,
    insecure: Insecure = False,
    on_loss: OnLoss = Losses.RECOVER,
    repeat: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Repeat a run from its folder or run.json: its scenario, seed, policy and mode, "
            "unless options replace them. The exit code is 1 if the run hash differs.",
        ),
    ] = None,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="With --repeat: in this process, whatever it was.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a scenario under one policy and print its delays.

    All participants run in this process, unless --federated or --docker is given; the run is the
    same, as its run hash shows.
    """
    earlier = read_earlier_run(repeat) if repeat else None
    source, policy = _what_to_run(scenario, policy, earlier)
    if embedded and (federated or docker or not earlier):
        raise InputError("--embedded goes with --repeat, and with neither --federated nor --docker")
    if earlier and not (embedded or federated or docker):
        federated, docker = earlier.mode == "federated", earlier.mode == "docker"
    if earlier and (federated or docker):
        window = window or earlier.federated.window or None
        if source_processes == 1:
            source_processes = earlier.federated.source_processes
    request = adaptation_request(adapt, hyperparameters)
    if earlier and earlier.adapt and not request:
        request = earlier.adapt.request
    overrides = collect_overrides(override, horizon=horizon, seed=seed, disclosure=disclosure)
    kept = earlier.scenario.get("seed") if earlier else None
    chosen = load(source, with_seed(overrides, federated=federated or docker, earlier=kept), rate)
    plan = federated_plan(
        federated=federated,
        broker=broker,
        window=window,
        source_processes=source_processes,
        speed=speed,
        insecure=insecure,
        record=record,
        docker=docker,
        on_loss=on_loss,
    )
    with progress_bar("{task.fields[jobs]:,} jobs") as progress:
        task = progress.add_task(f"{chosen.name} under {policy}", total=chosen.horizon, jobs=0)

        def update(time: float, jobs: int) -> None:
            progress.update(task, completed=time, jobs=jobs)

        def watch(_testbed: Testbed, _name: str, report: Report) -> None:
            if "clock" in report:
                update(report["clock"]["time"], report["clock"]["decisions"])

        if federated or docker:
            plan = replace(plan, policies=(policy,), adaptation=request)
            check_windows(plan, build_world(chosen))
            with noting_seed(overrides, chosen.seed):
                (result,) = run_federated(chosen, plan, folder, watch, _announce)
        else:
            if folder and is_running(folder):
                raise InputError(
                    f"{folder}: a testbed is running in this folder; choose another --out"
                )
            result = fogveil.run(
                chosen,
                policy,
                out=folder,
                progress=update,
                adapt=request.adapt.value if request else None,
                hyperparameters=request.changes if request else None,
            ).record
    print_result(result, folder, as_json=as_json)
    if earlier and repeat and (sentence := earlier.check_repeated(result, repeat)):
        print_line(sentence, err)


def _what_to_run(
    scenario: Path | None, policy: str | None, earlier: EarlierRun | None
) -> tuple[Path | dict[str, Any], str]:
    """Return the scenario and the policy that were named, or those of an earlier run."""
    if earlier:
        if scenario is not None:
            raise InputError(f"{scenario}: leave it out, --repeat has a scenario of its own")
        return earlier.scenario, policy or earlier.policy
    if scenario is None or policy is None:
        raise InputError(
            "name a SCENARIO and a --policy, or with --repeat the folder of a run to repeat"
        )
    return scenario, policy


def up(
    scenario: ScenarioFile,
    policy: Annotated[
        str,
        typer.Option(
            help="A name from `fogveil policies`, a trained agent's file.npz, or file.py:Class. "
            "With --dashboard also several, separated by commas: each has a testbed of its own, "
            "with the same workloads."
        ),
    ],
    rate: Rate = None,
    horizon: Horizon = None,
    seed: Seed = None,
    disclosure: Disclosure = None,
    override: Override = None,
    adapt: AdaptWord = None,
    hyperparameters: AdaptHyperparameters = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="For records and logs. [default: runs/up/NAME-TIME]"
        ),
    ] = None,
    broker: Broker = "auto",
    window: Window = None,
    source_processes: SourceProcesses = 1,
    speed: Speed = None,
    docker: Docker = False,
    insecure: Insecure = False,
    on_loss: OnLoss = Losses.RECOVER,
    packets: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --insecure: capture the gRPC packets, for `inspect`."
        ),
    ] = None,
    as_page: Annotated[
        bool,
        typer.Option(
            "--dashboard", help="Show it in a browser; the run begins when the page is opened."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start the federated testbed and watch it.

    Each participant is a process of its own, or with --docker a container. Every participant has a
    folder below DIR/participants with its part of the scenario and its own record. All end at the
    horizon, when their records are joined, or on Ctrl-C.
    """
    overrides = collect_overrides(override, horizon=horizon, seed=seed, disclosure=disclosure)
    chosen = load(scenario, with_seed(overrides, federated=True), rate)
    plan = federated_plan(
        federated=True,
        broker=broker,
        window=window,
        source_processes=source_processes,
        speed=speed,
        insecure=insecure,
        record=True,
        docker=docker,
        on_loss=on_loss,
    )
    request = adaptation_request(adapt, hyperparameters)
    names = _side_by_side(policy, as_page=as_page, other=docker or bool(packets))
    plan = replace(plan, policies=names[:1], paced=as_page, adaptation=request)
    if packets and not insecure:
        raise InputError(f"--packets {packets}: encrypted packets show nothing: add --insecure")
    if packets and docker:
        raise InputError(
            "--packets captures on loopback, which containers do not use: leave --docker out"
        )
    world = build_world(chosen)
    if packets:
        plan = replace(plan, ports=free_ports(len(world.nodes) + 2))
    check(plan, world)
    for name in names:
        check_windows(replace(plan, policies=(name,)), world)
    created = None if folder else _create_folder(chosen.name)
    folder = folder or created
    assert folder is not None
    folders = {name: folder / f"{place}-{label_of(name)}" for place, name in enumerate(names, 1)}
    if len(names) == 1:
        folders = {policy: folder}
    for each in folders.values():
        print_line(f"testbed: {each} (log of all participants: {each}/testbed.log)", err)
    try:
        capture = packet_capture(packets, plan.ports) if packets else nullcontext()
        with (
            capture,
            noting_seed(overrides, chosen.seed),
            _page(chosen, folders) if as_page else nullcontext() as page,
            LiveTable(err, chosen.horizon) as table,
        ):
            started = page.show if page else None
            results = run_side_by_side(chosen, plan, folders, table.watch, _announce, started)
            for result, each in zip(results, folders.values(), strict=True):
                print_result(result, each, as_json=as_json)
            if page and err.is_terminal:
                print_line("the page stays open until Ctrl-C", err)
                page.wait()
    except KeyboardInterrupt:
        for each in folders.values():
            print_line(f"stopped; the participants' records are in {each}/participants", err)
        raise
    finally:
        with suppress(OSError):
            if created:
                created.rmdir()  # if it is still empty


def _side_by_side(policies: str, *, as_page: bool, other: bool) -> tuple[str, ...]:
    """Return the policies that were named: several where a page shows them side by side."""
    names = tuple(dict.fromkeys(name.strip() for name in policies.split(",") if name.strip()))
    if len(names) > 1 and not as_page:
        raise InputError(
            f"--policy {policies}: several stand side by side with --dashboard: add it"
        )
    if len(names) > 1 and other:
        raise InputError(
            f"--policy {policies}: several policies go with neither --docker nor --packets"
        )
    return names or (policies,)


def _page(scenario: Scenario, folders: dict[str, Path]) -> RunPage:
    from fogveil.testbed.dashboard.run_page import RunPage

    return RunPage(
        scenario, folders, lambda link: print_even_if_quiet(f"open in a browser, once: {link}")
    )


def _announce(step: str) -> None:
    """Print a step that takes long before anything runs."""
    print_line(step, err)


def _create_folder(name: str) -> Path:
    """Create a folder for a testbed; two that start in the same second get different ones."""
    folder = Path("runs/up") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    with reporting_write_errors(folder):
        try:
            folder.mkdir(parents=True, mode=0o700)
        except FileExistsError:
            folder = folder.with_name(f"{folder.name}-{os.getpid()}")
    return folder


def print_result(result: dict[str, Any], folder: Path | None, *, as_json: bool) -> None:
    """Print what a run's record says."""
    console: Console = err if as_json else out
    for table in tables.run_tables(result):
        tables.print_table(table, console)
    summary = result["summary"]
    console.print(
        f"{summary['workloads']:,} workloads, {summary['unserved']:,} of them unserved "
        f"at the horizon\n{tables.summary_line(summary)}\nrun hash {result['run_hash']}"
    )
    if folder:
        print_line(f"records: {folder}/jobs.parquet, decisions.parquet, run.json", console)
    if folder and result["scenario"].get("events"):
        from fogveil.testbed.report.gallery import draw_run  # matplotlib takes a while to load

        print_line(f"delay over time, with the events: {draw_run(folder)}.png", console)
    for loss in result.get("losses", ()):
        print_line(loss_line(loss), err)
    for mark in result.get("marked", ()):
        print_line(mark_line(mark), err)
    for line in adaptation_lines(result, folder):
        print_line(line, err)
    if as_json:
        keys = ("name", "policy", "level", "mode", "seed", "run_hash", "wall_seconds")
        line = {key: result[key] for key in (*keys, "cpu_seconds")} | result["summary"]
        print(json.dumps(line))  # noqa: T201 (the last line, for scripts)
