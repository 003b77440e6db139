"""`fogveil league` as a person uses it: what it lists, prints and leaves out."""

from __future__ import annotations

import json
import os

from support import ROOT
from test_commands import fogveil, refused

OWN = """
from fogveil.agent.policies.jsq import JoinShortestQueue

class Mine(JoinShortestQueue):
    pass
"""
WITHOUT_DATA = {name: value for name, value in os.environ.items() if name != "FOGVEIL_DATA"}


def test_a_dry_run_lists_scenarios_and_time_and_runs_nothing(tmp_path):
    done = fogveil("league", "--dry-run", "--out", tmp_path, env=WITHOUT_DATA)
    assert done.returncode == 0, done.stderr
    assert "league 3 (" in done.stderr
    assert "19 scenarios × 5 seeds: paper-200, " in done.stderr
    assert "left out: geant needs topologies/Geant2012.graphml" in done.stderr
    assert "0 of them done before, about" in done.stderr
    assert done.stdout == ""
    assert not list(tmp_path.rglob("*.json"))


def test_an_own_policy_has_a_quick_look_and_continues(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    entered = ("--policy", "mine.py:Mine", "--policy", "jsq")
    words = ("league", *entered, "--quick", "--out", tmp_path / "out")
    done = fogveil(*words, cwd=tmp_path, env=WITHOUT_DATA)
    assert done.returncode == 0, done.stderr
    assert "a quick look, NOT comparable" in " ".join(done.stdout.split())
    assert "Mine, level count" in done.stdout
    assert "left out for want of real data: geant, azure" in done.stdout
    again = fogveil(*words, "--json", cwd=tmp_path, env=WITHOUT_DATA)
    assert "114 runs, 114 of them done before" in again.stderr
    result = json.loads(again.stdout)
    assert result["comparable"] is False
    mine, jsq, oracle = result["policies"]
    assert (mine["policy"], jsq["policy"], oracle["policy"]) == ("Mine", "jsq", "setr")
    assert mine["place"] == "1 of 2", "nothing published is mixed with it"
    assert len(mine["scenarios"]) == len(result["sets"]["shipped"]) == 19
    assert mine["scores"] == jsq["scores"]
    assert mine["scores"]["shipped"]["mean"] > 1.5
    kept = json.loads(next((tmp_path / "out").glob("*/league.json")).read_text())
    assert " league " in kept.pop("provenance")["command"]
    assert kept == result


def test_docs_are_written_in_a_checkout_only(tmp_path):
    assert "run it in a checkout" in refused("league", "--write-docs", cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_overview_names_it():
    assert "fogveil league" in fogveil("--help", cwd=ROOT).stdout
