"""Absent nodes: no policy places on one, and without absent nodes nothing changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support import make_world

import fogveil.agent.policies as policies
from fogveil.agent.availability import drawn_from, greatest, least
from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.registry import AGENTS, find_agent
from fogveil.agent.observation_vector import ObservationVector
from fogveil.agent.policy import Level, Load, Observation

TINY = Hyperparameters(
    buffer_capacity=1000, buffer_population=0.03, training_steps=5, batch_size=8, layers=(8,)
)
EXPECTED = tuple(tuple(work / (2 + node) for node in range(10)) for work in (100, 400, 1000))


@pytest.fixture(scope="module")
def view():
    return make_world("paper").agent


def shown(policy, job, available, counts, expected=EXPECTED, attempt=1, time=None):
    """Return what a policy's level permits of a decision."""
    needs, now, category = policy.needs, 15.0 * job if time is None else time, job % 3
    counts = tuple(-1 if available and n not in available else c for n, c in enumerate(counts))
    load = Load((1.0,) * 10, (1.0,) * 10, expected, (5.0,) * 10, expected[category])
    return Observation(
        time=now,
        job=job,
        cluster=job % 8,
        category=category,
        counts=counts if needs >= Level.COUNT else None,
        cloud_count=0 if needs >= Level.COUNT and policy.watches_cloud else None,
        total=sum(max(count, 0) for count in counts) if needs is Level.TOTAL else None,
        load=load if needs is Level.FULL else None,
        available=available,
        attempt=attempt,
    )


def drive(policy, availability):
    generator = np.random.default_rng(1)
    placed = []
    for job, available in enumerate(availability):
        counts = generator.integers(0, 4, size=10).tolist()
        placed.append(policy.place(shown(policy, job, available, counts)))
    return placed


CHANGING = [
    None if job < 10 else tuple(np.flatnonzero(np.arange(10) % 7 != job // 6 % 7).tolist())
    for job in range(30)
] + [(3,)] * 5


@pytest.mark.parametrize("name", [*policies.POLICIES])
def test_no_shipped_policy_places_on_an_absent_node(view, name):
    placed = drive(policies.load(name, view), CHANGING)
    assert all(
        available is None or node in available
        for node, available in zip(placed, CHANGING, strict=True)
    )


@pytest.mark.parametrize("name", [*AGENTS])
def test_no_learning_agent_explores_an_absent_node(view, name):
    agent = find_agent(name)(view, TINY)
    availability = [tuple(n for n in range(10) if n != job // 6 % 10) for job in range(55)]
    if agent.decides_ahead:
        placed = []
        for job, available in enumerate(availability):
            placed.append(agent.place(shown(agent, job, available, [1] * 10)))
            agent.learn(shown(agent, job, available, [1] * 10), placed[-1])
    else:
        placed = drive(agent, availability)
    assert agent.training_steps == TINY.training_steps
    assert len(set(placed)) > 5
    assert all(node in available for node, available in zip(placed, availability, strict=True))


@pytest.mark.parametrize("name", [*policies.POLICIES])
def test_naming_all_nodes_is_the_same_as_naming_none(view, name):
    everybody = tuple(range(10))
    one, other = (drive(policies.load(name, view), [who] * 13) for who in (None, everybody))
    assert one == other


@pytest.mark.parametrize("name", ["nearest", "fastest", "electre"])
def test_caches_follow_latencies_speeds_and_availability(view, name):
    policy = policies.load(name, view)
    first = policy.place(shown(policy, 0, None, [0] * 10))
    others = tuple(n for n in range(10) if n != first)
    assert policy.place(shown(policy, 0, others, [0] * 10)) != first
    assert policies.load(name, view).place(shown(policy, 0, None, [0] * 10)) == first
    worst = tuple(
        tuple(tuple(900.0 if n == first else 3.0 for n in range(10)) for _ in by_category)
        for by_category in view.up
    )
    policy.update(replace(view, up=worst, down=worst))
    assert policy.place(shown(policy, 0, None, [0] * 10)) != first


@pytest.mark.parametrize("name", ["fastest", "electre"])
def test_choices_by_speed_follow_a_changed_speed(view, name):
    same, equal = (((5.0,) * 10,) * 3,) * 8, ((1,) * 10,) * 8
    fair = replace(view, up=same, down=same, bandwidth=equal, hops=equal)
    policy = policies.load(name, fair)
    before = policy.place(shown(policy, 0, None, [0] * 10))
    slow = tuple(tuple(5000.0 if n == before else s for n, s in enumerate(row)) for row in EXPECTED)
    assert policy.place(shown(policy, 0, None, [0] * 10, slow)) != before


def test_the_oracle_follows_a_change_of_speed_for_jobs_on_their_way(view):
    """Two jobs on one node, the second queues behind the first: at which speed, decides."""
    fair = replace(view, up=(((50.0,) * 10,) * 3,) * 8, down=(((5.0,) * 10,) * 3,) * 8)
    expected = ((10.0, 11.0, *(900.0,) * 8),) * 3
    policy = policies.load("setr", fair)
    assert policy.place(shown(policy, 0, None, [0] * 10, expected, time=0.0)) == 0
    faster = ((2.0, 4.0, *(900.0,) * 8),) * 3
    assert policy.place(shown(policy, 1, None, [0] * 10, faster, time=1.0)) == 0
    slower = ((5.0, 11.0, *(900.0,) * 8),) * 3
    assert policy.place(shown(policy, 2, None, [0] * 10, slower, time=2.0)) == 1


def test_the_oracle_drops_a_lost_job(view):
    fair = replace(view, up=(((50.0,) * 10,) * 3,) * 8, down=(((5.0,) * 10,) * 3,) * 8)
    expected = ((10.0, 11.0, *(900.0,) * 8),) * 3
    policy = policies.load("setr", fair)
    assert policy.place(shown(policy, 0, None, [0] * 10, expected, time=0.0)) == 0
    again = shown(policy, 0, None, [0] * 10, expected, attempt=2, time=1.0)
    assert policy.place(again) == 0
    assert sum(map(len, policy._in_transit)) == 1


def test_choices_among_some(view):
    assert least([3.0, 1.0, 2.0, 2.0], (0, 2, 3)) == 2
    assert greatest(np.array([3.0, 9.0, 4.0, 4.0]), (0, 2, 3)) == 2
    assert [drawn_from(share, 10, (4, 7)) for share in (0.0, 0.49, 0.5, 0.999)] == [4, 4, 7, 7]


def test_vectors_mask_absent_nodes_and_show_no_count_for_them(view):
    vectors = ObservationVector(view, Level.COUNT)
    seen = Observation(1.0, 0, 0, 0, (4, -1, *(2,) * 8), 1, available=(0, *range(2, 10)))
    assert vectors.of(seen)[vectors.parts["counts"]].tolist() == [4, 0, *(2,) * 8]
    assert vectors.mask(seen).tolist() == [True, False, *(True,) * 8]
    assert vectors.mask(seen._replace(available=None)).all()
    far = replace(view, up=(((77.0,) * 10,) * 3,) * 8)
    vectors.update(far)
    assert (vectors.of(seen)[vectors.parts["latency"]] == 77).all()
