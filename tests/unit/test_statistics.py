"""Confidence intervals, against scipy and by coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from testbed.statistics import estimate, number, paired_ratio, t975


@pytest.mark.parametrize("freedom", [1, 2, 4, 9, 30, 31, 60, 1000])
def test_students_t(freedom):
    assert t975(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1.5e-3)


def test_estimate_is_scipys_interval():
    values = [3.0, 4.5, 2.2, 5.1, 3.9]
    low, high = stats.t.interval(0.95, 4, np.mean(values), stats.sem(values))
    found = estimate(values)
    assert (found.mean - found.half_width, found.mean + found.half_width) == pytest.approx(
        (low, high), rel=1e-3
    )
    assert estimate([2.0]).half_width is None
    assert str(estimate([100.0, 102.0])) == "101 ± 12.7"
    assert number(1234.5) == "1234"


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
