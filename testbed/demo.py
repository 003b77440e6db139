"""`make demo`: the federated testbed at work, and what crossed the boundary while it was."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from rich.console import Console

import agent.policies as policies
from agent.parl import Parl
from fogveil.identity import AGENT
from fogveil.recording import TRAFFIC
from testbed.compare import Row, row_of, write_tables
from testbed.embedded import simulate
from testbed.federated.run import run_federated
from testbed.federated.split import Plan
from testbed.federated.training import train_federated
from testbed.figures import plot_delays
from testbed.inspecting.learned import Learned, show
from testbed.inspecting.recordings import PARTICIPANTS
from testbed.scenario import Scenario, load_scenario
from testbed.tables import compare_tables
from testbed.traffic import read_traffic
from testbed.world import build_world

SCENARIO = Path("scenarios/paper.toml")
OUT = Path("runs/demo")
HORIZON = 2000.0
DRAWS = (0, 1, 2)
RIVALS = ("random", "jsq")
TRAINING = {"training_steps": 600, "buffer_capacity": 4000}
"""Brief: the paper trains a hundred times longer."""


def main() -> None:
    """Train PARL briefly, run four policies, compare them, and show what the agent was told."""
    console = Console(highlight=False)
    shutil.rmtree(OUT, ignore_errors=True)
    scenario = load_scenario(SCENARIO, {"horizon": HORIZON})
    world = build_world(scenario)
    console.print(
        f"fogveil: the testbed of {SCENARIO}, a process each for {len(world.nodes)} Fog providers,"
        "\nthe Cloud, the IoT clusters, the agent, the clock and the MQTT broker"
    )
    begin = time.perf_counter()
    given = Parl.defaults.model_copy(update=TRAINING)
    trained = train_federated(scenario, "parl", OUT / "parl", Plan(broker="builtin"), given)
    console.print(
        f"PARL, the paper's agent, has trained on it for {given.training_decisions:,} decisions "
        f"({time.perf_counter() - begin:.0f} s)"
    )
    begin = time.perf_counter()
    names = ("veil", str(trained), *RIVALS)
    plan = Plan(policies=names, draws=DRAWS, broker="builtin", record=True)
    results = run_federated(scenario, plan, OUT / "testbed")
    decisions = sum(result["summary"]["workloads"] for result in results)
    console.print(
        f"{len(names)} policies ran {len(DRAWS)} times each on equal workloads: {decisions:,} "
        f"decisions ({time.perf_counter() - begin:.0f} s)"
    )
    _check(scenario, results, console)
    rows = _rows(results, names)
    for table in compare_tables(rows, "jsq"):
        console.print(table)
    write_tables(rows, OUT)
    plot_delays(rows, OUT / "delays")
    show_boundary(OUT / "testbed", console)
    console.print(
        f"\npicture: {OUT}/delays.png   numbers: {OUT}/compare.csv\n"
        f"what each participant had and kept: {OUT}/testbed/participants/"
    )


def _check(scenario: Scenario, results: list[dict[str, Any]], console: Console) -> None:
    """Run the same again in one process: it must be the same to the last bit."""
    world = build_world(scenario)
    for result in results:
        drawn = world.drawn(result["federated"]["draw"])
        embedded = simulate(drawn, policies.load(result["policy"], drawn.agent))
        if embedded != result["run_hash"]:
            raise AssertionError(f"{result['policy']}: not the embedded run")
    console.print(f"all {len(results)} runs are those of the embedded engine, to the last bit")


def _rows(results: list[dict[str, Any]], names: tuple[str, ...]) -> list[Row]:
    by_policy = {name: [r for r in results if r["policy"] == name] for name in names}
    base = by_policy["jsq"]
    return [
        row_of(policies.label_of(name), None, HORIZON, runs, base)
        for name, runs in by_policy.items()
    ]


def show_boundary(folder: Path, console: Console) -> None:
    """Show all that crossed from one provider to the agent, and one message whole."""
    learned = Learned("fog-3")
    for crossing in read_traffic(folder / PARTICIPANTS / AGENT / TRAFFIC):
        learned.take(crossing)
    console.print("\nEverything the agent ever learned from fog-3, four policies and twelve runs:")
    show(learned, console)


if __name__ == "__main__":
    main()
