"""veil: the cost of a decision, a reward that is known when it can be, and any number of nodes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import MemorySink, make_world, mean_fog_loop, train_fully

import fogveil.agent.policies as policies
from fogveil.agent.inference.node_belief import Finished
from fogveil.agent.learning.marginal_cost import MarginalDelay
from fogveil.agent.learning.node_features import FEATURES, HOPELESS, LARGEST, Feature
from fogveil.agent.learning.veil import DEFAULTS, Veil, VeilActor
from fogveil.provider_node.node import Node
from fogveil.testbed.engine.embedded import Embedded, simulate

REACH = DEFAULTS.reward_reach
JOBS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)), min_size=1, max_size=25)


def total_delay(jobs):
    node = Node(lambda job, _category: float(jobs[job][1]))
    for job, (arrival, _) in jobs.items():
        node.accept(job, 0, float(arrival))
    return sum(finished - arrived for _, _, arrived, _, finished in node.advance(np.inf))


@given(JOBS)
def test_the_cost_of_a_job_is_what_its_absence_would_save(jobs):
    jobs = dict(enumerate(jobs))
    jobs[len(jobs)] = (10_000, 1)  # a late job that waits for nobody settles all before it
    node = Node(lambda job, _category: float(jobs[job][1]))
    for job, (arrival, _) in jobs.items():
        node.accept(job, 0, float(arrival))
    served = node.advance(np.inf)
    finished = [Finished(job, arrived, started, end) for job, _, arrived, started, end in served]
    costs = dict(MarginalDelay(REACH).settle(finished))
    assert costs.keys() == jobs.keys() - {len(jobs) - 1}
    everything = total_delay(jobs)
    for job, cost in costs.items():
        without = total_delay({other: value for other, value in jobs.items() if other != job})
        assert cost - jobs[job][0] == pytest.approx(everything - without)


def test_a_long_busy_period_does_not_keep_a_job_open_for_ever():
    node = MarginalDelay(REACH)
    jobs = [Finished(k, float(k), 2.0 * k, 2.0 * k + 2) for k in range(3 * REACH)]
    settled = [job for job, _ in node.settle(jobs)]
    assert settled == list(range(2 * REACH))


SMALL = DEFAULTS.model_copy(
    update={
        "buffer_capacity": 8000,
        "buffer_population": 0.1,
        "training_steps": 600,
        "layers": (32, 32),
    }
)


def play(agent, world):
    sink = MemorySink()
    agent.reset()
    simulate(world, agent, [sink])
    return sink.table


@pytest.mark.parametrize("kind", ["in_system", "waiting"])
def test_rewards_are_the_true_costs_and_come_late(kind):
    """Only counts are observed, yet each reward is near the delay that the decision caused."""
    world = make_world("stress", sources__scale=100.0, count=kind, horizon=6000.0)
    hyperparameters = SMALL.model_copy(update={"training_steps": 10**6, "population_epsilon": 0.0})
    agent = Veil(world.agent, hyperparameters.model_copy(update={"buffer_population": 0.99}))
    lags = []
    engine = Embedded(world, agent.needs, sinks=[sink := MemorySink()])
    while (observation := engine.next_decision()) is not None:
        before = agent.pending
        engine.place(agent.place(observation))
        settled = before.keys() - agent.pending.keys()
        lags += [agent.decisions - before[job] for job in settled]
    engine.finish()
    jobs = sink.table
    truth = {}
    for number in range(10):
        here = jobs["node"] == number
        columns = [jobs[name][here] for name in ("job", "arrived", "started", "finished")]
        rows = sorted(zip(*columns, strict=True), key=lambda row: row[3])
        truth |= dict(MarginalDelay(REACH).settle(Finished(*row) for row in rows))
    unit = agent.actor.unit
    errors = []
    for place, job in enumerate(jobs["job"]):
        if agent.replay.usable[place] and job in truth and place > 400:
            cluster, category, node = (int(jobs[c][place]) for c in ("cluster", "category", "node"))
            down = world.agent.down[cluster][category][node]
            cost = (truth[job] + down - jobs["emitted"][place]) / unit
            errors.append(-agent.replay.columns["reward"][place] - cost)
    assert len(errors) > 500
    assert np.abs(np.median(errors)) < 0.03
    assert np.mean(np.abs(errors)) < 0.15
    assert min(lags) > 1
    assert len(set(lags)) > 10, "the lag varies"


def test_decisions_without_a_reward_are_never_sampled():
    world = make_world(horizon=1500.0)
    agent = Veil(world.agent, SMALL)
    play(agent, world)
    pending = set(agent.pending.values())
    assert pending
    assert not agent.replay.usable[list(pending)].any()
    now, _ = agent.replay.sample(5000, np.random.default_rng(1))
    assert not pending & set(now.tolist())


def test_untrained_it_acts_on_its_prior():
    world = make_world()
    agent = Veil(world.agent, SMALL)
    engine = Embedded(world, agent.needs)
    while (observation := engine.next_decision()) is not None:
        agent.actor.observe(observation)
        values = agent.actor.values(observation)
        np.testing.assert_array_equal(values, -agent.actor.features[:, Feature.PRIOR])
        action = int(values.argmax())
        agent.actor.placed(observation, action)
        engine.place(action)


def test_features_stand_in_the_columns_that_their_names_say():
    world = make_world("stress", sources__scale=60.0, horizon=2000.0)
    policy = policies.load("veil", world.agent)
    engine = Embedded(world, policy.needs)
    columns = []
    while (observation := engine.next_decision()) is not None:
        engine.place(policy.place(observation))
        features, unit = policy.features, policy.unit
        columns.append(features)
        up = np.array(world.agent.up[observation.cluster][observation.category])
        expected = np.clip(up / unit, 0, LARGEST).astype(np.float32)
        np.testing.assert_array_equal(features[:, Feature.UP], expected)
        counts = np.minimum(np.array(observation.counts) / 8, LARGEST).astype(np.float32)
        np.testing.assert_array_equal(features[:, Feature.COUNT], counts)
        prior = features[:, Feature.PRIOR]
        if prior.max() < LARGEST:
            gap = features[:, Feature.GAP]
            np.testing.assert_allclose(gap, prior - prior.min(), atol=1e-6)
    everything = np.stack(columns)
    assert everything.shape[2] == FEATURES == len(Feature)
    assert everything[..., Feature.PRIOR].max() <= HOPELESS
    assert np.delete(everything, Feature.PRIOR, axis=2).max() <= LARGEST


def test_training_makes_it_know_costs_better():
    world = make_world("stress", sources__scale=100.0, horizon=4000.0)
    agent = Veil(world.agent, SMALL)
    train_fully(agent, world)
    usable = np.flatnonzero(agent.replay.usable[: agent.replay.added])
    states, actions = agent.states(usable), agent.replay.columns["action"][usable]
    rewards = agent.rewards(usable, usable)
    values = agent.learner.values(agent.learner.online, states)[0].numpy()
    rows = np.arange(len(usable))
    untrained = np.square(-states[rows, actions, Feature.PRIOR] - rewards).mean()
    assert np.square(values[rows, actions] - rewards).mean() < 0.8 * untrained


@pytest.mark.parametrize("kind", ["in_system", "waiting"])
def test_the_shipped_veil_is_near_the_oracle_and_far_below_jsq(kind):
    world = make_world("stress", sources__scale=100.0, count=kind)
    delays = {
        name: mean_fog_loop(world, policies.load(name, world.agent), (1, 2, 3))
        for name in ("veil", "setr", "jsq")
    }
    assert delays["veil"] < 1.02 * delays["setr"]
    assert delays["veil"] < 0.65 * delays["jsq"]


def test_it_acts_on_any_number_of_nodes():
    layers = policies.load("veil", make_world("stress").agent).layers
    assert layers[0][0].shape[0] == FEATURES
    for scenario, options in (("tiny", {}), ("stress", {"roles__fog": 25})):
        world = make_world(scenario, **options)
        table = play(VeilActor(world.agent, layers), world)
        assert len(set(table["node"])) > 2
