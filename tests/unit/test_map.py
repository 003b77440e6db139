"""The map of where PARL works: its environments are what they are called, its page says what is."""

from __future__ import annotations

import pytest

from fogveil.testbed.experiments.map.page import (
    draw,
    full_table,
    grid_table,
    intervention_table,
)
from fogveil.testbed.experiments.map.plan import (
    BY_RATE,
    FULL,
    GRID,
    LATENCIES,
    LOADS,
    POINTS,
    RIVALS,
    SCENARIO,
    Point,
    comparison_of,
    kappa,
    load,
    trainings,
)
from fogveil.testbed.experiments.map.results import Delays, PointResult, agreement
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import build_world


@pytest.mark.parametrize("point", [GRID[0], GRID[7], GRID[-1], *BY_RATE], ids=lambda p: p.name)
def test_an_environment_has_the_latency_and_the_load_that_it_is_called_by(point):
    world = build_world(load_scenario(SCENARIO, point.overrides))
    assert kappa(world) == pytest.approx(point.latency)
    assert load(world) == pytest.approx(point.load)


def test_a_rate_gives_kappa_without_a_change_of_links():
    slow, fast = (build_world(load_scenario(SCENARIO, point.overrides)) for point in BY_RATE)
    same = build_world(load_scenario(SCENARIO, Point(0.5, 0.4).overrides))
    assert fast.agent.up == build_world(load_scenario(SCENARIO, Point(4.0, 0.4).overrides)).agent.up
    assert slow.agent.up == same.agent.up
    assert slow.scenario.sources.scale == pytest.approx(100 / 8)
    assert fast.scenario.sources.scale == pytest.approx(800)


def test_the_grid_is_complete_and_every_name_is_unique():
    assert {(p.latency, p.load) for p in GRID} == {(a, b) for a in LATENCIES for b in LOADS}
    assert len(GRID) >= 5 * 4
    assert len(FULL) >= 6
    assert len({point.name for point in POINTS}) == len(POINTS)
    assert len({training.folder for training in trainings(POINTS)}) == len(trainings(POINTS))


def test_trainings_have_a_quarter_or_all_of_the_papers_length():
    quarter, full = GRID[0].hyperparameters, FULL[0].hyperparameters
    assert (full.training_steps, full.population_decisions) == (150_000, 100_000)
    assert (quarter.training_steps, quarter.population_decisions) == (37_500, 25_000)
    changed = {"training_steps", "buffer_capacity"}
    assert quarter.model_dump(exclude=changed) == full.model_dump(exclude=changed)


def test_an_evaluation_has_both_horizons_the_rivals_and_every_training():
    comparison = comparison_of(GRID[0])
    assert comparison.horizons == (10_000.0, 100_000.0)
    assert comparison.policies[: 1 + len(RIVALS)] == ("setr", *RIVALS)
    assert len(comparison.policies) == 1 + len(RIVALS) + 2


def found(point, *parl, oracle=10.0):
    """A result in which every method but PARL is at the oracle."""
    rivals = {name: Delays(oracle, oracle) for name in RIVALS}
    return PointResult(point, Delays(oracle, oracle), rivals, tuple(Delays(*p) for p in parl))


def test_a_method_is_stable_while_its_delay_does_not_grow_with_the_horizon():
    result = found(GRID[0], (20.0, 21.9), (20.0, 22.1))
    assert [each.stable for each in result.parl] == [True, False]
    assert not result.stable("parl")
    assert result.stable("jsq")
    assert result.stable_trainings == 1
    assert result.ratios("parl") == [2.0, 2.0]
    assert found(GRID[0], (20.0, 20.0), (80.0, 80.0)).mean_ratio("parl") == pytest.approx(4.0)


def test_agreement_counts_points_that_are_stable_at_both_lengths_or_at_neither():
    good, bad = found(GRID[0], (20.0, 20.0)), found(GRID[0], (20.0, 90.0))
    assert agreement([(good, good), (bad, bad), (good, bad), (bad, good)]) == 0.5


def test_tables_show_every_training_and_how_many_are_stable():
    result = found(Point(0.5, 0.4), (15.0, 15.0), (123.0, 900.0))
    row = grid_table([result]).splitlines()[2]
    assert row == "| 0.5 | 40% | 10 | 1.0 | 1.0 | 1.0 | 1.5, 12 | 1 of 2 |"
    full = found(Point(0.5, 0.4, full_length=True), (15.0, 15.0))
    assert (
        full_table([(result, full)]).splitlines()[2].endswith("| 1.5, 12 | 1 of 2 | 1.5 | 1 of 1 |")
    )
    slower = found(Point(4.0, 0.4, decay=0.9), (15.0, 30.0))
    rate = found(BY_RATE[0], (15.0, 15.0))
    rows = intervention_table([slower, rate]).splitlines()[2:]
    assert rows[0] == "| 4 | latency | 0.9 | 1.5 | 3.0 | 0 of 1 |"
    assert rows[1] == "| 4 | the rate of workloads | 0.5 | 1.5 | 1.5 | 1 of 1 |"


def test_the_figure_has_a_cell_for_every_point(tmp_path):
    draw([found(point, (15.0, 15.0), (500.0, 5000.0)) for point in GRID], tmp_path / "map")
    drawn = (tmp_path / "map.svg").read_text()
    assert drawn.count("<!-- 1.5 -->") + drawn.count("1.5") >= len(GRID)
    assert (tmp_path / "map.png").stat().st_size > 10_000
