"""Large worlds: building them, and what a decision costs there, in time and memory."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import networkx as nx

import fogveil.agent.policies as policies
from fogveil.testbed.engine.embedded import Embedded, take_decisions
from fogveil.testbed.scenario import Scenario, load_scenario
from fogveil.testbed.scenario.centrality import betweenness
from fogveil.testbed.scenario.world import build_world

GRAPHS = {10: 100, 100: 400, 1000: 4000, 3000: 10_000, 10_000: 12_000}
"""Nodes of the graph, by the number of Fog nodes."""
CLUSTERS, HORIZON = 100, 3000.0
DECISIONS = 1500
"""The most that are measured."""
POLICIES = ("jsq", "ci-setr", "veil")
COMPARED = 1000
"""Nodes of the graph by which compiled and interpreted centrality are compared."""
TURNS = 3


def scenario_of(fog: int) -> Scenario:
    """Return the scenario `stress` with so many Fog nodes."""
    table = {
        "topology.nodes": GRAPHS[fog],
        "roles.fog": fog,
        "roles.clusters": min(fog, CLUSTERS),
        "horizon": HORIZON,
    }
    return load_scenario("stress", table)


def measure_building(fog: int) -> tuple[float, float]:
    """Return the CPU-seconds of building a world, and the memory of the process in MB."""
    scenario = scenario_of(fog)
    begin = time.process_time()
    build_world(scenario)
    return time.process_time() - begin, _memory()


def measure_decisions(fog: int, policy: str) -> tuple[float, float, int]:
    """Return milliseconds of CPU per decision, the memory in MB, and the number of decisions.

    The engine is part of it: it moves the nodes and collects the counts.
    """
    world = build_world(scenario_of(fog))
    chosen = policies.load(policy, world.agent)
    engine = Embedded(world, type(chosen).needs)
    begin = time.process_time()
    decisions = sum(1 for _ in islice(take_decisions(engine, chosen), DECISIONS))
    return 1e3 * (time.process_time() - begin) / decisions, _memory(), decisions


def measure_centrality() -> float:
    """Return how many times longer networkx takes for exact centrality, in turns."""
    graph = nx.Graph(nx.random_internet_as_graph(COMPARED, seed=8))
    spent = {}
    for name, compute in (("compiled", betweenness), ("networkx", nx.betweenness_centrality)):
        spent[name] = min(_cpu_of(compute, graph) for _ in range(TURNS))
    return spent["networkx"] / spent["compiled"]


def _cpu_of(compute: Callable[[Any], Any], graph: nx.Graph) -> float:
    begin = time.process_time()
    compute(graph)
    return time.process_time() - begin


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _apart(measure: Callable[..., Any], *arguments: Any) -> Any:
    """Measure in a process of its own, so that its memory is its own."""
    pool = multiprocessing.get_context("spawn").Pool(1)
    try:
        return pool.apply(measure, arguments)
    finally:
        pool.close()
        pool.join()


def main() -> None:
    """Print the cost of building worlds and of decisions in them as the Fog grows."""
    print(f"building a world: stress on larger graphs, up to {CLUSTERS} clusters")
    print(f"{'Fog nodes':>9}{'graph':>9}{'CPU':>10}{'process':>11}")
    for fog, graph in GRAPHS.items():
        seconds, memory = _apart(measure_building, fog)
        print(f"{fog:>9,}{graph:>9,}{seconds:>8.2f} s{memory:>8.0f} MB")
    ratio = measure_centrality()
    print(f"exact centrality of {COMPARED:,} nodes: {ratio:.0f} times as fast as by networkx")

    print(f"\nms of CPU per decision, engine included; process in MB (horizon {HORIZON:,.0f})")
    print(f"{'Fog nodes':>9}{'decisions':>11}", *(f"{name:>19}" for name in POLICIES), sep="")
    for fog in (10, 100, 1000, 3000):
        cells, decisions = [], 0
        for policy in POLICIES:
            spent, memory, decisions = _apart(measure_decisions, fog, policy)
            cells.append(f"{spent:>10.3f}{memory:>6.0f} MB")
        print(f"{fog:>9,}{decisions:>11,}", *cells, sep="")


if __name__ == "__main__":
    main()
