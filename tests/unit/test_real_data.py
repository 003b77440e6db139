"""Real topologies and a real trace: they lie beside the checkout, not in it."""

from __future__ import annotations

import numpy as np
import pytest
from support import Run, make_world

from fogveil.errors import InputError


@pytest.mark.parametrize(
    ("file", "nodes", "fog"),
    [("Abilene.gml", 11, 5), ("Geant2012.graphml", 40, 10), ("UsCarrier.gml", 158, 20)],
)
def test_a_real_topology_runs_with_delays_from_coordinates(real_data, file, nodes, fog):
    topology = {"kind": "file", "file": str(real_data / "topologies" / file)}
    coordinates = {"km_per_unit": 200.0}
    world = make_world(
        "paper",
        topology=topology,
        roles={"fog": fog, "clusters": 6},
        links={"bandwidth": 300.0, "propagation": coordinates},
        horizon=3000.0,
    )
    graph = world.topology.graph
    made = [node for node in graph if str(node).startswith("leaf ")]
    assert len(graph) - len(made) == nodes
    delays = [d["propagation"] for _, _, d in graph.edges(data=True)]
    assert min(delays) >= 0.1
    assert 1 < max(delays) < 30, "long links take milliseconds"
    run = Run(world, "jsq")
    assert len(run.jobs["job"]) > 200


def test_abilene_distances_are_real(real_data):
    topology = {"kind": "file", "file": str(real_data / "topologies" / "Abilene.gml")}
    links = {"bandwidth": 300.0, "propagation": {"km_per_unit": 200.0}}
    world = make_world("paper", topology=topology, roles={"fog": 5, "clusters": 2}, links=links)
    new_york_to_chicago = world.topology.graph.edges[0, 1]["propagation"] * 200
    assert new_york_to_chicago == pytest.approx(1145, abs=15)


def trace_world(real_data, **overrides):
    sources = {
        "kind": "trace",
        "file": str(real_data / "traces" / "azure-llm-code.csv"),
        "columns": {"time": "TIMESTAMP", "demand": "ContextTokens"},
        "time_scale": 10.0,
        "demand_scale": 8.0,
    }
    return make_world("paper", sources=sources, horizon=1e9, **overrides)


def test_a_real_trace_is_replayed_row_by_row(real_data):
    world = trace_world(real_data)
    run = Run(world, "jsq")
    jobs = run.jobs
    assert len(jobs["job"]) == 8819
    assert jobs["emitted"][0] == 0
    assert jobs["emitted"][1] == pytest.approx(0.52)
    ipt = np.array([config.ipt for config in world.fogs])
    instructions = (jobs["finished"] - jobs["started"]) * ipt[jobs["node"].astype(int)]
    np.testing.assert_allclose(instructions[:4], np.array([4808, 3180, 110, 7433]) * 8, rtol=1e-9)
    assert set(jobs["category"]) == {0, 1, 2}
    assert np.diff(jobs["emitted"]).std() > 1.5 * np.diff(jobs["emitted"]).mean(), "bursty"


def test_a_trace_column_that_is_not_there_is_refused(real_data):
    with pytest.raises(InputError, match="no column is called 'time', only TIMESTAMP"):
        trace_world(real_data, sources__columns={"time": "time"})
