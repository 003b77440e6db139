"""The drift detector against the textbook's sums, and what it must and must not notice."""

from __future__ import annotations

import numpy as np
import pytest

from fogveil.agent.inference.drift import PageHinkley


def textbook(values, delta):
    """Return the statistics of a stream by Page: a sum minus its least value so far."""
    rise = fall = least_rise = least_fall = 0.0
    statistics = []
    for number in range(1, len(values) + 1):
        mean = np.mean(values[:number])
        rise += values[number - 1] - mean - delta
        fall += mean - values[number - 1] - delta
        least_rise, least_fall = min(least_rise, rise), min(least_fall, fall)
        statistics.append(max(rise - least_rise, fall - least_fall))
    return statistics


@pytest.mark.parametrize("delta", [0.0, 0.05, 0.5])
def test_the_statistic_is_the_textbooks(delta):
    values = np.random.default_rng(3).normal(2.0, 1.0, 300)
    test = PageHinkley(delta=delta, threshold=1e9)
    statistics = []
    for value in values:
        assert not test.add(float(value))
        statistics.append(test.statistic)
    assert statistics == pytest.approx(textbook(values, delta), abs=1e-9)


@pytest.mark.parametrize("shift", [1.5, -1.5])
def test_it_fires_soon_after_a_change_and_says_which(shift):
    values = np.random.default_rng(4).normal(0.0, 1.0, 400)
    values[200:] += shift
    test = PageHinkley(delta=0.25, threshold=15.0)
    fired = [number for number, value in enumerate(values) if test.add(float(value))]
    assert 200 < fired[0] < 230
    assert test.rises is (shift > 0)
    assert ("rises" if shift > 0 else "falls") in test.reason


def test_it_is_silent_on_a_steady_stream():
    generator = np.random.default_rng(5)
    for _ in range(20):
        test = PageHinkley(delta=0.25, threshold=20.0)
        assert not any(test.add(value) for value in generator.exponential(1.0, 2000))


def test_it_waits_for_the_least_number_of_values_and_begins_anew():
    test = PageHinkley(delta=0.0, threshold=1.0, minimum=10)
    stream = [0.0] * 4 + [50.0] * 6
    assert [test.add(value) for value in stream] == [False] * 9 + [True]
    test.reset()
    assert (test.values, test.statistic, test.mean) == (0, 0.0, 0.0)
    assert [test.add(value) for value in stream] == [False] * 9 + [True]
