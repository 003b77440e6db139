"""Confidence intervals, against scipy and by coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fogveil.testbed.report.statistics import estimate, format_number, paired_ratio


@pytest.mark.parametrize("size", [2, 3, 5, 10, 31, 32, 61, 1000])
def test_estimate_is_scipys_interval(size):
    values = np.random.default_rng(size).normal(3, 2, size).tolist()
    expected = stats.t.interval(0.95, size - 1, np.mean(values), stats.sem(values))
    mean, half_width = estimate(values)
    assert (mean - half_width, mean + half_width) == pytest.approx(expected, rel=1e-12)


def test_estimates_are_formatted():
    assert estimate([2.0]).half_width is None
    assert str(estimate([100.0, 102.0])) == "101 ± 12.7"
    assert format_number(1234.5) == "1234"


def test_pairing_narrows_the_interval_and_covers_the_truth():
    random = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        common = random.normal(100, 30, 10)
        reference = common + random.normal(0, 1, 10)
        values = 1.1 * common + random.normal(0, 1, 10)
        ratio = paired_ratio(values.tolist(), reference.tolist())
        covered += abs(ratio.mean - 1.1) <= ratio.half_width
        assert ratio.half_width < 0.1 * estimate(values.tolist()).half_width
    assert 0.91 < covered / 400 < 0.98
