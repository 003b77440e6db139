"""The traditional policies: each does what its name says."""

from __future__ import annotations

import numpy as np
import pytest
from support import MemorySink, make_run, make_world

import fogveil.agent.policies as policies
from fogveil.agent.policy import Level, Load, Observation, Policy
from fogveil.core.errors import InputError
from fogveil.testbed.engine.embedded import Embedded, simulate


@pytest.fixture(scope="module")
def view():
    return make_world("stress").agent


def make_observation(job=0, counts=(0,) * 10, backlog=None, expected=None, service=None, **more):
    expected = expected or ((50.0,) * 10,) * 3
    load = Load((1.0,) * 10, (1.0,) * 10, expected, backlog or (0.0,) * 10, service or expected[0])
    return Observation(10.0, job, more.get("cluster", 0), 0, tuple(counts), None, None, load)


def test_round_robin_takes_turns(view):
    policy = policies.load("round-robin", view)
    assert [policy.place(make_observation()) for _ in range(12)] == [*range(10), 0, 1]


def test_random_is_uniform_and_repeatable(view):
    one, other = (policies.load("random", view) for _ in range(2))
    placed = [one.place(make_observation(job)) for job in range(5000)]
    assert placed == [other.place(make_observation(job)) for job in range(5000)]
    assert np.bincount(placed, minlength=10).min() > 400


def test_nearest_is_the_node_the_cluster_hangs_on():
    world = make_world("stress")
    policy = policies.load("nearest", world.agent)
    topology = world.topology
    for number, cluster in enumerate(topology.clusters):
        host = next(iter(topology.graph[cluster]))
        assert topology.fogs[policy.place(make_observation(cluster=number))] == host


def test_fastest_ignores_queues_and_weighs_the_way(view):
    policy = policies.load("fastest", view)
    delays = [up + 50 + down for up, down in zip(view.up[0][0], view.down[0][0], strict=True)]
    busy = [100] * 10
    assert policy.place(make_observation(counts=busy)) == int(np.argmin(delays))


def test_jsq_joins_a_shortest_queue_and_breaks_ties_evenly(view):
    policy = policies.load("jsq", view)
    counts = [3, 1, 2, 1, 5, 1, 9, 9, 9, 9]
    placed = [policy.place(make_observation(job, counts)) for job in range(3000)]
    assert set(placed) == {1, 3, 5}
    assert np.bincount(placed)[[1, 3, 5]].min() > 800
    assert policy.place(make_observation(1, [4, 4, 4, 0, 4, 4, 4, 4, 4, 4])) == 3


def test_p2c_takes_the_shorter_of_two(view):
    policy = policies.load("p2c", view)
    counts = list(range(10))
    placed = [policy.place(make_observation(job, counts)) for job in range(9000)]
    # Node k is the shorter of two different ones with chance (9 - k) / 45.
    share = np.bincount(placed, minlength=10) / 9000
    assert share == pytest.approx([(9 - k) / 45 for k in range(10)], abs=0.02)


def test_lwl_knows_the_work_that_arrived(view):
    policy = policies.load("lwl", view)
    backlog = [500.0] * 10
    backlog[6] = 0.0
    assert policy.place(make_observation(backlog=tuple(backlog))) == 6


def test_sed_weighs_counts_by_speed(view):
    policy = policies.load("sed", view)
    slow_but_empty = tuple([400.0] + [100.0] * 9)
    expected = (slow_but_empty,) * 3
    counts = [0] + [9] * 8 + [1]
    assert policy.place(make_observation(counts=counts, expected=expected)) == 9


def test_setr_predicts_the_delay_it_causes():
    """The oracle's claim: with FIFO and one server its prediction is what happens."""
    world = make_world("stress", sources__scale=100.0, service__distribution="exponential")
    policy = policies.load("setr", world.agent)
    sink = MemorySink()
    engine = Embedded(world, policy.needs, sinks=[sink])
    predicted = []
    while (now := engine.next_decision()) is not None:
        node = policy.place(now)
        arrival = now.time + world.agent.up[now.cluster][now.category][node]
        free = now.time + now.load.backlog[node]
        for other_arrival, job, _, service in policy._in_transit[node]:
            if (other_arrival, job) == (arrival, now.job):
                break
            free = max(other_arrival, free) + service
        finish = max(arrival, free) + now.load.service[node]
        predicted.append(finish)
        engine.place(node)
    engine.finish()
    finished = sink.table["finished"]
    # It is late only where a job placed later, with a shorter way, overtook one of those ahead.
    on_time = np.abs(finished - predicted) < 1e-6
    assert on_time.mean() > 0.7
    assert (finished - np.array(predicted) > -1e-6).all()


@pytest.mark.parametrize(("better", "worse"), [("setr", "lwl"), ("lwl", "jsq"), ("jsq", "random")])
def test_more_knowledge_gives_less_delay(better, worse):
    means = [
        np.mean([_fog_loop(make_run(name, "stress", sources__scale=100.0, seed=s)) for s in (1, 2)])
        for name in (better, worse)
    ]
    assert means[0] < means[1]


def _fog_loop(run):
    return (run.jobs["returned"] - run.jobs["emitted"]).mean()


def test_an_unknown_policy_is_named_with_those_that_exist(view):
    with pytest.raises(InputError, match="no policy is called 'jsqq'.*round-robin"):
        policies.load("jsqq", view)


def test_loading_a_policy_file(tmp_path, view):
    def load(text, name="Mine"):
        (tmp_path / "ours.py").write_text(text)
        return policies.load(f"{tmp_path}/ours.py:{name}", view)

    head = "from fogveil.agent.policy import Policy\nclass Mine(Policy):\n"
    assert (
        load(f"{head}    def place(self, seen):\n        return 7\n").place(make_observation()) == 7
    )
    with pytest.raises(InputError, match="has no class Other"):
        load(f"{head}    def place(self, seen):\n        return 7\n", "Other")
    with pytest.raises(InputError, match="does not define the method place"):
        load(f"{head}    pass\n")
    with pytest.raises(InputError, match="cannot be loaded: SyntaxError"):
        load("class")
    with pytest.raises(InputError, match="cannot start: ZeroDivisionError"):
        load(
            f"{head}    def reset(self):\n        1 / 0\n    def place(self, seen):\n        pass\n"
        )
    with pytest.raises(InputError, match="does not exist"):
        policies.load(f"{tmp_path}/none.py:Mine", view)


def test_policy_files_that_import_each_other_are_refused(tmp_path, view, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "one_side.py").write_text("from other_side import Mine\n")
    (tmp_path / "other_side.py").write_text("from one_side import Mine\n")
    with pytest.raises(InputError, match="cannot be loaded: ImportError: .*circular"):
        policies.load(f"{tmp_path}/one_side.py:Mine", view)


class Ahead(Policy):
    """Notes what it is shown before and after it decides."""

    decides_ahead = True

    def reset(self):
        self.before, self.after = [], []

    def place(self, observation):
        self.before.append(observation)
        return observation.job % 3

    def learn(self, observation, node):
        assert node == observation.job % 3
        self.after.append(observation)


class AtOnce(Ahead):
    """The same decisions, with open eyes."""

    decides_ahead = False

    def learn(self, observation, node):
        raise AssertionError


@pytest.mark.parametrize("level", list(Level))
def test_a_policy_that_decides_ahead_sees_counts_afterwards_only(level):
    world = make_world()
    ahead, at_once = (type("Mine", (k,), {"needs": level})(world.agent) for k in (Ahead, AtOnce))
    hashes = {simulate(world, policy) for policy in (ahead, at_once)}
    assert len(hashes) == 1
    assert ahead.after == at_once.before
    assert ahead.before == [Observation(*observation[:4]) for observation in ahead.after]
    assert len(ahead.before) > 50


@pytest.mark.parametrize(
    ("place", "sentence"),
    [("0", "failed at time .*ZeroDivisionError"), ("9", "placed a workload on node 9")],
)
def test_what_goes_wrong_afterwards_is_named_too(tmp_path, place, sentence):
    text = (
        "from fogveil.agent.policy import Policy\nclass Mine(Policy):\n    decides_ahead = True\n"
        f"    def place(self, seen): return {place}\n"
        "    def learn(self, seen, node): 1 / 0\n"
    )
    (tmp_path / "ours.py").write_text(text)
    with pytest.raises(InputError, match=f"policy Mine {sentence}"):
        make_run(f"{tmp_path}/ours.py:Mine")


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("10", "placed a workload on node 10: expected 0 to 2"),
        ("-1", "placed a workload on node -1"),
        ("None", "failed at time .*TypeError"),
        ("0.5", "failed at time .*TypeError"),
    ],
)
def test_a_wrong_answer_is_named(tmp_path, answer, sentence):
    text = (
        "from fogveil.agent.policy import Policy\n"
        "class Mine(Policy):\n    def place(self, seen): return "
    )
    (tmp_path / "ours.py").write_text(text + answer)
    with pytest.raises(InputError, match=f"policy Mine {sentence}"):
        make_run(f"{tmp_path}/ours.py:Mine")
