"""The Gymnasium environment: it keeps Gymnasium's contract, and any library can train on it."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from support import SCENARIOS, make_run

from fogveil.core.errors import InputError

ID = "fogveil.gym:fogveil/Placement-v0"


def make(**options):
    return gym.make(ID, scenario=SCENARIOS / "tiny.toml", **options)


@pytest.mark.parametrize("level", ["total", "count", "full"])
@pytest.mark.filterwarnings("ignore:.*A Box observation space maximum value is infinity")
def test_it_passes_gymnasiums_checker(level):
    check_env(make(level=level).unwrapped)


def test_an_episode_is_a_run():
    env = make()
    env.reset(seed=1)
    action = -1
    rewards = []
    while True:
        action = (action + 1) % 3
        _, reward, terminated, truncated, info = env.step(action)
        rewards.append(reward)
        assert not terminated
        if truncated:
            break
    expected = make_run("round-robin", disclosure="count")
    assert info["summary"]["workloads"] == len(expected.jobs["job"]) == len(rewards)
    assert info["summary"]["fog_loop"] == pytest.approx(
        (expected.jobs["returned"] - expected.jobs["emitted"]).mean()
    )


def test_the_reward_is_the_decrease_of_queued_jobs():
    env = make()
    vector, _ = env.reset(seed=3)
    total = vector[-4:].sum()
    for _ in range(60):
        vector, reward, *_ = env.step(0)
        assert reward == total - vector[-4:].sum()
        total = vector[-4:].sum()
    assert total > 3


def test_resets_go_through_the_seeds():
    env = make()
    first, _ = env.reset(seed=5)
    second, _ = env.reset()
    again, _ = env.reset(seed=5)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, second)


def test_a_level_without_counts_has_no_reward():
    with pytest.raises(InputError, match="the reward needs disclosure level"):
        make(level="none")


@pytest.mark.filterwarnings("ignore")  # third-party libraries warn about each other
def test_stable_baselines3_trains_on_it():
    from stable_baselines3 import DQN

    model = DQN("MlpPolicy", make(), learning_starts=50, buffer_size=1000, seed=1, device="cpu")
    before = [p.detach().clone() for p in model.q_net.parameters()]
    model.learn(300)
    changed = [not p.equal(old) for p, old in zip(model.q_net.parameters(), before, strict=True)]
    assert all(changed)
