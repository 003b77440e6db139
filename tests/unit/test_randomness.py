"""Keyed randomness: distributions, independence of order, and the split of the seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fogveil.core.randomness import (
    BLOCK,
    BLOCKS_KEPT,
    KeyedErlang,
    KeyedPareto,
    KeyedUniform,
    Seeds,
    drawn,
)

JOBS = range(20_000)


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=50), st.randoms())
def test_the_order_of_asking_does_not_matter(jobs, shuffle):
    draw = KeyedErlang(5, "x", 3)
    first = {job: draw(job) for job in jobs}
    shuffle.shuffle(jobs)
    other = KeyedErlang(5, "x", 3)
    assert {job: other(job) for job in jobs} == first


def test_uniform_numbers_are_uniform():
    draw = KeyedUniform(1, "x")
    assert stats.kstest([draw(job) for job in JOBS], "uniform").pvalue > 0.01


@pytest.mark.parametrize("shape", [1, 2, 5])
def test_erlang_numbers_are_erlang(shape):
    draw = KeyedErlang(1, "x", shape)
    law = stats.erlang(shape, scale=1 / shape)
    assert stats.kstest([draw(job) for job in JOBS], law.cdf).pvalue > 0.01


@pytest.mark.parametrize("shape", [1.5, 3.0])
def test_pareto_numbers_are_pareto_of_mean_one(shape):
    draw = KeyedPareto(1, "x", shape)
    law = stats.pareto(shape, scale=1 - 1 / shape)
    assert law.mean() == pytest.approx(1)
    assert stats.kstest([draw(job) for job in JOBS], law.cdf).pvalue > 0.01


def test_seeds_purposes_and_neighbours_are_independent():
    streams = [
        [KeyedUniform(seed, purpose)(job + shift) for job in range(5000)]
        for seed, purpose, shift in [(1, "x", 0), (2, "x", 0), (1, "y", 0), (1, "x", 1)]
    ]
    correlation = np.corrcoef(streams) - np.eye(4)
    assert np.abs(correlation).max() < 0.06


def test_few_blocks_are_kept():
    draw = KeyedUniform(1, "x")
    early = draw(0)
    for block in range(50):
        draw(block * BLOCK)
    assert len(draw._blocks) <= BLOCKS_KEPT
    assert draw(0) == early


def test_seeds_of_a_run():
    assert Seeds.of(1) == Seeds.of(1)
    assert len({*Seeds.of(1), *Seeds.of(2)}) == 6


def test_draws_of_a_seed():
    seeds = [*Seeds.of(1), *Seeds.of(2)]
    assert [drawn(seed, 0) for seed in seeds] == seeds, "the first draw is the run itself"
    assert len({drawn(seed, draw) for seed in seeds for draw in range(50)}) == 300
    assert drawn(seeds[0], 7) == drawn(seeds[0], 7)
