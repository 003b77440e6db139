"""Topologies and traces as real files have them: ours always, the real ones where they are."""

from __future__ import annotations

import numpy as np
import pytest
from support import DATA, Run, make_world

from fogveil.core.errors import InputError

PROPAGATION = {"bandwidth": 300.0, "propagation": {"km_per_unit": 200.0}}


def topology_world(file, fog, clusters=6, **overrides):
    topology = {"kind": "file", "file": str(file)}
    roles = {"fog": fog, "clusters": clusters}
    return make_world("stress", topology=topology, roles=roles, links=PROPAGATION, **overrides)


def check_delays(world, nodes):
    graph = world.topology.graph
    added = [node for node in graph if str(node).startswith("leaf ")]
    assert len(graph) - len(added) == nodes
    delays = [d["propagation"] for _, _, d in graph.edges(data=True)]
    assert min(delays) >= 0.1
    assert 1 < max(delays) < 30, "long links take milliseconds"
    assert len(Run(world, "jsq").jobs["job"]) > 200


@pytest.mark.parametrize("file", ["cities.gml", "cities.graphml"])
def test_a_topology_runs_with_delays_from_coordinates(file):
    world = topology_world(DATA / file, 5, horizon=3000.0)
    check_delays(world, 10)


@pytest.mark.parametrize("file", ["cities.gml", "cities.graphml"])
def test_parallel_links_and_loops_are_dropped_and_lost_nodes_are_placed(file):
    graph = topology_world(DATA / file, 5, 2).topology.graph
    ends = [sorted(map(int, link)) for link in graph.edges if "leaf" not in f"{link}"]
    assert len(ends) == 11
    assert all(one != other for one, other in ends)
    berlin, paris, exchange = (next(n for n in graph if str(n) == text) for text in "016")
    assert graph.edges[berlin, paris]["propagation"] * 200 == pytest.approx(878, abs=10)
    # The exchange has no coordinates: it is put halfway between Berlin and Vienna.
    assert graph.edges[berlin, exchange]["propagation"] * 200 == pytest.approx(262, abs=10)


@pytest.mark.parametrize(
    ("file", "nodes", "fog"),
    [("Abilene.gml", 11, 5), ("Geant2012.graphml", 40, 10), ("UsCarrier.gml", 158, 20)],
)
def test_a_real_topology_runs_with_delays_from_coordinates(real_data, file, nodes, fog):
    check_delays(topology_world(real_data / "topologies" / file, fog, horizon=3000.0), nodes)


def test_abilene_distances_are_real(real_data):
    world = topology_world(real_data / "topologies" / "Abilene.gml", 5, 2)
    new_york_to_chicago = world.topology.graph.edges[0, 1]["propagation"] * 200
    assert new_york_to_chicago == pytest.approx(1145, abs=15)


def trace_world(file, **overrides):
    sources = {
        "kind": "trace",
        "file": str(file),
        "columns": {"time": "TIMESTAMP", "demand": "ContextTokens"},
        "time_scale": 10.0,
        "demand_scale": 8.0,
    }
    return make_world("stress", sources=sources, horizon=1e9, **overrides)


def check_replay(world, rows, second, tokens):
    jobs = Run(world, "jsq").jobs
    assert len(jobs["job"]) == rows
    assert jobs["emitted"][0] == 0
    assert jobs["emitted"][1] == pytest.approx(second)
    ipt = np.array([config.ipt for config in world.fogs])
    instructions = (jobs["finished"] - jobs["started"]) * ipt[jobs["node"].astype(int)]
    np.testing.assert_allclose(instructions[:4], np.array(tokens) * 8, rtol=1e-9)
    assert set(jobs["category"]) == {0, 1, 2}
    assert np.diff(jobs["emitted"]).std() > 1.5 * np.diff(jobs["emitted"]).mean(), "bursty"


def test_a_trace_is_replayed_row_by_row():
    check_replay(trace_world(DATA / "requests.csv"), 130, 0.483374, [143, 234, 394, 6619])


def test_a_real_trace_is_replayed_row_by_row(real_data):
    world = trace_world(real_data / "traces" / "azure-llm-code.csv")
    check_replay(world, 8819, 0.52, [4808, 3180, 110, 7433])


def test_a_trace_column_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="no column is called 'time', only TIMESTAMP"):
        trace_world(DATA / "requests.csv", sources__columns={"time": "time"})
