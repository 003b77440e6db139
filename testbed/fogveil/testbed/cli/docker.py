"""`fogveil docker` and `fogveil down`."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated

import typer

import fogveil.agent.policies as policies
from fogveil.core.errors import InputError
from fogveil.testbed.cli.options import (
    Disclosure,
    Override,
    ScenarioFile,
    Seed,
    collect_overrides,
    load,
    out,
    print_line,
)
from fogveil.testbed.cli.seeds import with_seed
from fogveil.testbed.launch.docker.layout import BLOCK, Layout
from fogveil.testbed.launch.participant_config import Plan, check, roster
from fogveil.testbed.launch.run_folder import is_running
from fogveil.testbed.records.output import reporting_write_errors
from fogveil.testbed.report import tables
from fogveil.testbed.scenario.load import find_scenario
from fogveil.testbed.scenario.world import build_world

Policy = Annotated[
    str, typer.Option(help="A name from `fogveil policies`, file.npz, or file.py:Class.")
]
Subnet = Annotated[
    str, typer.Option(metavar="A.B.C.D/N", help="The addresses of the containers' networks.")
]
app = typer.Typer(help="Write compose files, and do their steps.", no_args_is_help=True)


def _block(subnet: str) -> IPv4Network:
    try:
        return IPv4Network(subnet)
    except ValueError as error:
        raise InputError(f"--subnet {subnet}: {error}") from error


def _plan(policy: str) -> Plan:
    return Plan(policies=(policy,), record=True, contained=True)


@app.command()
def generate(
    scenario: ScenarioFile,
    folder: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where to write it.")],
    policy: Policy = "veil",
    seed: Seed = None,
    horizon: Annotated[float | None, typer.Option(help="When the sources stop.")] = None,
    disclosure: Disclosure = None,
    override: Override = None,
    subnet: Subnet = str(BLOCK),
) -> None:
    """Write a folder in which `docker compose up` runs the scenario to its end."""
    from fogveil.testbed.launch.docker.compose import Composition
    from fogveil.testbed.launch.docker.compose import generate as generate_folder

    overrides = collect_overrides(override, seed=seed, horizon=horizon, disclosure=disclosure)
    chosen = load(scenario, with_seed(overrides, federated=True), None)
    world = build_world(chosen)
    check(_plan(policy), world)
    if any(change.crash for change in world.members):
        raise InputError(
            "events: Docker Compose ends and restarts no provider in the middle of a run; take the "
            "crash out, or use fogveil run --docker"
        )
    composition = Composition(
        chosen,
        find_scenario(scenario),
        overridden=chosen != load(scenario, {}, None),
        policy=policy,
        layout=Layout(roster(world, 1), _block(subnet)),
    )
    with reporting_write_errors(folder):
        path = generate_folder(composition, folder)
    print_line(f"written: {path}\nrun it: cd {folder} && docker compose up")


@app.command(hidden=True)
def prepare(
    scenario: ScenarioFile,
    folder: Annotated[Path, typer.Option("--out", metavar="DIR")],
    policy: Policy = "veil",
    subnet: Subnet = str(BLOCK),
) -> None:
    """Within a compose file: write every participant's identity and share of the scenario."""
    from fogveil.testbed.launch.docker import compose_steps

    with reporting_write_errors(folder):
        compose_steps.prepare(load(scenario, {}, None), _plan(policy), _block(subnet), folder)
    print_line(
        f"every participant has its share of {scenario.name}, for {policies.label_of(policy)}"
    )


@app.command(hidden=True)
def evaluate(
    scenario: ScenarioFile,
    source: Annotated[Path, typer.Option("--from", metavar="DIR")],
    folder: Annotated[Path, typer.Option("--out", metavar="DIR")],
    policy: Policy = "veil",
) -> None:
    """Within a compose file: join the participants' records."""
    from fogveil.testbed.launch.docker import compose_steps

    with reporting_write_errors(folder):
        result = compose_steps.evaluate(load(scenario, {}, None), _plan(policy), source, folder)
    for table in tables.run_tables(result):
        tables.print_table(table, out)
    print_line(
        f"run hash {result['run_hash']}\nrecords: ./runs/jobs.parquet, decisions.parquet, run.json"
    )


def down(
    everything: Annotated[
        bool, typer.Option("--all", help="Also of testbeds that are running right now.")
    ] = False,
) -> None:
    """Remove containers and networks that a crash of `fogveil up --docker` left behind."""
    from fogveil.testbed.launch.docker.engine_client import (
        EngineClient,
        engine_errors,
        leftover_runs,
        remove_run,
    )

    engine = EngineClient()
    try:
        with engine_errors("Docker cannot be used"):
            runs = leftover_runs(engine.api)
        for run, folder in sorted(runs.items()):
            if folder and is_running(Path(folder)) and not everything:
                print_line(
                    f"run {run[:8]} is running in {folder}: left alone (--all removes it as well)"
                )
                continue
            remove_run(engine.api, run)
            print_line(f"removed what was left of run {run[:8]} ({folder})")
        if not runs:
            print_line("nothing was left behind")
    finally:
        engine.close()
