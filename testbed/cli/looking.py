"""`fogveil policies` and `fogveil scenario show`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from testbed import tables
from testbed.cli.shared import Override, ScenarioFile, gather, out, say
from testbed.scenario import load_scenario
from testbed.world import build_world


def list_policies() -> None:
    """List the policies and what each needs to know."""
    out.print(tables.policy_table())
    out.print("your own: --policy my_policy.py:MyPolicy (a subclass of agent.policy.Policy)")


def show(
    scenario: ScenarioFile,
    participant: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="NAME", help="Print exactly what agent, sources, clock, fog-3 … get."
        ),
    ] = None,
    override: Override = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="NAME", help="Where to draw it: NAME.png, NAME.svg.")
    ] = None,
) -> None:
    """Summarise a scenario and draw its topology, or show one participant's share of it."""
    world = build_world(load_scenario(scenario, gather(override)))
    if participant is not None:
        print(json.dumps(world.projection(participant), indent=2))  # noqa: T201
        return
    for table in tables.scenario_tables(world):
        out.print(table)
    from testbed.drawing import draw_topology

    target = picture or Path("runs") / f"{world.scenario.name}-topology"
    draw_topology(world, target)
    say(f"written: {target}.png, {target}.svg")
