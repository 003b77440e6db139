"""The example that trains a PPO: it learns, and holds its own in a comparison."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support import ROOT, run_outstanding

from fogveil.testbed.experiments.comparison import Comparison, evaluate, prepare

pytestmark = pytest.mark.slow


def test_a_ppo_trained_for_a_minute_beats_policies_that_see_nothing(tmp_path):
    script = [sys.executable, "-W", "ignore", ROOT / "examples/train_ppo.py", "--seeds", "2"]
    subprocess.run([*script, "--out", tmp_path], check=True)
    assert (tmp_path / "ppo-curve.png").stat().st_size > 10_000
    ppo = str(tmp_path / "ppo.npz")
    blind = ("random", "round-robin")
    comparison = Comparison(
        "paper", {}, (ppo, *blind), (100.0,), (10_000.0,), 5, tmp_path / "blind"
    )
    run_outstanding((comparison, run) for run in prepare(comparison)[1])
    delays = {row.policy: row.measures["fog_loop"].mean for row in evaluate(comparison, "random")}
    for name in blind:
        assert delays["ppo"] < 0.5 * delays[name], delays
