"""PARL beside the paper: Algorithm 1, the reward, the state, the schedule."""

from __future__ import annotations

import numpy as np
import pytest
from support import decide, make_world, mean_fog_loop, train_fully

import fogveil.agent.policies as policies
from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.parl import Parl
from fogveil.agent.learning.vanishing_distribution import VanishingDistribution
from fogveil.agent.policy import Level, Observation


def algorithm_1(placements, shape):
    """The paper's recursion, literally: increment, then normalise."""
    d = np.zeros(shape)
    for a, c, w in placements:
        d[a, c, w] += 1
        d /= d.sum()
    return d


def test_algorithm_1_by_hand():
    """Four placements, worked out on paper."""
    placements = [(0, 0, 0), (1, 0, 0), (1, 0, 0), (2, 1, 1)]
    expected = [
        {(0, 0, 0): 1},
        {(0, 0, 0): 1 / 2, (1, 0, 0): 1 / 2},
        {(0, 0, 0): 1 / 4, (1, 0, 0): 3 / 4},
        {(0, 0, 0): 1 / 8, (1, 0, 0): 3 / 8, (2, 1, 1): 1 / 2},
    ]
    for number, shares in enumerate(expected, 1):
        d = algorithm_1(placements[:number], (3, 2, 2))
        assert {place: d[place] for place in shares} == shares
        assert d.sum() == 1
        weights = VanishingDistribution().weights(np.array([number]))[0]
        ours = np.zeros((3, 2, 2))
        for weight, place in zip(weights, reversed(placements[:number]), strict=False):
            ours[place] += weight
        assert {place: ours[place] for place in shares} == shares


@pytest.mark.parametrize("length", [0, 1, 2, 23, 24, 25, 26, 60, 500])
def test_the_weighted_sum_is_within_2_to_the_minus_24_of_algorithm_1(length):
    random = np.random.default_rng(length)
    shape = (10, 8, 3)
    placements = [tuple(random.integers(0, size) for size in shape) for _ in range(length)]
    literal = algorithm_1(placements, shape)
    weights = VanishingDistribution().weights(np.array([length]))[0].astype(float)
    ours = np.zeros(shape)
    for weight, place in zip(weights, reversed(placements), strict=False):
        ours[place] += weight
    assert np.abs(literal - ours).max() <= 2.0**-24
    if length <= VanishingDistribution().reach:
        np.testing.assert_array_equal(literal, ours)


@pytest.mark.parametrize("decay", [0.25, 0.9, 0.95])
@pytest.mark.parametrize("length", [0, 1, 2, 30, 600])
def test_another_decay_forgets_at_its_own_pace(decay, length):
    random = np.random.default_rng(length)
    placements = random.integers(0, 5, length)
    literal = np.zeros(5)
    for number, place in enumerate(placements):
        literal *= decay if number else 0.0
        literal[place] += 1 - decay if number else 1.0
    ours = np.zeros(5)
    weights = VanishingDistribution(decay).weights(np.array([length]))[0]
    np.add.at(ours, placements[::-1][: len(weights)], weights[:length])
    np.testing.assert_allclose(ours, literal, atol=2e-6)


HYPERPARAMETERS = Hyperparameters(
    buffer_capacity=2000,
    buffer_population=0.1,
    training_steps=100,
    train_period=4,
    target_update_period=40,
    batch_size=16,
)


@pytest.fixture(scope="module")
def view():
    return make_world("tiny").agent


def make_observation(job, total, cluster=0, category=0):
    return Observation(float(job), job, cluster, category, total=total)


def test_it_needs_the_total_and_nothing_more():
    assert Parl.needs is Level.TOTAL
    assert Parl.actor_kind.needs is Level.TOTAL


def test_the_reward_is_the_decrease_of_the_total(view):
    agent = Parl(view, HYPERPARAMETERS)
    for total in (5, 7, 4, 4):
        decide(agent, make_observation(total, total))
    assert agent.replay.columns["reward"][:4].tolist() == [0, -2, 3, 0]
    assert agent.returned == 1


def test_states_rebuilt_from_the_buffer_are_algorithm_1s(view):
    random = np.random.default_rng(1)
    agent = Parl(view, HYPERPARAMETERS)
    shape = (3, 2, 2)
    history, expected = [], []
    for job in range(150):
        if job in (40, 95):  # new episodes: d starts again at zero
            agent.reset()
            history = []
        cluster, category = (int(x) for x in random.integers(0, 2, 2))
        c, w = np.eye(2)[cluster], np.eye(2)[category]
        expected.append(np.concatenate((c, w, algorithm_1(history, shape).ravel())))
        action = decide(agent, make_observation(job, 0, cluster, category))
        history.append((action, cluster, category))
    states = agent.states(np.arange(150))
    dense = np.zeros((150, 16))
    np.add.at(dense, (np.arange(150)[:, None], states.at), states.amount)
    assert np.abs(dense - expected).max() <= 2.0**-23


def test_acting_sees_the_same_state_as_the_buffer(view):
    hyperparameters = HYPERPARAMETERS.model_copy(
        update={"buffer_population": 0.0, "training_steps": 10**6}
    )
    agent = Parl(view, hyperparameters)
    for job in range(60):
        observation = make_observation(job, 0, job % 2, job // 2 % 2)
        values = agent.actor.values(observation)
        decide(agent, observation)
        state = agent.states(np.array([job]))
        replayed = agent.learner.online.forward(state)[0][0].numpy()
        if job % 4 != 3:  # where no training step came between
            np.testing.assert_allclose(values, replayed, atol=1e-6)


def test_phases_epsilon_training_and_target_updates_follow_the_schedule(view, monkeypatch):
    agent = Parl(view, HYPERPARAMETERS)
    trained, updated = [], []
    monkeypatch.setattr(agent.learner, "train", lambda *_: trained.append(agent.decisions) or 0.0)
    monkeypatch.setattr(agent.learner, "update_target", lambda: updated.append(agent.decisions))
    phases, epsilons = [], {}
    for job in range(620):
        phases.append(agent.phase)
        epsilons[agent.training_steps] = agent.epsilon
        decide(agent, make_observation(job, 0))
    assert phases == ["buffer population"] * 200 + ["training"] * 400 + ["evaluation"] * 20
    assert trained == list(range(204, 601, 4))
    assert updated == list(range(240, 601, 40))
    assert epsilons[0] == 1.0
    # Linearly from 100 % to 1 % over the first 75 % of the training steps.
    for step in range(1, 100):
        expected = max(1 - 0.99 * step / 75, 0.01)
        assert epsilons[step] == pytest.approx(expected)


def test_the_defaults_are_the_papers_table():
    hyperparameters = Hyperparameters()
    assert hyperparameters.discount_factor == 0.99
    assert hyperparameters.epsilon_decay_share == 0.75
    assert (hyperparameters.epsilon_first, hyperparameters.epsilon_last) == (1.0, 0.01)
    assert hyperparameters.buffer_capacity == 1_000_000
    assert hyperparameters.population_decisions == 100_000
    assert hyperparameters.batch_size == 50
    assert (hyperparameters.train_period, hyperparameters.target_update_period) == (4, 2000)
    assert hyperparameters.layers == (256, 128, 64)
    assert hyperparameters.learning_rate == 2.5e-4
    assert hyperparameters.training_steps == 150_000


def test_the_buffer_population_phase_is_random(view):
    agent = Parl(view, HYPERPARAMETERS)
    actions = [decide(agent, make_observation(job, 0)) for job in range(200)]
    assert np.bincount(actions, minlength=3).min() > 40


def test_small_parl_learns_on_tiny():
    """It must beat random by far; a broken update does not (the sign of the error, for one)."""
    world = make_world("tiny")
    hyperparameters = Hyperparameters(
        buffer_capacity=20_000, training_steps=1500, learning_rate=1e-3, layers=(64, 32)
    )
    agent = Parl(world.agent, hyperparameters)
    train_fully(agent, world)
    random = policies.load("random", world.agent)
    assert mean_fog_loop(world, agent.actor) < 0.5 * mean_fog_loop(world, random)


def train_in_paper():
    """Train PARL in `paper` at β = 100 for 6,000 decisions; return it and the world."""
    world = make_world("paper", sources__scale=100.0, horizon=4000.0)
    hyperparameters = Hyperparameters(
        buffer_capacity=50_000,
        training_steps=1500,
        learning_rate=1e-3,
        layers=(64, 32),
        target_update_period=500,
    )
    agent = Parl(world.agent, hyperparameters)
    train_fully(agent, world)
    return agent, world


MARGIN = 0.15
"""PARL's delay as a share of the best of random, round robin and nearest: 0.04 when written."""


def test_short_parl_beats_blind_methods_in_the_environment_of_the_paper():
    """A broken update does not reach the margin: see the next test."""
    agent, world = train_in_paper()
    blind = ("random", "round-robin", "nearest")
    rivals = [mean_fog_loop(world, policies.load(name, world.agent)) for name in blind]
    assert mean_fog_loop(world, agent.actor) < MARGIN * min(rivals)


def wrong_sign(agent, _now, after):
    return -agent.replay.columns["reward"][after]


def no_reward(agent, _now, after):
    return np.zeros(len(after), np.int32)


def another_decisions_reward(agent, _now, after):
    return np.roll(agent.replay.columns["reward"][after], 1)


@pytest.mark.parametrize("broken", [wrong_sign, no_reward, another_decisions_reward])
def test_with_a_broken_reward_it_does_not_reach_the_margin(broken, monkeypatch):
    monkeypatch.setattr(Parl, "rewards", broken)
    agent, world = train_in_paper()
    random = mean_fog_loop(world, policies.load("random", world.agent))
    assert mean_fog_loop(world, agent.actor) > MARGIN * random


def test_without_updates_it_does_not_reach_the_margin(monkeypatch):
    monkeypatch.setattr("fogveil.agent.learning.ddqn.DoubleQ.train", lambda *_: 0.0)
    agent, world = train_in_paper()
    random = mean_fog_loop(world, policies.load("random", world.agent))
    assert mean_fog_loop(world, agent.actor) > MARGIN * random
