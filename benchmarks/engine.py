"""How many workloads the embedded engine gets through per CPU-second, records included."""

from __future__ import annotations

import cProfile
import pstats
import tempfile
import time
from pathlib import Path
from typing import Any

import agent.policies as policies
from testbed.embedded import simulate
from testbed.joining import Sink
from testbed.records import Records
from testbed.scenario import load_scenario
from testbed.summary import Summary
from testbed.world import World, build_world

PAPER = Path(__file__).parent.parent / "scenarios" / "paper.toml"
YAFS = (2600, 3500)
"""Workloads per CPU-second measured for the paper's simulator on a machine of this kind."""
REPEATS = 3


def make_world(**overrides: Any) -> World:
    """Build the paper's scenario with other sizes."""
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    return build_world(load_scenario(PAPER, dotted))


def rate(world: World, policy: str) -> tuple[float, int]:
    """Return workloads per CPU-second (the best of a few) and the number of workloads."""
    best, workloads = 0.0, 0
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            chosen = policies.load(policy, world.agent)
            summary = Summary(world)
            begin = time.process_time()
            with Records(Path(folder) / "run", world) as records:
                simulate(world, chosen, [summary, records])
            spent = time.process_time() - begin
        workloads = summary.result()["workloads"]
        best = max(best, workloads / spent)
    return best, workloads


def where_time_goes(world: World, policy: str) -> dict[str, float]:
    """Return shares of the time by module, from a profile (which itself inflates small calls)."""
    with tempfile.TemporaryDirectory() as folder, Records(Path(folder) / "run", world) as records:
        sinks: list[Sink] = [Summary(world), records]
        chosen = policies.load(policy, world.agent)
        profile = cProfile.Profile()
        profile.enable()
        simulate(world, chosen, sinks)
        profile.disable()
    shares: dict[str, float] = {}
    stats: Any = pstats.Stats(profile)
    for (file, _, _), (_, _, own, _, _) in stats.stats.items():
        part = Path(file).stem if file.endswith(".py") else "built-in (heap, list, numpy)"
        shares[part] = shares.get(part, 0.0) + own
    total = sum(shares.values())
    return {part: own / total for part, own in sorted(shares.items(), key=lambda i: -i[1])[:8]}


def main() -> None:
    """Print the engine's rates, their growth with the Fog, and where the time goes."""
    world = make_world(horizon=500_000.0)
    print("embedded engine on paper.toml, both tables written to disk")
    print(f"{'policy':14}{'workloads':>12}{'per CPU-second':>18}{'× YAFS':>10}")
    for policy in ("round-robin", "jsq", "ci-setr"):
        speed, workloads = rate(world, policy)
        ratio = speed / YAFS[1]
        print(f"{policy:14}{workloads:>12,}{speed:>18,.0f}{ratio:>10.1f}")
    print(f"(YAFS: {YAFS[0]:,} to {YAFS[1]:,}; the ratio is to the larger)")

    print("\ncost per workload as the Fog grows (µs of CPU; 1000-node graph, 8 clusters)")
    print(f"{'fog nodes':14}{'round-robin':>14}{'jsq':>10}{'building the world':>22}")
    for fog in (10, 25, 50, 100, 200):
        begin = time.process_time()
        world = make_world(topology__nodes=1000, roles__fog=fog, horizon=200_000.0)
        built = time.process_time() - begin
        costs = [1e6 / rate(world, policy)[0] for policy in ("round-robin", "jsq")]
        print(f"{fog:<14}{costs[0]:>14.1f}{costs[1]:>10.1f}{built:>20.1f} s")

    print("\nwhere the time goes, round-robin")
    for part, share in where_time_goes(make_world(horizon=200_000.0), "round-robin").items():
        print(f"  {part:32}{share:>6.0%}")


if __name__ == "__main__":
    main()
