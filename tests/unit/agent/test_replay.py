"""The replay buffer: which transitions exist, and that each is as likely as any other."""

from __future__ import annotations

import numpy as np
import pytest

from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.replay import Replay


def filled(lengths, capacity=1000, reach=0):
    replay = Replay(capacity, {"job": np.int64}, reach)
    job = 0
    for episode, length in enumerate(lengths):
        replay.begin_episode()
        for _ in range(length):
            replay.add(job=1000 * episode + job)
            job += 1
    return replay


def sampled(replay, size=20_000):
    now, after = replay.sample(size, np.random.default_rng(1))
    jobs = replay.columns["job"]
    return list(zip(jobs[now].tolist(), jobs[after].tolist(), strict=True))


def test_transitions_are_consecutive_decisions_of_one_episode():
    pairs = sampled(filled([10, 1, 30]))
    assert all(after == now + 1 for now, after in pairs)
    assert len(set(pairs)) == 9 + 0 + 29


def test_sampling_is_uniform():
    pairs = sampled(filled([10, 30]), 38_000)
    counts = np.unique([now for now, _ in pairs], return_counts=True)[1]
    assert len(counts) == 38
    assert counts.min() > 850
    assert counts.max() < 1150


def test_a_full_ring_forgets_the_oldest_and_what_leans_on_it():
    replay = filled([250], capacity=100, reach=24)
    places, _ = replay.sample(20_000, np.random.default_rng(1))
    jobs = replay.columns["job"][places]
    assert (jobs.min(), jobs.max()) == (150 + 24, 248)
    back = replay.before(places, np.arange(1, 25))
    np.testing.assert_array_equal(
        replay.columns["job"][back], jobs[:, None] - np.arange(1, 25)[None, :]
    )


def test_a_million_transitions_take_some_megabytes():
    from support import make_world

    from fogveil.agent.learning.parl import Parl

    agent = Parl(make_world("stress").agent, Hyperparameters())
    size = sum(column.nbytes for column in agent.replay.columns.values()) + agent.replay.age.nbytes
    assert size <= 14e6


@pytest.mark.parametrize("capacity", [50, 1000])
def test_a_restored_buffer_goes_on_alike(capacity):
    replay = filled([30, 70], capacity)
    other = Replay(capacity, {"job": np.int64})
    other.restore(replay.state())
    for buffer in (replay, other):
        buffer.begin_episode()
        for job in range(5):
            buffer.add(job=job)
    assert sampled(replay) == sampled(other)
