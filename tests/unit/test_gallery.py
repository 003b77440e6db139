"""Figures from folders: by what the records say, with all policies, and nothing left out unsaid."""

from __future__ import annotations

import json

import pytest
from support import SCENARIOS

from fogveil.agent.learning.checkpoint import write_checkpoint
from fogveil.core.errors import InputError
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.records.output import write_json
from fogveil.testbed.report import gallery
from fogveil.testbed.report.gallery import draw_all
from fogveil.testbed.report.result_files import average_results, check_comparable, read_results
from fogveil.testbed.scenario import load_scenario

POLICIES = ("jsq", "random", "round-robin", "nearest", "p2c", "ci-setr", "setr")


def run(policy="jsq", **overrides):
    overrides = {"horizon": 300.0, "disclosure": "full", **overrides}
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    return run_embedded(load_scenario(SCENARIOS / "tiny.toml", dotted), policy)


@pytest.fixture
def drawn(monkeypatch):
    """What is drawn, in place of files."""
    kept = {}
    for name in ("plot_loops", "plot_delays", "plot_distribution", "plot_training"):

        def keep(*arguments, name=name):
            kept.setdefault(name, []).append(arguments)

        monkeypatch.setattr(gallery, name, keep)
    return kept


def test_results_are_known_by_their_content_and_every_policy_is_drawn(tmp_path, drawn):
    (tmp_path / "any name").mkdir()
    for number, policy in enumerate(POLICIES):
        write_json(tmp_path / "any name" / f"{number}.json", run(policy))
    (tmp_path / "runs").mkdir()
    write_json(tmp_path / "runs" / "compare.json", {"scenario": {}})
    assert draw_all([tmp_path], tmp_path).left_out == []
    ((placed, *_),) = drawn["plot_distribution"]
    assert list(placed) == list(POLICIES)
    ((averages, _),) = drawn["plot_delays"]
    assert [average.policy for average in averages] == list(POLICIES)


def test_what_a_figure_leaves_out_is_said(tmp_path, drawn):
    write_json(tmp_path / "1.json", run())
    write_json(tmp_path / "2.json", run("random", sources__scale=500.0))
    (sentence,) = draw_all([tmp_path], tmp_path).left_out
    assert "and β = 60 alone, the busiest of 2, without random: no run there" in sentence
    assert list(drawn["plot_distribution"][0][0]) == ["jsq"]


def test_two_scenarios_are_named_by_what_differs(tmp_path):
    """Both hold a run of jsq with seed 1, which is not what is wrong."""
    results = [run(), run(fog__servers=2, cloud__ipt=99.0)]
    with pytest.raises(InputError, match=r"tiny differ in cloud\.ipt, fog\.servers; name their"):
        check_comparable(results)
    changed = {**run(), "run_hash": "another"}
    with pytest.raises(InputError, match="two different results of jsq with seed 1"):
        check_comparable([run(), changed])


def test_a_run_that_two_commands_kept_counts_once(tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "run.json", run())
    assert len(read_results([tmp_path])) == 1


def test_results_of_an_earlier_version_are_averaged_with_new_ones():
    old = json.loads(json.dumps(run()))
    for application in old["scenario"]["applications"]:
        del application["deadline"]
    kept = ("workloads", "unserved", "fog_loop", "waiting", "placed", "utilisation")
    old["summary"] = {key: old["summary"][key] for key in kept}
    del old["provenance"]
    results = [old, run("random")]
    check_comparable(results)
    first, second = average_results(results)
    assert "fog_loop_p95" not in first.measures
    assert second.measures["fog_loop_p95"].mean > second.measures["fog_loop"].mean


def test_a_training_is_drawn_by_the_agent_of_its_checkpoint(tmp_path, drawn):
    folder = tmp_path / "my experiment"
    write_checkpoint(folder / "agent.npz", {"agent": "plrl-ql", "public": {}, "sizes": []}, {})
    episode = {"phase": "training", "training_steps": 1, "last_returns": 2.0}
    (folder / "episodes.jsonl").write_text(json.dumps(episode) + "\n")
    write_json(folder / "training.json", {"seed": 5})
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "episodes.jsonl").write_text("")
    result = draw_all([tmp_path], tmp_path)
    assert result.paths == [tmp_path / "training-plrl-ql"]
    assert drawn["plot_training"][0][0] == {"my experiment": [[episode]]}
    assert result.left_out == ["1 trainings have no finished episode"]
