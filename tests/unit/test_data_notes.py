"""What of a user's graph or trace is changed or left out is said; nonsense is refused."""

from __future__ import annotations

import json

import networkx as nx
import pytest
from support import DATA, Run, make_world
from typer.testing import CliRunner

from fogveil.core.errors import InputError
from fogveil.testbed.cli.app import app
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.report.topology_figure import _map

DRAWN = {"bandwidth": {"uniform": [100, 500]}, "propagation": {"km_per_unit": 200.0}}


def world_of(file, links=DRAWN, **overrides):
    topology = {"kind": "file", "file": str(file)}
    roles = {"fog": 5, "clusters": 4}
    overrides = {"horizon": 1000.0, **overrides}
    return make_world("stress", topology=topology, roles=roles, links=links, **overrides)


def test_the_same_graph_is_the_same_run_in_every_format_and_order(tmp_path):
    graph = nx.connected_watts_strogatz_graph(12, 4, 0.5, seed=3)
    for node, data in graph.nodes(data=True):
        data.update(label=f"city {node}", Longitude=5.0 + node % 5, Latitude=45.0 + node % 7)
    by_name = nx.relabel_nodes(graph, dict(graph.nodes(data="label")))
    nx.write_gml(by_name, tmp_path / "named.gml")
    turned = nx.Graph()
    turned.add_nodes_from((f"n{node}", data) for node, data in reversed([*graph.nodes(data=True)]))
    turned.add_edges_from((f"n{other}", f"n{one}") for one, other in reversed([*graph.edges]))
    nx.write_graphml(turned, tmp_path / "turned.graphml")
    (tmp_path / "links.json").write_text(json.dumps(nx.node_link_data(graph, edges="links")))
    worlds = [world_of(tmp_path / n) for n in ("named.gml", "turned.graphml", "links.json")]
    assert len({Run(world, "jsq").hash for world in worlds}) == 1
    assert all(world.topology.labels == worlds[0].topology.labels for world in worlds)
    assert worlds[0].topology.labels["cloud"].startswith("city ")


def test_what_is_done_to_a_graph_is_said_in_a_line_each():
    notes = world_of(DATA / "cities.gml").notes
    placed = "topology: without coordinates in the file, so placed amid their neighbours: "
    assert [note.rpartition("/")[2] for note in notes] == [
        "cities.gml: 2 parallel links were dropped, the first of each is kept",
        "cities.gml: 1 links from a node to itself were dropped",
        f"{placed}Exchange, Exchange",
    ]
    assert make_world("tiny").notes == ()


def test_a_command_says_it_once(tmp_path):
    words = ["run", "stress", "--policy", "jsq", "--horizon", "500", "--set", "roles.fog=5"]
    words += ["--set", f'topology={{kind = "file", file = "{DATA}/cities.graphml"}}']
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert done.stderr.count("parallel links were dropped") == 1


@pytest.mark.parametrize(("longitude", "latitude"), [(13.4, 400.0), (-181.0, 52.0)])
def test_coordinates_that_are_nowhere_are_refused(tmp_path, longitude, latitude):
    graph = nx.Graph(nx.read_graphml(DATA / "cities.graphml"))
    graph.nodes["0"].update(Longitude=longitude, Latitude=latitude)
    nx.write_gml(graph, tmp_path / "nowhere.gml")
    with pytest.raises(InputError, match=r"node 0 has longitude .*: expected degrees from"):
        world_of(tmp_path / "nowhere.gml")


def trace_world(tmp_path, first, horizon):
    (tmp_path / "trace.csv").write_text("t\n" + "".join(f"{first + n}\n" for n in range(10)))
    sources = {"kind": "trace", "file": f"{tmp_path}/trace.csv", "columns": {"time": "t"}}
    return make_world(sources=sources, horizon=horizon)


def test_what_the_horizon_cuts_off_a_trace_is_said(tmp_path):
    (note,) = trace_world(tmp_path, 0, 5.5).notes
    assert note.endswith("4 of 10 rows are after the horizon of 5.5 and left out; the last is at 9")
    assert trace_world(tmp_path, 0, 9.0).notes == ()


def test_a_trace_that_does_not_begin_at_zero_is_named(tmp_path):
    (note,) = trace_world(tmp_path, 7, 100.0).notes
    assert "column 't' begins at 7 in simulated time, and so does the run" in note
    with pytest.raises(InputError, match="begins at 1.7e.09 in simulated time, after the horizon"):
        trace_world(tmp_path, 1_700_000_000, 100.0)


def test_the_names_in_the_file_are_kept(tmp_path):
    world = world_of(DATA / "cities.gml")
    result = run_embedded(world.scenario, "jsq", tmp_path)
    labels = json.loads((tmp_path / "run.json").read_text())["labels"]
    assert labels == result["labels"] == world.topology.labels
    assert set(labels) >= {"cloud", "fog-1", "fog-5"}
    assert "Berlin" in labels.values()
    assert not set(labels.values()) & set(json.dumps(world.projection("agent")).split('"'))


def test_the_picture_is_a_map_where_there_are_coordinates():
    attributes = {"bandwidth": 100.0, "propagation": 1.0}
    for links in (DRAWN, attributes):
        topology = world_of(DATA / "cities.gml", links).topology
        places = _map(world_of(DATA / "cities.gml", links))
        by_label = {topology.graph.nodes[n].get("label"): place for n, place in places.items()}
        assert by_label["Madrid"][0] < by_label["Paris"][0] < by_label["Berlin"][0]
        assert by_label["Rome"][1] < by_label["Paris"][1] < by_label["Berlin"][1]
        assert len(set(places.values())) == len(places)
