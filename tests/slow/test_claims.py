"""The claims of docs/results.md that can be proved again in minutes: `make test-slow`."""

from __future__ import annotations

import json

import pytest
from support import SCENARIOS, run_outstanding

from fogveil.testbed.experiments.comparison import Comparison, evaluate, prepare

pytestmark = pytest.mark.slow
SEEDS = 10
OTHERS = sorted(path.stem for path in (SCENARIOS / "other").glob("*.toml") if path.stem != "geant")
LIMITS = {"in_system": (1.02, 1.03), "waiting": (1.03, 1.04)}
"""Largest upper end of the paired ratio to the oracle: on the paper's scenario, and on others."""


def rows_of(tmp_path, file, names, rates, **overrides):
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    horizon = dotted.pop("horizon", 10_000.0)
    comparison = Comparison(file, dotted, names, rates, (horizon,), SEEDS, tmp_path)
    run_outstanding((comparison, run) for run in prepare(comparison)[1])
    return {(row.policy, row.rate): row for row in evaluate(comparison, "setr")}


@pytest.mark.parametrize("kind", LIMITS)
def test_veil_is_as_good_as_the_oracle_and_far_better_than_jsq(tmp_path, kind):
    names, rates = ("jsq", "veil", "setr"), (200.0, 150.0, 100.0)
    rows = rows_of(tmp_path, SCENARIOS / "stress.toml", names, rates, count=kind)
    for rate in rates:
        ratio = rows["veil", rate].ratio
        assert ratio.mean + ratio.half_width <= LIMITS[kind][0], (rate, ratio)
    veil, jsq = (rows[name, 100.0].measures["fog_loop"].mean for name in ("veil", "jsq"))
    assert veil < 0.65 * jsq


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("scenario", OTHERS)
def test_veil_holds_on_scenarios_it_was_never_trained_on(tmp_path, scenario, kind):
    file = SCENARIOS / "other" / f"{scenario}.toml"
    ratio = rows_of(tmp_path, file, ("veil", "setr"), (None,), count=kind)["veil", None].ratio
    assert ratio.mean + ratio.half_width <= LIMITS[kind][1], ratio


@pytest.mark.parametrize("kind", LIMITS)
def test_veil_holds_on_a_real_topology(tmp_path, kind, real_data):
    graph = str(real_data / "topologies" / "Geant2012.graphml")
    file = SCENARIOS / "other" / "geant.toml"
    rows = rows_of(tmp_path, file, ("veil", "setr"), (None,), count=kind, topology__file=graph)
    ratio = rows["veil", None].ratio
    assert ratio.mean + ratio.half_width <= LIMITS[kind][1], ratio


def test_the_traditional_methods_have_the_papers_order(tmp_path):
    """Fastest best of those blind to queues at β = 200, and the worst at β = 100."""
    blind = ("random", "round-robin", "nearest", "fastest", "electre")
    rates = (200.0, 100.0)
    rows = rows_of(tmp_path, SCENARIOS / "stress.toml", (*blind, "setr"), rates)
    delay = {key: row.measures["fog_loop"].mean for key, row in rows.items()}
    assert min(blind, key=lambda name: delay[name, 200.0]) == "fastest"
    assert max(blind, key=lambda name: delay[name, 100.0]) == "fastest"
    assert delay["electre", 200.0] < min(delay[n, 200.0] for n in ("random", "round-robin"))


@pytest.mark.parametrize("rate", [200.0, 150.0, 100.0])
def test_from_the_total_alone_veil_total_is_near_the_oracle_on_every_seed(tmp_path, rate):
    comparison = Comparison(
        *(SCENARIOS / "stress.toml", {}, ("veil-total", "setr"), (rate,), (10_000.0,), 20),
        tmp_path,
    )
    run_outstanding((comparison, run) for run in prepare(comparison)[1])
    loops = {
        run: json.loads(comparison.path_of(run).read_text(encoding="utf-8"))["summary"]["fog_loop"]
        for run in comparison.runs()
    }
    ratios = [
        delay / loops[run._replace(policy="setr")]
        for run, delay in loops.items()
        if run.policy == "veil-total"
    ]
    assert len(ratios) == 20
    assert sum(ratios) / 20 <= 1.25, ratios
    assert max(ratios) <= 2, ratios
