"""Compiled algorithms on graphs, held against networkx; worlds of a thousand nodes."""

from collections.abc import Iterator

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Run, make_world

from fogveil.testbed.scenario import centrality
from fogveil.testbed.scenario.as_graph import random_as_graph
from fogveil.testbed.scenario.centrality import betweenness, rank_by_centrality
from fogveil.testbed.scenario.models import Application
from fogveil.testbed.scenario.paths import FastestPaths
from fogveil.testbed.scenario.topology import Topology
from fogveil.testbed.scenario.world import World

WIDTHS = {"equal": [100.0], "few": [50.0, 100.0, 200.0], "many": [100.0 / n for n in range(1, 99)]}
"""Few bandwidths give many equally fast paths."""


@st.composite
def connected_graphs(draw: st.DrawFn, least: int = 2) -> nx.Graph:
    nodes = draw(st.integers(least, 30))
    seed = draw(st.integers(0, 10_000))
    links = nx.gnp_random_graph(nodes, draw(st.sampled_from([0.0, 0.05, 0.2])), seed=seed)
    return nx.compose(links, nx.random_labeled_tree(nodes, seed=seed))


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    graph = draw(connected_graphs(least=6))
    widths = WIDTHS[draw(st.sampled_from(sorted(WIDTHS)))]
    for *_, link in graph.edges(data=True):
        link["bandwidth"] = draw(st.sampled_from(widths))
        link["propagation"] = 0.1
    cloud, *others = draw(st.permutations(list(graph)))
    fogs = draw(st.integers(1, len(others) - 2))
    named = [cloud, *others[: fogs + 2]]
    return Topology(
        graph, cloud, others[:fogs], others[fogs : fogs + 2], {n: str(n) for n in named}
    )


@pytest.mark.parametrize(("nodes", "seed"), [(10, 1), (100, 8), (700, 3)])
def test_random_graphs_are_those_of_networkx(nodes: int, seed: int) -> None:
    own, other = random_as_graph(nodes, seed), nx.random_internet_as_graph(nodes, seed=seed)
    assert list(own.adjacency()) == list(other.adjacency())
    assert list(own.nodes(data=True)) == list(other.nodes(data=True))


@given(connected_graphs())
def test_betweenness_is_that_of_networkx(graph: nx.Graph) -> None:
    assert betweenness(graph) == pytest.approx(
        nx.betweenness_centrality(graph, normalized=False), rel=1e-9, abs=1e-9
    )


def test_small_and_large_graphs_rank_nodes_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = nx.Graph(nx.random_internet_as_graph(120, seed=4))
    by_networkx = rank_by_centrality(graph)
    monkeypatch.setattr(centrality, "SMALL", 0)
    assert rank_by_centrality(graph)[:40] == by_networkx[:40]


def test_a_sample_estimates_centrality_on_request_alone() -> None:
    graph = nx.Graph(nx.random_internet_as_graph(120, seed=4))
    exact, sampled = rank_by_centrality(graph), rank_by_centrality(graph, 10)
    assert rank_by_centrality(graph, 120) == exact != sampled
    assert set(exact[:3]) & set(sampled[:3])


APPLICATIONS = [
    Application(name="small", instructions=1.0, bytes_up=10.0, bytes_down=5.0),
    Application(name="large", instructions=1.0, bytes_up=777.0, bytes_down=111.0),
]


@given(topologies())
def test_latencies_are_those_of_networkx_to_the_last_bit(topology: Topology) -> None:
    paths = FastestPaths(topology, APPLICATIONS)
    for number, cluster in enumerate(topology.clusters):
        for category, application in enumerate(APPLICATIONS):
            for row, size in (
                (paths.up, application.bytes_up),
                (paths.down, application.bytes_down),
            ):
                expected = nx.single_source_dijkstra_path_length(
                    topology.graph, cluster, weight=_cost(size)
                )
                assert row[number][category] == tuple(expected[fog] for fog in topology.fogs)


@given(topologies())
def test_routes_hops_and_widths_are_those_of_networkx_among_equally_fast_paths(
    topology: Topology,
) -> None:
    paths = FastestPaths(topology, APPLICATIONS)
    mean = sum(application.bytes_up for application in APPLICATIONS) / len(APPLICATIONS)
    for number, (cluster, routes) in enumerate(zip(topology.clusters, paths.routes(), strict=True)):
        ways = nx.single_source_dijkstra_path(topology.graph, cluster, weight=_cost(mean))
        assert routes == [ways[fog] for fog in topology.fogs]
        assert paths.hops[number] == tuple(len(route) - 1 for route in routes)
        assert paths.bandwidth[number] == tuple(
            min(_widths(topology.graph, route)) for route in routes
        )


def _cost(size: float):
    return lambda _one, _other, link: size / link["bandwidth"] + link["propagation"]


def _widths(graph: nx.Graph, route: list[int]) -> Iterator[float]:
    return (graph.edges[link]["bandwidth"] for link in nx.utils.pairwise(route))


@pytest.fixture(scope="module")
def large_world() -> World:
    return make_world(
        "stress",
        topology__nodes=2500,
        roles__fog=1000,
        roles__clusters=50,
        horizon=300.0,
    )


def test_a_world_of_a_thousand_nodes_has_all_of_them(large_world: World) -> None:
    assert len(large_world.nodes) == len(large_world.fogs) == 1000
    assert {len(row) for up in large_world.agent.up for row in up} == {1000}


@pytest.mark.parametrize("policy", ["jsq", "ci-setr", "veil"])
def test_a_world_of_a_thousand_nodes_runs(large_world: World, policy: str) -> None:
    run = Run(large_world, policy)
    assert len(run.jobs["job"]) > 30
    assert not np.isnan(run.jobs["returned"]).any()
