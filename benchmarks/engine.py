"""Workloads that the embedded engine processes per CPU-second, records included."""

from __future__ import annotations

import cProfile
import pstats
import tempfile
import time
from pathlib import Path
from typing import Any

import fogveil.agent.policies as policies
from fogveil.testbed.engine.embedded import simulate
from fogveil.testbed.records.join import Sink
from fogveil.testbed.records.run_records import RunRecords
from fogveil.testbed.records.summary import Summary
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import World, build_world

YAFS = (2600, 3500)
"""Workloads per CPU-second of the paper's simulator, measured on a machine of this kind."""
REPEATS = 3


def stress_world(**overrides: Any) -> World:
    """Build the paper's scenario with overrides; `__` stands for a dot."""
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    return build_world(load_scenario("stress", dotted))


def measure_rate(world: World, policy: str) -> tuple[float, int]:
    """Return workloads per CPU-second (the best of three runs) and the number of workloads."""
    best, workloads = 0.0, 0
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            chosen = policies.load(policy, world.agent)
            summary = Summary(world)
            begin = time.process_time()
            with RunRecords(Path(folder) / "run", world) as records:
                simulate(world, chosen, [summary, records])
            spent = time.process_time() - begin
        workloads = summary.result()["workloads"]
        best = max(best, workloads / spent)
    return best, workloads


def profile_by_module(world: World, policy: str) -> dict[str, float]:
    """Return shares of the CPU time by module; profiling itself inflates small calls."""
    with (
        tempfile.TemporaryDirectory() as folder,
        RunRecords(Path(folder) / "run", world) as records,
    ):
        sinks: list[Sink] = [Summary(world), records]
        chosen = policies.load(policy, world.agent)
        profile = cProfile.Profile()
        profile.enable()
        simulate(world, chosen, sinks)
        profile.disable()
    shares: dict[str, float] = {}
    stats: Any = pstats.Stats(profile)
    for (file, _, _), (_, _, seconds, _, _) in stats.stats.items():
        part = _module(Path(file)) if file.endswith(".py") else "built-in (heap, list, numpy)"
        shares[part] = shares.get(part, 0.0) + seconds
    total = sum(shares.values())
    largest = sorted(shares.items(), key=lambda item: -item[1])[:8]
    return {part: seconds / total for part, seconds in largest}


def _module(file: Path) -> str:
    """The module's name; `core.py` exists in several rooms, so its room goes with it."""
    return f"{file.parent.name}.{file.stem}"


def main() -> None:
    """Print the engine's rates, the cost as the Fog grows, and the profile by module."""
    world = stress_world(horizon=500_000.0)
    print("embedded engine on stress.toml, both tables written to disk")
    print(f"{'policy':14}{'workloads':>12}{'per CPU-second':>18}{'× YAFS':>10}")
    for policy in ("round-robin", "jsq", "ci-setr"):
        speed, workloads = measure_rate(world, policy)
        ratio = speed / YAFS[1]
        print(f"{policy:14}{workloads:>12,}{speed:>18,.0f}{ratio:>10.1f}")
    print(f"(YAFS: {YAFS[0]:,} to {YAFS[1]:,}; the ratio is to the larger)")

    print("\ncost per workload as the Fog grows (µs of CPU; 1000-node graph, 8 clusters)")
    print(f"{'fog nodes':14}{'round-robin':>14}{'jsq':>10}{'building the world':>22}")
    for fog in (10, 25, 50, 100, 200):
        begin = time.process_time()
        world = stress_world(topology__nodes=1000, roles__fog=fog, horizon=200_000.0)
        built = time.process_time() - begin
        costs = [1e6 / measure_rate(world, policy)[0] for policy in ("round-robin", "jsq")]
        print(f"{fog:<14}{costs[0]:>14.1f}{costs[1]:>10.1f}{built:>20.1f} s")

    print("\nwhere the time goes, round-robin")
    for part, share in profile_by_module(stress_world(horizon=200_000.0), "round-robin").items():
        print(f"  {part:32}{share:>6.0%}")


if __name__ == "__main__":
    main()
