"""Deciding ahead: windows of decisions, learned of afterwards, give the same weights and buffer."""

from __future__ import annotations

import numpy as np
import pytest
from support import decide, make_world

from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.parl import Parl
from fogveil.agent.policy import Observation
from fogveil.testbed.engine.embedded import simulate

SCHEDULES = {
    "the paper's": {},
    "no population": {"buffer_population": 0.0},
    "odd": {"train_period": 3, "target_update_period": 20, "buffer_population": 0.0505},
    "every decision": {"train_period": 1, "training_steps": 200},
    "over soon": {"training_steps": 5},
}
EPISODE = 83


def make_agent(world, **changes):
    small = {"buffer_capacity": 1000, "training_steps": 100, "target_update_period": 40}
    return Parl(
        world.agent, Hyperparameters(**small | {"layers": (16,), "batch_size": 8} | changes)
    )


@pytest.fixture(scope="module")
def world():
    return make_world(horizon=1500.0)


@pytest.fixture(scope="module")
def workload():
    """Decisions as they might come, with totals that mean nothing."""
    random = np.random.default_rng(1)
    rows = random.integers(0, (2, 2, 30), size=(500, 3)).tolist()
    return [Observation(float(job), job, c, w, total=q) for job, (c, w, q) in enumerate(rows)]


def in_windows(agent, decisions, width):
    """Take decisions ahead, as many at a time as `width` says, and learn of them afterwards."""
    nodes = []
    while decisions:
        now, decisions = decisions[: width(agent)], decisions[width(agent) :]
        chosen = [agent.place(observation.without_disclosure()) for observation in now]
        for observation, node in zip(now, chosen, strict=True):
            agent.learn(observation, node)
        nodes += chosen
    return nodes


def as_far_as_it_may(agent):
    return agent.ahead_limits()[0] or 50


def some_way(agent):
    """Windows may end anywhere before the limit."""
    return 1 + agent.decisions % as_far_as_it_may(agent)


def too_far(_agent):
    return 7


def assert_alike(one, other):
    states = one.state(), other.state()
    assert states[0].keys() == states[1].keys()
    for name, array in states[0].items():
        np.testing.assert_array_equal(states[1][name], array, err_msg=name)


def play(world, workload, schedule, drive):
    agent = make_agent(world, **SCHEDULES[schedule])
    nodes = []
    for first in range(0, len(workload), EPISODE):
        agent.reset()
        nodes += drive(agent, workload[first : first + EPISODE])
    return agent, nodes


def one_by_one(agent, decisions):
    return [decide(agent, observation) for observation in decisions]


@pytest.mark.parametrize("width", [as_far_as_it_may, some_way])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_windows_give_the_weights_of_learning_one_by_one(world, workload, schedule, width):
    one, nodes = play(world, workload, schedule, one_by_one)
    other, same = play(world, workload, schedule, lambda a, d: in_windows(a, d, width))
    assert one.training_steps > 0
    assert same == nodes
    assert_alike(one, other)


def test_windows_across_a_training_step_do_not(world, workload):
    """So the test above can fail."""
    one, _ = play(world, workload, "the paper's", one_by_one)
    other, _ = play(world, workload, "the paper's", lambda a, d: in_windows(a, d, too_far))
    assert (one.state()["learner_online"] != other.state()["learner_online"]).any()


class Recorded(Parl):
    """Keeps what it was shown and what it chose."""

    def learn(self, observation, node):
        self.record.append((observation, node))
        super().learn(observation, node)


def test_windows_repeat_a_training_in_the_engine(world):
    lockstep = Recorded(world.agent, make_agent(world).hyperparameters)
    ahead = make_agent(world)
    for number in range(1, 4):
        lockstep.record = []
        lockstep.reset()
        simulate(world.drawn(number), lockstep)
        observation, nodes = zip(*lockstep.record, strict=True)
        ahead.reset()
        assert in_windows(ahead, observation, as_far_as_it_may) == list(nodes)
    assert lockstep.training_steps > 20
    assert_alike(lockstep, ahead)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_windows_end_where_the_weights_change(world, workload, schedule):
    agent = make_agent(world, **SCHEDULES[schedule])
    promised, stepped = set(), []
    period = agent.hyperparameters.train_period
    for observation in workload:
        first, then = agent.ahead_limits()
        if agent.phase == "evaluation":
            assert (first, then) == (0, 0)
            break
        assert then == period
        promised.add(agent.decisions + first)
        node = agent.place(observation.without_disclosure())
        assert agent.ahead_limits() == (first - 1, then), "a window goes on until it is learned of"
        before = agent.training_steps
        agent.learn(observation, node)
        if agent.training_steps > before:
            stepped.append(agent.decisions)
    assert promised - {max(promised)} <= set(stepped) <= promised
    assert stepped[0] == agent.hyperparameters.population_decisions + period
    assert np.diff(stepped).tolist() == [period] * (len(stepped) - 1)


def test_a_checkpoint_in_the_midst_of_a_window_is_refused(world, workload):
    agent = make_agent(world)
    agent.place(workload[0].without_disclosure())
    with pytest.raises(AssertionError, match="all rewards are received"):
        agent.state()
