"""The Python API: the same runs as the command line, from code."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from support import make_run

import fogveil.api as fogveil
from fogveil.testbed.engine.embedded import simulate
from fogveil.testbed.scenario.world import build_world


class LastNode(fogveil.Policy):
    """Needs nothing, and always chooses the last node."""

    def place(self, seen: fogveil.Observation) -> int:
        return len(self.view.nodes) - 1


class ShortestLine(fogveil.Policy):
    needs = fogveil.Level.COUNT

    def reset(self) -> None:
        self.decisions = 0

    def place(self, seen: fogveil.Observation) -> int:
        self.decisions += 1
        assert seen.counts is not None
        return int(np.argmin(seen.counts))


def test_the_page_of_public_names_is_complete():
    assert sorted(fogveil.__all__) == fogveil.__all__
    for name in fogveil.__all__:
        assert getattr(fogveil, name).__doc__, name


def test_a_scenario_is_changed_as_a_file_would_be():
    scenario = fogveil.Scenario.load("paper").replace(rate=100, fog=20)
    assert scenario.sources.scale == 100
    world = build_world(scenario)
    assert len(world.nodes) == 20
    profile = fogveil.Scenario.load("paper").fog.ipt.profile
    speeds = [fog.ipt for fog in world.fogs]
    assert (speeds[0], speeds[-1]) == (profile[0], profile[-1])
    assert speeds == sorted(speeds)
    assert [fog.ipt for fog in build_world(fogveil.Scenario.load("paper")).fogs] == profile
    light = scenario.replace({"applications.light.instructions": 5, "applications.1.bytes_up": 7})
    assert (light.applications[0].instructions, light.applications[1].bytes_up) == (5, 7)
    assert scenario.replace(links=fogveil.Scenario.load("tiny").links).links == (
        fogveil.Scenario.load("tiny").links
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"fog.ipd": 3}, "fog.ipd: this key is unknown; did you mean ipt"),
        ({"applications.huge.instructions": 3}, "no item huge: expected 0 to 2 or one of light"),
        ({"applications.7.name": "x"}, "no item 7"),
        ({"rate": -1}, "sources"),
        ({"name.x": 1}, "name is not a table"),
    ],
)
def test_a_wrong_change_is_one_sentence(changes, sentence):
    with pytest.raises(fogveil.InputError, match=sentence):
        fogveil.Scenario.load("paper").replace(changes)


def test_a_run_is_the_command_lines(tmp_path):
    result = fogveil.run("tiny", "jsq", seed=3, out=tmp_path / "run")
    assert result.run_hash == make_run("jsq", seed=3, disclosure="count").hash
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["summary"] == result.summary
    assert result.jobs.equals(pq.read_table(tmp_path / "run" / "jobs.parquet"))
    assert result.decisions.equals(pq.read_table(tmp_path / "run" / "decisions.parquet"))
    assert result.jobs.num_rows == result.summary["workloads"]
    assert "tiny under jsq" in repr(result)
    again = fogveil.Run.load(tmp_path / "run")
    assert (again.run_hash, again.scenario.seed) == (result.run_hash, 3)
    assert fogveil.run(again.scenario, "jsq").run_hash == result.run_hash


def test_policies_are_names_files_classes_and_objects(tmp_path):
    own = tmp_path / "mine.py"
    own.write_text(
        "from fogveil.api import Policy\n"
        "class LastNode(Policy):\n"
        "    def place(self, seen): return len(self.view.nodes) - 1\n"
    )
    expected = fogveil.run("tiny", f"{own}:LastNode", seed=2).run_hash
    assert fogveil.run("tiny", LastNode, seed=2).run_hash == expected
    world = build_world(fogveil.Scenario.load("tiny").replace(seed=2))
    policy = LastNode(world.agent)
    assert fogveil.run("tiny", policy, seed=2).run_hash == expected == simulate(world, policy)
    counting = ShortestLine(world.agent)
    first = fogveil.run("tiny", counting, seed=2)
    assert counting.decisions == first.summary["workloads"]
    assert fogveil.run("tiny", counting, seed=2).run_hash == first.run_hash  # it began anew


def test_an_object_that_is_no_policy_is_refused():
    with pytest.raises(fogveil.InputError, match="expected a name, a file, or a subclass"):
        fogveil.run("tiny", object())
    with pytest.raises(fogveil.InputError, match="needs disclosure level 'full'"):
        fogveil.run("tiny", "setr")


def test_a_testbed_gives_the_same_run(tmp_path):
    (tmp_path / "own_policy.py").write_text(
        "from fogveil.api import Level, Policy\n"
        "class Own(Policy):\n"
        "    needs = Level.COUNT\n"
        "    def place(self, seen): return min(range(3), key=lambda n: (seen.counts[n], -n))\n"
    )
    spec = importlib.util.spec_from_file_location("own_policy", tmp_path / "own_policy.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["own_policy"] = module  # as an import would
    spec.loader.exec_module(module)
    embedded = fogveil.run("tiny", module.Own, seed=1)
    with fogveil.testbed("tiny", module.Own, seed=1, out=tmp_path / "t", broker="builtin") as bed:
        assert {"agent", "clock", "fog-1"} <= set(bed.participants)
        result = bed.wait()
    assert result.run_hash == embedded.run_hash
    assert result.jobs.equals(embedded.jobs)
    assert result.folder == tmp_path / "t"
    assert (tmp_path / "t" / "participants").is_dir()


def test_a_testbed_that_is_left_ends_its_participants():
    with fogveil.testbed("tiny", "jsq", speed=1, broker="builtin") as bed:
        folder = bed.folder
        ids = [one.process.pid for one in bed._running.testbed.participants.values()]
    assert ids
    assert not any(Path("/proc", str(pid)).exists() for pid in ids)
    assert not folder.exists()


def test_a_class_of_nobodys_file_runs_embedded_only():
    namespace: dict[str, object] = {"Policy": fogveil.Policy}
    exec("class Typed(Policy):\n    def place(self, seen): return 0\n", namespace)
    typed = namespace["Typed"]
    assert fogveil.run("tiny", typed).run_hash
    with pytest.raises(fogveil.InputError, match="into a file of its own"):
        fogveil.run("tiny", typed, mode="federated")
    with pytest.raises(fogveil.InputError, match="broker: for mode"):
        fogveil.run("tiny", "jsq", broker="builtin")


def test_compare_is_tidy_and_equal_to_single_runs(tmp_path):
    scenario = fogveil.Scenario.load("tiny").replace(horizon=500)
    table = fogveil.compare(
        scenario, ["jsq", LastNode], rates=[60, 90], seeds=2, out=tmp_path
    ).to_pandas()
    assert list(table["policy"]) == ["jsq", "LastNode"] * 2
    assert list(table["rate"]) == [60, 60, 90, 90]
    for row in table.itertuples():
        runs = [
            fogveil.run(
                scenario.replace(rate=row.rate),
                {"jsq": "jsq", "LastNode": LastNode}[row.policy],
                seed=seed,
            )
            for seed in (1, 2)
        ]
        delays = [run.summary["fog_loop"] for run in runs]
        assert row.fog_loop == pytest.approx(np.mean(delays))
        assert row.fog_loop_ci95 > 0
        assert row.fog_loop_ratio > 0.9
    assert list((tmp_path / "runs").glob("jsq_*.json"))
    assert fogveil.compare(["tiny", scenario], ["jsq"], seeds=1).num_rows == 2


class Fixed(fogveil.Policy):
    def __init__(self, view, node):
        self.node = node
        super().__init__(view)

    def place(self, seen: fogveil.Observation) -> int:
        return self.node


def test_objects_of_one_class_are_different_policies():
    view = build_world(fogveil.Scenario.load("tiny")).agent
    table = fogveil.compare("tiny", [Fixed(view, 0), Fixed(view, 2), "jsq"], seeds=1)
    assert table["policy"].to_pylist() == ["Fixed#1", "Fixed#2", "jsq"]
    expected = [fogveil.run("tiny", Fixed(view, node)).summary["fog_loop"] for node in (0, 2)]
    assert table["fog_loop"].to_pylist()[:2] == expected
    assert expected[0] != expected[1]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: fogveil.run("tiny", "jsq", mode="fedrated"), "mode 'fedrated': expected one of"),
        (lambda: fogveil.run("tiny", "jsq", seed=1.5), "seed"),
        (lambda: fogveil.run(5, "jsq"), "scenario 5: expected a file"),
        (lambda: fogveil.Scenario.load(3), "scenario 3: expected a file"),
        (lambda: fogveil.Scenario.load("tiny").replace({1: 2}), "override 1: expected a key"),
        (lambda: fogveil.compare("tiny", [None]), "policy None: expected a name"),
        (lambda: fogveil.compare("tiny", []), "policies: expected at least one"),
        (lambda: fogveil.compare([], ["jsq"]), "scenarios: expected at least one"),
        (lambda: fogveil.compare("tiny", ["jsq"], seeds=0), "seeds: expected how many runs"),
        (lambda: fogveil.compare("tiny", ["jsq"], rates=60), "rates: expected positive numbers"),
        (lambda: fogveil.sweep(5), "sweep: expected a TOML file or a dictionary"),
        (lambda: fogveil.plot(5, "x", to="y"), "plot: expected a table"),
        (
            lambda: fogveil.run("tiny", "jsq", mode="federated", windows=3),
            "windows: no such option",
        ),
        (lambda: fogveil.run("tiny", "jsq", mode="federated", window="3"), "window: expected int"),
    ],
)
def test_a_wrong_argument_is_one_sentence(call, sentence):
    with pytest.raises(fogveil.InputError, match=sentence):
        call()


def test_numbers_of_numpy_are_numbers():
    scenario = fogveil.Scenario.load("paper").replace(fog=np.int64(12), rate=np.float64(90))
    assert (scenario.roles.fog, scenario.sources.scale) == (12, 90.0)


def test_train_returns_a_policy(tmp_path):
    lengths = {"training_steps": 50, "buffer_capacity": 400}
    agent = fogveil.train("tiny", "parl", tmp_path / "parl", seed=1, hyperparameters=lengths)
    table = fogveil.evaluate(agent, "tiny", against=("random",), seeds=1)
    assert table["policy"].to_pylist() == ["parl", "random"]
    with pytest.raises(fogveil.InputError, match="hyperparameters: "):
        fogveil.train("tiny", "parl", tmp_path / "x", hyperparameters={"gamma": 1})
