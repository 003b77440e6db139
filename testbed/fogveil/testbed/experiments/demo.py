"""`make demo`: a run of the federated testbed, and everything that crossed the boundary in it."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from rich.console import Console

import fogveil.agent.policies as policies
from fogveil.agent.learning.parl import Parl
from fogveil.protocol.identity import AGENT
from fogveil.protocol.recording import TRAFFIC
from fogveil.testbed.engine.embedded import simulate
from fogveil.testbed.experiments.federated_training import train_federated
from fogveil.testbed.launch.federated_run import run_federated
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.launch.run_folder import PARTICIPANTS
from fogveil.testbed.page.files import write_page
from fogveil.testbed.page.kinds import make_document
from fogveil.testbed.privacy.inspect.disclosure_summary import DisclosureSummary
from fogveil.testbed.privacy.inspect.recordings import read_recording
from fogveil.testbed.records.provenance import provenance
from fogveil.testbed.records.summary import Summary
from fogveil.testbed.report.averages import PolicyAverage, Result, average_runs
from fogveil.testbed.report.figures import plot_delays
from fogveil.testbed.report.tables import compare_tables, print_table, write_comparison
from fogveil.testbed.scenario import Scenario, load_scenario
from fogveil.testbed.scenario.world import build_world

SCENARIO = "paper"
OUT = Path("runs/demo")
RATE, HORIZON = 100.0, 1000.0
"""The paper's highest rate of workloads, and a tenth of its shorter horizon."""
DRAWS = (0, 1, 2)
FEDERATED = ("parl", "veil", "jsq", "random", "round-robin", "nearest")
TOLD_EVERYTHING = ("electre", "fastest")
"""They need level `full`, which these providers do not disclose: only the experimenter can."""
TRAINING = {"training_steps": 600, "buffer_capacity": 4000}
"""Short: the paper trains 250 times longer."""
BRIEF = "brief parl"


def main() -> None:
    """Train PARL briefly, compare policies, and show what the agent received from a provider."""
    console = Console(highlight=False)
    shutil.rmtree(OUT, ignore_errors=True)
    scenario = load_scenario(SCENARIO, {"sources.scale": RATE, "horizon": HORIZON})
    world = build_world(scenario)
    console.print(
        f"fogveil: the testbed of scenario {SCENARIO}, one process each for {len(world.nodes)} Fog "
        "providers,\nthe Cloud, the IoT clusters, the agent, the clock and the MQTT broker"
    )
    begin = time.perf_counter()
    hyperparameters = Parl.defaults.model_copy(update=TRAINING)
    trained = train_federated(
        scenario, "parl", OUT / "parl", Plan(broker="builtin"), hyperparameters
    )
    console.print(
        f"PARL, the paper's agent, was trained on it for {hyperparameters.training_decisions:,} "
        f"decisions ({time.perf_counter() - begin:.0f} s),\n`{BRIEF}` below; `parl` is the shipped "
        f"one, trained for {Parl.defaults.training_decisions:,}"
    )
    begin = time.perf_counter()
    names = (*FEDERATED, str(trained))
    plan = Plan(policies=names, draws=DRAWS, broker="builtin", record=True)
    results = run_federated(scenario, plan, OUT / "testbed")
    decisions = sum(result["summary"]["workloads"] for result in results)
    console.print(
        f"{len(names)} policies ran {len(DRAWS)} times each on equal workloads: {decisions:,} "
        f"decisions ({time.perf_counter() - begin:.0f} s)"
    )
    _check_hashes(scenario, results, console)
    console.print(
        f"{' and '.join(TOLD_EVERYTHING)} must be told everything, and these providers tell "
        "counts:\nthey ran in the embedded engine, on the same workloads"
    )
    averages = _averages(results, names) + _told_everything(results)
    for table in compare_tables(averages, "jsq"):
        print_table(table, console)
    write_comparison(averages, "jsq", OUT, provenance())
    plot_delays(averages, OUT / "delays")
    show_boundary(OUT / "testbed", len(results), console)
    folders = [OUT, OUT / "parl", *sorted((OUT / "testbed").glob("episode-*"))[: len(names)]]
    write_page(make_document(folders), OUT / "report.html")
    console.print(
        f"\nfigure: {OUT}/delays.png   numbers: {OUT}/compare.csv\n"
        f"configuration and records of each participant: {OUT}/testbed/participants/\n"
        f"all of it as one page to open in a browser: {OUT}/report.html"
    )


def _check_hashes(scenario: Scenario, results: list[Result], console: Console) -> None:
    """Repeat the runs in one process: the run hashes must be equal."""
    world = build_world(scenario)
    for result in results:
        drawn = world.drawn(result["federated"]["draw"])
        embedded = simulate(drawn, policies.load(result["policy"], drawn.agent))
        if embedded != result["run_hash"]:
            raise AssertionError(f"{result['policy']}: differs from the embedded run")
    console.print(f"all {len(results)} runs equal those of the embedded engine, to the last bit")


def _averages(results: list[Result], names: tuple[str, ...]) -> list[PolicyAverage]:
    by_policy = {name: [r for r in results if r["policy"] == name] for name in names}
    base = by_policy["jsq"]
    return [
        average_runs(name if name in FEDERATED else BRIEF, RATE, HORIZON, runs, base)
        for name, runs in by_policy.items()
    ]


def _told_everything(results: list[Result]) -> list[PolicyAverage]:
    """Run the methods that need level `full` in one process, on the same workloads."""
    overrides = {"sources.scale": RATE, "horizon": HORIZON, "disclosure": "full"}
    world = build_world(load_scenario(SCENARIO, overrides))
    base = [result for result in results if result["policy"] == "jsq"]
    averages = []
    for name in TOLD_EVERYTHING:
        runs: list[Result] = []
        for draw in DRAWS:
            drawn = world.drawn(draw)
            summary = Summary(drawn)
            simulate(drawn, policies.load(name, drawn.agent), [summary])
            runs.append({"summary": summary.result(), "level": "full"})
        averages.append(average_runs(name, RATE, HORIZON, runs, base))
    return averages


def show_boundary(folder: Path, runs: int, console: Console) -> None:
    """Show everything that crossed from one provider to the agent, and one message in full."""
    summary = DisclosureSummary("fog-3")
    for crossing in read_recording(folder / PARTICIPANTS / AGENT / TRAFFIC):
        summary.add(crossing)
    console.print(f"\nEverything the agent ever learned from fog-3, in {runs} runs:")
    summary.print(console)


if __name__ == "__main__":
    main()
