"""PLRL: the literature's state and its three rewards, on the paper's machinery."""

from __future__ import annotations

import numpy as np
import pytest
from support import make_world, mean_fog_loop, train_fully

import fogveil.agent.policies as policies
from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.plrl import DELAY_SCALE, LARGEST_COUNT
from fogveil.agent.learning.registry import find_agent
from fogveil.agent.policy import Level, Load, Observation

HYPERPARAMETERS = Hyperparameters(
    buffer_capacity=2000, training_steps=50, batch_size=16, layers=(16,)
)


@pytest.fixture(scope="module")
def view():
    return make_world().agent


def make_observation(view, job, counts, cluster=0, category=0):
    expected = ((20.0, 8.0, 4.0), (150.0, 60.0, 30.0))
    load = Load((1.0,) * 3, (1.0,) * 3, expected, (0.0,) * 3, expected[category])
    return Observation(float(job), job, cluster, category, counts, None, None, load)


@pytest.mark.parametrize(
    ("name", "needs", "delay", "queue"),
    [
        ("plrl-ed", Level.FULL, 1, 0),
        ("plrl-ql", Level.COUNT, 0, 1),
        ("plrl-edql", Level.FULL, 1, 1),
    ],
)
def test_rewards(view, name, needs, delay, queue):
    agent = find_agent(name)(view, HYPERPARAMETERS)
    assert agent.needs is needs
    counts = [(0, 0, 0), (3, 1, 2), (4, 5, 6)]
    actions = [
        agent.place(make_observation(view, job, now, job % 2, 1)) for job, now in enumerate(counts)
    ]
    rewards = agent.replay.columns["reward"][:3]
    assert rewards[0] == 0
    for step in (1, 2):
        node, cluster = actions[step - 1], (step - 1) % 2
        execution = view.up[cluster][1][node] + (150.0, 60.0, 30.0)[node]
        expected = -(delay * execution + queue * counts[step][node]) * (DELAY_SCALE if delay else 1)
        assert rewards[step] == pytest.approx(expected, rel=1e-6)


def test_the_state_is_the_source_and_the_counts(view):
    agent = find_agent("plrl-ql")(view, HYPERPARAMETERS)
    agent.place(make_observation(view, 0, (7, 8, 10**6), cluster=1))
    assert agent.states(np.array([0])).tolist() == [[0, 1, 7, 8, LARGEST_COUNT]]


@pytest.mark.parametrize("name", ["plrl-ql", "plrl-edql"])
def test_small_agents_learn_on_tiny(name):
    world = make_world()
    hyperparameters = Hyperparameters(
        buffer_capacity=20_000, training_steps=4000, learning_rate=1e-3, layers=(64, 32)
    )
    agent = find_agent(name)(world.agent, hyperparameters)
    train_fully(agent, world)
    random = policies.load("random", world.agent)
    assert mean_fog_loop(world, agent.actor) < 0.5 * mean_fog_loop(world, random)
