"""`fogveil docker` and `fogveil down`."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated

import typer

import agent.policies as policies
from fogveil.errors import InputError
from testbed import tables
from testbed.cli.shared import Disclosure, Override, ScenarioFile, gather, load, out, say
from testbed.containers.layout import BLOCK, Layout
from testbed.federated.split import Plan, check, seats
from testbed.inspecting.recordings import at_work
from testbed.records import writing
from testbed.world import build_world

Policy = Annotated[
    str, typer.Option(help="A name from `fogveil policies`, file.npz, or file.py:Class.")
]
Subnet = Annotated[
    str, typer.Option(metavar="A.B.C.D/N", help="From where the networks take their addresses.")
]
app = typer.Typer(help="Write and serve compose files.", no_args_is_help=True)


def _block(subnet: str) -> IPv4Network:
    try:
        return IPv4Network(subnet)
    except ValueError as error:
        raise InputError(f"--subnet {subnet}: {error}") from error


@app.command()
def generate(
    scenario: ScenarioFile,
    folder: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where to write it.")],
    policy: Policy = "veil",
    seed: Annotated[int | None, typer.Option(help="The scenario's seed.")] = None,
    horizon: Annotated[float | None, typer.Option(help="When the sources stop.")] = None,
    disclosure: Disclosure = None,
    override: Override = None,
    subnet: Subnet = str(BLOCK),
) -> None:
    """Write a folder in which `docker compose up` runs the scenario to its end."""
    from testbed.containers.compose import Composed
    from testbed.containers.compose import generate as write

    overrides = gather(override, seed=seed, horizon=horizon, disclosure=disclosure)
    chosen = load(scenario, overrides, None)
    plan = Plan(policies=(policy,), record=True, contained=True)
    world = build_world(chosen)
    check(plan, world)
    composed = Composed(chosen, scenario, overrides, policy, _block(subnet))
    with writing(folder):
        path = write(composed, Layout(seats(world, 1), composed.block), folder)
    say(f"written: {path}\nrun it: cd {folder} && docker compose up")


@app.command(hidden=True)
def prepare(
    scenario: ScenarioFile,
    folder: Annotated[Path, typer.Option("--out", metavar="DIR")],
    policy: Policy = "veil",
    override: Override = None,
    subnet: Subnet = str(BLOCK),
) -> None:
    """Within a compose file: give everybody an identity and a share of the scenario."""
    from testbed.containers.composed import prepare as divide

    plan = Plan(policies=(policy,), record=True, contained=True)
    with writing(folder):
        divide(load(scenario, gather(override), None), plan, _block(subnet), folder)
    say(f"everybody has a share of {scenario.name}, for {policies.label_of(policy)}")


@app.command(hidden=True)
def evaluate(
    scenario: ScenarioFile,
    source: Annotated[Path, typer.Option("--from", metavar="DIR")],
    folder: Annotated[Path, typer.Option("--out", metavar="DIR")],
    policy: Policy = "veil",
    override: Override = None,
) -> None:
    """Within a compose file: join what the participants recorded."""
    from testbed.containers.composed import evaluate as join

    plan = Plan(policies=(policy,), record=True, contained=True)
    with writing(folder):
        result = join(load(scenario, gather(override), None), plan, source, folder)
    for table in tables.run_tables(result):
        out.print(table)
    say(f"run hash {result['run_hash']}\nrecords: ./runs/jobs.parquet, decisions.parquet, run.json")


def down(
    everything: Annotated[
        bool, typer.Option("--all", help="Also of testbeds that are at work right now.")
    ] = False,
) -> None:
    """Remove containers and networks that a crash of `fogveil up --docker` left behind."""
    from testbed.containers.engine import Engine, remove_run, runs_left, told

    engine = Engine()
    try:
        with told("Docker cannot be used"):
            left = runs_left(engine.api)
        removed = 0
        for run, folder in sorted(left.items()):
            if folder and at_work(Path(folder)) and not everything:
                say(f"run {run[:8]} is at work in {folder}: left alone (--all removes it as well)")
                continue
            remove_run(engine.api, run)
            removed += 1
            say(f"removed what was left of run {run[:8]} ({folder})")
        if not left:
            say("nothing was left behind")
    finally:
        engine.close()
