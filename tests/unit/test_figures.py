"""Figures show means as dots with intervals: no bar stands on a logarithmic axis."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from fogveil.testbed.report import figures
from fogveil.testbed.report.averages import MEASURES, PolicyAverage
from fogveil.testbed.report.methods import method_of
from fogveil.testbed.report.statistics import Estimate


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are drawn, in place of files."""
    kept = []

    @contextmanager
    def keep(_path, width, height):
        kept.append(Figure(figsize=(width, height)))
        yield kept[-1]

    monkeypatch.setattr(figures, "figure", keep)
    return kept


def average(policy, mean, half_width, rate=100.0):
    estimates = dict.fromkeys(MEASURES, Estimate(mean, half_width))
    return PolicyAverage(policy, "count", rate, 1000.0, estimates, None)


def interval(container, axis):
    """The two ends of the first interval of a series on an axis (0 is x), or None."""
    (bars,) = container.lines[2]
    ends = bars.get_segments()[0]
    return ends[:, axis].tolist() if len(ends) else None


def test_delays_are_dots_with_intervals(drawn):
    averages = [average("jsq", 100.0, 10.0), average("random", 9000.0, 500.0)]
    figures.plot_delays(averages, None)
    assert len(drawn[0].axes) == 5
    for axes in drawn[0].axes:
        assert not axes.patches, "a bar"
        assert [type(c) for c in axes.containers] == [ErrorbarContainer] * 2
        assert axes.get_xscale() == "log"
        assert "(log scale)" in axes.get_title()
        assert interval(axes.containers[0], 0) == pytest.approx([90, 110])
        low, high = axes.get_xlim()
        assert low < 90
        assert high > 9500


def test_values_of_one_size_have_a_linear_axis_from_zero(drawn):
    figures.plot_delays([average("jsq", 100.0, 10.0), average("random", 120.0, 30.0)], None)
    for axes in drawn[0].axes:
        assert axes.get_xscale() == "linear"
        assert axes.get_xlim()[0] == 0


def test_no_waiting_at_all_can_be_drawn(drawn):
    figures.plot_delays([average("jsq", 0.0, 0.0), average("random", 9000.0, 500.0)], None)
    assert drawn[0].axes[0].get_xlim()[0] == 0


def test_an_interval_beyond_zero_runs_off_the_axis_and_keeps_its_upper_end(drawn):
    averages = [average("jsq", 100.0, 10.0), average("random", 2000.0, 5000.0)]
    figures.plot_loops(averages, None)
    panel = drawn[0].axes[0]
    assert panel.get_yscale() == "log"
    low, high = interval(panel.containers[1], 1)
    assert low < panel.get_ylim()[0]
    assert high == pytest.approx(7000)
    assert panel.get_ylim()[1] > 7000


def test_a_single_seed_is_a_dot_alone(drawn):
    figures.plot_delays([average("jsq", 100.0, None), average("random", 9000.0, None)], None)
    for axes in drawn[0].axes:
        for container in axes.containers:
            assert interval(container, 0) is None


def test_intervals_of_different_methods_do_not_cover_each_other(drawn):
    rates = (200.0, 150.0, 100.0)
    names = ("random", "jsq", "setr")
    averages = [average(name, 100.0, 10.0, rate) for name in names for rate in rates]
    figures.plot_loops(averages, None)
    places = [c.lines[0].get_xdata().tolist() for c in drawn[0].axes[0].containers]
    for column in zip(*places, strict=True):
        assert len(set(column)) == len(names)
        assert max(column) - min(column) < 20


def test_trainings_are_of_their_agents_method():
    labels = ("plrl-ed-100-2", "plrl-edql-100-1", "veil-waiting-3", "veil", "veil-total", "mine")
    labels += ("paper-parl-200-11", "stress-plrl-ed-100-1")
    expected = ["plrl-ed", "plrl-edql", "veil", "veil", "veil-total", "mine", "parl", "plrl-ed"]
    assert [method_of(label) for label in labels] == expected
