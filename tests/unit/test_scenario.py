"""Scenario files: what is accepted, and the sentence that refuses what is not."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support import SCENARIOS, make_run, make_world

from fogveil.agent.learning.hyperparameters import Hyperparameters, change_hyperparameters
from fogveil.core.errors import InputError
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.load import parse_override
from fogveil.testbed.scenario.world import build_world

REFUSED = {
    "negative bandwidth": (
        ('"fog-1"], bandwidth = 400', '"fog-1"], bandwidth = -400'),
        r"topology\.links\.0\.bandwidth: .*greater than 0, got -400",
    ),
    "unknown key": (
        ("horizon = 2000", "horizon = 2000\nhorzon = 1"),
        "horzon: this key is unknown",
    ),
    "unknown nested key": (("[cloud]", "[cloud]\nspeed = 3"), r"cloud\.speed: this key is unknown"),
    "missing key": (("ipt = 1500", ""), r"cloud\.ipt: this key is missing"),
    "wrong type": (("seed = 1", 'seed = "one"'), "seed: expected a whole number, got 'one'"),
    "unconnected": (
        ('{ between = ["cloud", "fog-1"], bandwidth = 400, propagation = 8 },', ""),
        "the graph is not connected",
    ),
    "unknown node": (
        ('between = ["cloud", "fog-1"]', 'between = ["cloud", "fog-9"]'),
        r"topology\.links\.0: no node is called fog-9",
    ),
    "node twice": (('name = "fog-2", role', 'name = "fog-1", role'), "two nodes are called fog-1"),
    "no cloud": (
        ('name = "cloud", role = "cloud"', 'name = "cloud"'),
        "expected one node of role cloud",
    ),
    "too few speeds": (("ipt = [200, 500, 1000]", "ipt = [200, 500]"), r"fog\.ipt: expected 3"),
    "an event without a kind": (
        ("horizon = 2000", "horizon = 2000\nevents = [{ at = 5 }]"),
        r"events\.0: the key kind is missing",
    ),
    "unknown level": (
        ("horizon = 2000", 'horizon = 2000\ndisclosure = "some"'),
        "disclosure: .*'full', got 'some'",
    ),
    "unknown source": (('kind = "poisson"', 'kind = "psson"'), "sources: .*'psson'"),
    "infinite horizon": (("horizon = 2000", "horizon = inf"), "horizon: .*finite"),
    "same applications": (('name = "demanding"', 'name = "light"'), "expected different names"),
    "a tail without its distribution": (
        ("horizon = 2000", "horizon = 2000\nservice = { tail = 1.5 }"),
        "service: tail is for the pareto distribution only",
    ),
    "a distribution without its tail": (
        ("horizon = 2000", 'horizon = 2000\nservice = { distribution = "pareto" }'),
        "service: the pareto distribution needs the key tail",
    ),
    "a tail of infinite mean": (
        ("horizon = 2000", 'horizon = 2000\nservice = { distribution = "pareto", tail = 1 }'),
        r"service\.tail: .*greater than 1, got 1",
    ),
    "not TOML": (("seed = 1", "seed = "), "is not TOML: .*line"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_scenarios_are_refused_with_file_key_and_reason(case, write_scenario):
    change, sentence = REFUSED[case]
    path = write_scenario(change)
    with pytest.raises(InputError, match=sentence) as error:
        build_world(load_scenario(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"", "the scenario is empty"), (b"\xff\xfe", "not a text file")],
)
def test_bad_files_are_refused(tmp_path, content, sentence):
    path = tmp_path / "scenario.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"scenario.toml: .*{sentence}"):
        load_scenario(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"none\.toml: cannot be read: No such file"):
        load_scenario(tmp_path / "none.toml")


def test_the_stress_scenario_is_the_calibrated_one():
    world = make_world("stress")
    graph = world.topology.graph
    assert (len(world.nodes), len(world.clusters), len(graph)) == (10, 8, 100)
    assert [config.ipt for config in world.fogs] == np.linspace(200, 1000, 10).tolist()
    hosts = [next(iter(graph[cluster])) for cluster in world.topology.clusters]
    assert len(set(hosts)) == 8
    assert set(hosts) <= set(world.topology.fogs)
    assert all(graph.degree(cluster) == 1 for cluster in world.topology.clusters)
    offered = 8 * sum(app.instructions for app in world.scenario.applications) / 100
    assert offered / sum(config.ipt for config in world.fogs) == pytest.approx(0.85)


def test_fastest_paths_are_the_shortest_over_all_simple_paths():
    from itertools import pairwise

    import networkx as nx

    world = make_world()
    graph, app = world.topology.graph, world.scenario.applications[1]

    def cost(path):
        links = [graph.edges[link] for link in pairwise(path)]
        return sum(app.bytes_up / link["bandwidth"] + link["propagation"] for link in links)

    for cluster, name in enumerate(world.clusters):
        for node, fog in enumerate(world.nodes):
            best = min(map(cost, nx.all_simple_paths(graph, name, fog)))
            assert world.paths.up[cluster][1][node] == pytest.approx(best, abs=1e-12)


def test_sizes_can_be_overridden():
    world = make_world("stress", topology__nodes=200, roles__fog=40, roles__clusters=50)
    assert (len(world.nodes), len(world.clusters)) == (40, 50)
    assert len(set(world.clusters)) == 50


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("roles.fog=20", ("roles.fog", 20)),
        ("count=in_system", ("count", "in_system")),
        ('count="in_system"', ("count", "in_system")),
        ("fog.ipt=[1.0, 2.0]", ("fog.ipt", [1.0, 2.0])),
    ],
)
def test_overrides(text, expected):
    assert parse_override(text) == expected


def test_overrides_of_a_table_and_its_keys_leave_the_callers_values_alone():
    overrides = {"sources": {"kind": "poisson", "scale": 60.0}, "sources.scale": 30.0}
    assert load_scenario(SCENARIOS / "tiny.toml", overrides).sources.scale == 30
    assert overrides["sources"] == {"kind": "poisson", "scale": 60.0}


@pytest.mark.parametrize("text", ["roles.fog", "=3"])
def test_bad_overrides_are_refused(text):
    with pytest.raises(InputError, match="expected KEY=VALUE"):
        parse_override(text)
    with pytest.raises(InputError, match="horizon is not a table"):
        load_scenario(SCENARIOS / "tiny.toml", {"horizon.x": 1})


def test_erlang_service_factors_have_mean_one_and_the_right_spread():
    service = {"distribution": "erlang", "shape": 4}
    run = make_run("round-robin", "stress", horizon=60_000.0, service=service)
    jobs, world = run.jobs, run.world
    work = np.array([app.instructions for app in world.scenario.applications])
    ipt = np.array([config.ipt for config in world.fogs])
    mean = work[jobs["category"].astype(int)] / ipt[jobs["node"].astype(int)]
    factor = (jobs["finished"] - jobs["started"]) / mean
    assert factor.mean() == pytest.approx(1, abs=0.03)
    assert factor.std() == pytest.approx(0.5, abs=0.03)


def test_a_jobs_size_is_its_own_whoever_serves_it():
    service = {"distribution": "pareto", "tail": 1.5}
    sizes = []
    for policy in ("round-robin", "jsq"):
        run = make_run(policy, service=service, horizon=3000.0)
        order = np.argsort(run.jobs["job"])
        node = run.jobs["node"][order].astype(int)
        served = (run.jobs["finished"] - run.jobs["started"])[order]
        work = np.array(run.world.fogs[0].instructions)[run.jobs["category"][order].astype(int)]
        sizes.append(served * np.array([config.ipt for config in run.world.fogs])[node] / work)
    np.testing.assert_allclose(sizes[0], sizes[1], rtol=1e-9)
    assert sizes[0].min() >= 1 / 3
    assert sizes[0].max() > 10 * np.median(sizes[0])


def test_json_graphs_with_a_delay_attribute(tmp_path):
    nodes = [{"id": name} for name in "abcde"]
    links = [{"source": one, "target": other, "ms": 4} for one, other in ("ab", "bc", "cd", "be")]
    (tmp_path / "graph.json").write_text(json.dumps({"nodes": nodes, "edges": links}))
    topology = {"kind": "file", "file": str(tmp_path / "graph.json")}
    links_given = {"bandwidth": 100.0, "propagation": {"attribute": "ms", "factor": 2.0}}
    roles = {"fog": 2, "clusters": 2}
    # A cluster that had to be hung on a Fog node has no attribute to read.
    with pytest.raises(InputError, match="expected a positive number in attribute 'ms'"):
        make_world(topology=topology, links=links_given, roles=roles, fog__ipt=100.0, fog__ram=1.0)
    links_given["propagation"]["default"] = 3.0
    world = make_world(
        topology=topology, links=links_given, roles=roles, fog__ipt=100.0, fog__ram=1.0
    )
    delays = {d["propagation"] for _, _, d in world.topology.graph.edges(data=True)}
    assert delays == {8.0, 6.0}


@pytest.mark.parametrize("name", ["graph.json", "graph.gml", "graph.graphml", "graph.txt"])
def test_broken_graph_files_are_refused(tmp_path, name):
    (tmp_path / name).write_text("{ not a graph")
    topology = {"kind": "file", "file": str(tmp_path / name)}
    with pytest.raises(InputError, match=name.replace(".", r"\.")):
        make_world("stress", topology=topology)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            {"fog.ipt": "fast"},
            "fog.ipt: expected a number or a table with keys or a list",
        ),
        ({"fog.ipt": [1.0, "x", 2.0]}, "fog.ipt.1: expected a number, got 'x'"),
        ({"fog.servers": 1.5}, "fog.servers: expected a whole number, got 1.5"),
        (
            {"links.bandwidth": {"uniform": [5, 1]}},
            "bandwidth: expected the lower bound first",
        ),
        (
            {"links.propagation": {"km_per_unt": 3}},
            "links.propagation.km_per_unt: this key is unknown; did you mean km_per_unit?",
        ),
        (
            {"sources": {"scale": 1.0}},
            "sources: the key kind is missing, which says what",
        ),
        ({"sources.kind": "x"}, "sources: expected kind to be one of 'poisson', 'deterministic', "),
        ({"topology": "x"}, "topology: expected a table with keys, got 'x'"),
        ({"loops.to_cloud": 2.0}, "loops.to_cloud: expected 1 or less, got 2.0"),
    ],
)
def test_a_wrong_value_is_explained_without_python(overrides, sentence):
    with pytest.raises(InputError) as error:
        load_scenario(SCENARIOS / "stress.toml", overrides)
    assert sentence in str(error.value)
    for word in ("nput should", "constrained", "tag", "type", "Linear", "Value error"):
        assert word not in str(error.value).replace("stress", "")


def test_hyperparameters_are_explained_likewise():
    with pytest.raises(InputError, match="called batch; there are discount_factor, .*batch_size"):
        change_hyperparameters(Hyperparameters(), {"batch": 3}, "values.toml")
    with pytest.raises(InputError, match="values.toml: layers.0: expected 1 or more, got 0"):
        change_hyperparameters(Hyperparameters(), {"layers": [0]}, "values.toml")
