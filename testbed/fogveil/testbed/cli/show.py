"""`fogveil policies`, `fogveil scenario list` and `fogveil scenario show`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fogveil.testbed.cli.options import (
    Override,
    ScenarioFile,
    collect_overrides,
    err,
    out,
    print_line,
    print_notes,
)
from fogveil.testbed.report import tables
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.load import SHIPPED
from fogveil.testbed.scenario.world import build_world


def list_policies() -> None:
    """List the policies and the disclosure level each needs."""
    tables.print_table(tables.policy_table(), out)
    print_line(
        "your own: --policy my_policy.py:MyPolicy (a subclass of fogveil.agent.policy.Policy)"
    )
    print_line("a trained agent: --policy runs/parl/agent.npz")


def list_scenarios() -> None:
    """List the shipped scenarios."""
    tables.print_table(tables.shipped_scenarios_table(), out)
    print_line("use a name in place of a file: fogveil run tiny --policy jsq")
    print_line(f"your own: copy a file from {SHIPPED.resolve()} and edit it")


def show(
    scenario: ScenarioFile,
    participant: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="NAME",
            help="Print only what one participant receives: agent, sources, clock, fog-3 …",
        ),
    ] = None,
    override: Override = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="NAME", help="Draw to NAME.png and NAME.svg. [default: runs/SCENARIO-topology]"
        ),
    ] = None,
) -> None:
    """Summarise a scenario and draw its network.

    With --as, print exactly what one participant receives of it instead.
    """
    world = build_world(load_scenario(scenario, collect_overrides(override)))
    print_notes(world.notes)
    if participant is not None:
        print(json.dumps(world.projection(participant), indent=2))  # noqa: T201
        print_line(
            "seeds are those of this scenario's own seed, as in embedded runs or with --seed "
            f"{world.scenario.seed}; a federated run without --seed draws others",
            err,
        )
        return
    for table in tables.scenario_tables(world):
        tables.print_table(table, out)
    from fogveil.testbed.report.topology_figure import draw_topology

    target = picture or Path("runs") / f"{world.scenario.name}-topology"
    draw_topology(world, target)
    print_line(f"written: {target}.png, {target}.svg")
