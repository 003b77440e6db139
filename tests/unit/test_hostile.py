"""Hostile and odd input: no way around the boundary, no silent wrong result, no traceback."""

from __future__ import annotations

import json

import pytest
from support import ANY_SHAPE, ONE_NODE, SCENARIOS, make_run, make_world, run_outstanding

from fogveil.agent.policy import Level, Policy
from fogveil.core.errors import InputError
from fogveil.testbed.engine.embedded import Embedded, simulate
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.experiments.comparison import (
    Comparison,
    evaluate,
    parse_numbers,
    prepare,
)
from fogveil.testbed.report.gallery import draw_all
from fogveil.testbed.scenario import load_scenario

TINY = SCENARIOS / "tiny.toml"


class Sneaky(Policy):
    """Says it needs nothing, and then asks for everything."""

    def reset(self):
        self.needs = Level.FULL
        self.seen = []

    def place(self, seen):
        self.seen.append(seen)
        return 0


class Sneakier(Sneaky):
    def reset(self):
        super().reset()
        type(self).needs = Level.FULL


def test_a_policy_cannot_raise_its_own_level():
    world = make_world(disclosure="count")
    policy = Sneaky(world.agent)
    simulate(world, policy)
    assert all(seen.counts is None and seen.load is None for seen in policy.seen)
    with pytest.raises(InputError, match="level 'full' was asked for"):
        simulate(world, Sneakier(world.agent))
    with pytest.raises(InputError, match="the providers disclose 'count'"):
        Embedded(world, Level.FULL)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("    needs = 3\n    place = lambda self, seen: 0", "expected needs to be a Level"),
        ("    def place(self, seen): raise SystemExit(0)", "policy P failed at .*SystemExit"),
        ("    def place(self, seen): raise ValueError('a\\nb')", "ValueError: a b"),
    ],
)
def test_odd_policies_are_one_sentence(tmp_path, body, sentence):
    (tmp_path / "p.py").write_text(
        f"from fogveil.agent.policy import Policy\nclass P(Policy):\n{body}\n"
    )
    with pytest.raises(InputError, match=sentence) as error:
        make_run(f"{tmp_path}/p.py:P")
    assert "\n" not in str(error.value)


def test_a_policy_file_that_exits_is_one_sentence(tmp_path):
    (tmp_path / "p.py").write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(InputError, match="cannot be loaded: SystemExit: 0"):
        make_run(f"{tmp_path}/p.py:P")


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"horizon": 0.001}, "no workload is emitted before the horizon"),
        ({"fog.ipt": [1e-305, 1.0, 1.0]}, "infinite service times"),
        ({"links.seed": -1}, "links.seed: expected 0 or more, got -1"),
        ({"Horizon": 5}, "Horizon: this key is unknown"),
        ({"fog.file": 5}, "fog.file: this key is unknown"),
        ({"fog.ipt": "fast"}, "fog.ipt: "),
        ({"roles": {"fog": 1, "clusters": 1}}, "roles: an explicit topology"),
        ({"name": "x" * 500}, "name: .*x{20,}…"),
    ],
)
def test_odd_scenarios_are_one_sentence(overrides, sentence):
    with pytest.raises(InputError, match=sentence) as error:
        run_embedded(load_scenario(TINY, overrides), "jsq")
    assert len(str(error.value)) < 300


def test_participants_names_are_reserved(write_scenario):
    path = write_scenario(
        ('name = "fog-1"', 'name = "agent"'), ('"cloud", "fog-1"', '"cloud", "agent"')
    )
    with pytest.raises(InputError, match="agent is the name of another participant"):
        run_embedded(load_scenario(path), "jsq")


def test_a_link_given_twice_is_refused(write_scenario):
    path = write_scenario(('"fog-1", "fog-3"]', '"fog-1", "fog-2"]'))
    with pytest.raises(InputError, match="fog-1 and fog-2 are linked twice"):
        run_embedded(load_scenario(path), "jsq")


def test_what_a_graph_file_says_of_its_links_is_read_only_on_demand(tmp_path):
    nodes = [{"id": name} for name in "abcd"]
    pairs = ("ab", "bc", "cd")
    links = [{"source": a, "target": b, "bandwidth": "100Mb"} for a, b in pairs]
    (tmp_path / "g.json").write_text(json.dumps({"nodes": nodes, "links": links}))
    options = {
        "topology": {"kind": "file", "file": str(tmp_path / "g.json")},
        "roles": {"fog": 2, "clusters": 1},
        "fog__ipt": 100.0,
        "fog__ram": 1.0,
    }
    widths = {d["bandwidth"] for *_, d in make_world(**options).topology.graph.edges(data=True)}
    assert widths == {100.0}
    rule = {"bandwidth": {"attribute": "bandwidth", "default": 1.0}}
    with pytest.raises(InputError, match="attribute 'bandwidth', got '100Mb'"):
        make_world(**options, links=rule)


def test_one_fog_node_and_one_cluster_are_enough():
    for policy in ANY_SHAPE:
        run = make_run(policy, topology=ONE_NODE, fog__ipt=2000.0, fog__ram=1.0, horizon=900.0)
        assert set(run.jobs["node"]) == {0}


def comparison_of(tmp_path, *names, file=TINY, **options):
    defaults = {"rates": (None,), "horizons": (500.0,), "seeds": 2, "overrides": {}}
    return Comparison(file=file, policies=names, out=tmp_path, **{**defaults, **options})


def execute_all(comparison):
    done, to_do = prepare(comparison)
    run_outstanding((comparison, run) for run in to_do)
    return len(done)


def test_a_changed_trace_is_run_again(tmp_path):
    trace = tmp_path / "t.csv"
    sources = {"kind": "trace", "file": str(trace), "columns": {"time": "t"}}
    comparison = comparison_of(tmp_path, "jsq", overrides={"sources": sources}, seeds=1)
    trace.write_text("t\n1\n2\n3\n")
    assert execute_all(comparison) == 0
    trace.write_text("t\n1\n1\n1\n")
    from fogveil.testbed.experiments.comparison import _file_digest

    _file_digest.cache_clear()  # a new process would not remember
    assert execute_all(comparison) == 0


def test_repeated_numbers_are_no_further_seeds():
    assert parse_numbers("60,60,60.0,50", "--rates") == (60.0, 50.0)
    with pytest.raises(InputError, match="expected positive numbers"):
        parse_numbers("nan", "--rates")


def test_policies_of_one_name_stay_apart(tmp_path):
    for folder, node in (("a", 0), ("b", 1)):
        (tmp_path / folder).mkdir()
        text = (
            "from fogveil.agent.policy import Policy\n"
            "class P(Policy):\n"
            "    place = lambda self, seen: "
        )
        (tmp_path / folder / "p.py").write_text(f"{text}{node}\n")
    names = [f"{tmp_path}/{folder}/p.py:P" for folder in "ab"]
    comparison = comparison_of(tmp_path / "out", *names)
    execute_all(comparison)
    rows = evaluate(comparison, "setr")
    assert [row.policy for row in rows] == names
    assert rows[0].measures["fog_loop"] != rows[1].measures["fog_loop"]


def test_figures_refuse_a_mixture_of_scenarios(tmp_path):
    execute_all(comparison_of(tmp_path, "jsq"))
    execute_all(comparison_of(tmp_path, "random", overrides={"cloud.ipt": 99.0}))
    with pytest.raises(InputError, match="2 different scenarios cannot be averaged"):
        draw_all([tmp_path], tmp_path / "figures")
    (tmp_path / "runs" / "x.json").write_text("{")
    with pytest.raises(InputError, match=r"x\.json: is not a result"):
        draw_all([tmp_path], tmp_path / "figures")


def test_a_folder_named_twice_counts_once(tmp_path):
    from fogveil.testbed.report.gallery import read_results

    execute_all(comparison_of(tmp_path, "jsq"))
    assert len(read_results([tmp_path, tmp_path, tmp_path / "runs" / ".."])) == 2
