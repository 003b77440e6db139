"""What it costs that a run can recover, and how long a recovery takes.

python -m benchmarks.recovery             rates with and without recovery, in alternating turns
python -m benchmarks.recovery --times 20  seconds until a killed participant is back, by kind
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.federated import FOGS, WINDOW, make_world, rate, ratio, verdict
from benchmarks.federated_testbed import PausableTestbed
from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.training_state import TrainingState
from fogveil.agent.policies import load
from fogveil.testbed.engine.embedded import simulate
from fogveil.testbed.launch.federated_run import FederatedRun
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.launch.reports import Report
from fogveil.testbed.launch.testbed import Testbed
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import build_world

MOST = 0.9
"""Target: share of the rate of a run that a loss ends."""
SECONDS = 0.7
HORIZON = 2000.0
SPEED = 250.0
"""Simulated time per second: faults are to come one by one."""
EVERYBODY = ("fog-1", "cloud", "sources", "agent", "clock", "broker")


def cost(turns: int) -> None:
    """Print the rates of a run that recovers against those of one that a loss ends."""
    world = make_world(FOGS)
    with tempfile.TemporaryDirectory() as folder:
        state = TrainingState(world.agent, "parl", Hyperparameters(), Path(folder))
        parl = str(state.save_agent())
        plans = {
            "lockstep (jsq)": Plan(policies=("jsq",), window=1),
            "pipelined (PARL, untrained)": Plan(policies=(parl,), window=WINDOW),
        }
        print(f"rates of a run that recovers from losses, {FOGS} Fog providers")
        for name, plan in plans.items():
            recovering = replace(plan, recovers=True)
            with (
                PausableTestbed(world, plan) as ending,
                PausableTestbed(world, recovering) as able,
            ):
                able.pause()
                pairs = [(able.measure(SECONDS), ending.measure(SECONDS)) for _ in range(turns)]
            ours, limits = zip(*pairs, strict=True)
            share = ratio(ours, [turn.rate for turn in limits])
            print(
                f"  {share:5.2f} of the rate without, {name}: {rate(ours):,.0f} to "
                f"{rate(limits):,.0f} decisions/s (target {MOST:g}: {verdict(met=share >= MOST)})"
            )


def times(kills: int) -> None:
    """Kill each kind of participant at random moments; print how long each took to be back."""
    scenario = load_scenario("tiny", {"horizon": HORIZON, "seed": 1})
    world = build_world(scenario)
    expected = simulate(world, load("jsq", world.agent))
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    chance = random.Random(1)  # noqa: S311 (moments, no secrets)
    for number in range(kills):
        order = list(EVERYBODY)
        chance.shuffle(order)
        # So far apart that one is back before the next is killed.
        step = HORIZON / (len(order) + 1)
        moments = [step * (place + chance.random() * 0.4) for place in range(len(order))]
        result = _killed(dict(zip(order, moments, strict=True)), scenario)
        assert result["run_hash"] == expected, f"run {number}: another run hash"
        for loss in result["losses"]:
            seconds[loss["who"]].append(loss["recovered_after_seconds"])
    every = sorted(each for several in seconds.values() for each in several)
    print(
        f"\nseconds until a participant that was killed is back: {len(every)} kills, "
        "all run hashes equal"
    )
    print(f"{'':12}{'kills':>6}{'median':>9}{'99 %':>9}{'most':>9}")
    for name, several in [*seconds.items(), ("all", every)]:
        ordered = sorted(several)
        late = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
        print(f"{name:12}{len(ordered):>6}{median(ordered):>9.2f}{late:>9.2f}{ordered[-1]:>9.2f}")


def _killed(moments: dict[str, float], scenario: Any) -> dict[str, Any]:
    """Run the scenario and kill everybody at these simulated times; return the record."""
    pending = sorted(moments.items(), key=lambda item: item[1])

    def watch(testbed: Testbed, _name: str, report: Report) -> None:
        if pending and report.get("clock", {}).get("time", -1.0) >= pending[0][1]:
            who, _ = pending.pop(0)
            process = testbed.broker if who == "broker" else testbed.participants[who].process
            assert process
            assert process.pid
            os.kill(process.pid, signal.SIGKILL)

    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(policies=("jsq",), recovers=True, speed=SPEED)
        with FederatedRun(scenario, plan, Path(folder) / "run", None) as run:
            (result,) = run.finish(watch)
    return result


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--times", type=int, default=0, metavar="N", help="runs with six kills each"
    )
    parser.add_argument("--turns", type=int, default=15)
    arguments = parser.parse_args()
    if arguments.times:
        times(arguments.times)
    else:
        cost(arguments.turns)


if __name__ == "__main__":
    main()
