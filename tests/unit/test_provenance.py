"""Where a result comes from is kept in it, and changes nothing else of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support import ROOT, SCENARIOS

from fogveil.core import version
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.experiments.comparison import Comparison
from fogveil.testbed.records.provenance import provenance
from fogveil.testbed.scenario import load_scenario

PRINT_COMMIT = "from fogveil.core.version import source_commit; print(source_commit())"


def test_a_result_keeps_commit_versions_command_and_date(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fogveil", "run", "tiny", "--set", "name=a b"])
    begin = datetime.now(UTC).replace(microsecond=0)
    run_embedded(load_scenario(SCENARIOS / "tiny.toml"), "jsq", tmp_path)
    kept = json.loads((tmp_path / "run.json").read_text())["provenance"]
    assert kept["command"] == "fogveil run tiny --set 'name=a b'"
    date = datetime.fromisoformat(kept["date"])
    assert date.utcoffset().total_seconds() == 0
    assert begin <= date <= datetime.now(UTC)
    assert kept["versions"]["fogveil"] == version.VERSION
    assert kept["versions"]["numpy"]
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if head.returncode == 0:  # an exported tree has no commit
        assert head.stdout.startswith(kept["commit"])
        assert len(kept["commit"]) >= 12
        assert kept["uncommitted_changes"] in (True, False)


def test_results_and_their_files_do_not_depend_on_it(tmp_path, monkeypatch):
    scenario = load_scenario(SCENARIOS / "tiny.toml")
    comparison = Comparison("tiny", {}, ("jsq",), (None,), (300.0,), 1, tmp_path)
    results, paths = [], []
    for commit in ("0123456789ab", "ba9876543210-dirty"):
        monkeypatch.setattr("fogveil.testbed.records.provenance.source_commit", lambda c=commit: c)
        results.append(run_embedded(scenario, "jsq"))
        paths.append(comparison.path_of(comparison.runs()[0]))
    assert provenance()["commit"] == "ba9876543210"
    assert [result["provenance"]["uncommitted_changes"] for result in results] == [False, True]
    assert paths[0] == paths[1]
    for key in ("run_hash", "summary", "scenario", "versions"):
        assert results[0][key] == results[1][key]


@pytest.fixture
def repository(tmp_path):
    """Somebody's own repository, in which a copy of fogveil is installed."""
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@y", "-C", str(tmp_path)]
    (tmp_path / "own.txt").write_text("mine")
    copy = tmp_path / "site-packages" / "fogveil" / "core"
    shutil.copytree(Path(version.__file__).parent, copy)
    for words in (["init", "-q"], ["add", "own.txt"], ["commit", "-q", "-m", "mine"]):
        subprocess.run([*git, *words], check=True)
    return tmp_path, git


def test_the_commit_is_that_of_fogveil_and_of_nothing_around_it(repository):
    folder, git = repository
    site = folder / "site-packages"

    def found() -> str:
        environment = {**os.environ, "PYTHONPATH": str(site)}
        words = [sys.executable, "-S", "-c", PRINT_COMMIT]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert found() == "None"
    for words in (["add", "site-packages"], ["commit", "-q", "-m", "fogveil"], ["tag", "v9"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    commit = found()
    assert len(commit) == 12
    assert head.stdout.startswith(commit)
    (folder / "own.txt").write_text("changed")
    assert found() == f"{commit}-dirty"
