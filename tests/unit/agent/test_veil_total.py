"""veil-total: from the sum of all counts alone to nearly what the oracle reaches."""

from __future__ import annotations

import numpy as np
import pytest
from support import make_world

import fogveil.agent.policies as policies
from fogveil.agent.inference.probes import Bursts
from fogveil.agent.policies.veil_total import PROBES_PER_NODE, VeilTotal
from fogveil.agent.policy import Level
from fogveil.agent.visibility import Visibility
from fogveil.testbed.engine.embedded import Embedded, simulate
from fogveil.testbed.privacy.leakage.scoring import true_service
from fogveil.testbed.records.summary import Summary

PROBING = PROBES_PER_NODE * 10


def play(world, decisions):
    """Let it place for a while; return the policy, where it placed, and how many were probes."""
    policy, engine, nodes, probes = VeilTotal(world.agent), Embedded(world, Level.TOTAL), [], 0
    while len(nodes) < decisions and (observation := engine.next_decision()):
        assert observation.counts is None
        nodes.append(policy.place(observation))
        engine.place(nodes[-1])
        probes += not policy.speeds_known
    return policy, nodes, probes


def test_it_probes_in_bursts_until_the_speeds_are_known():
    policy, nodes, probes = play(make_world("stress", disclosure="total"), PROBING + 1)
    assert nodes[:12] == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    assert set(nodes[:PROBING]) == set(range(10))
    assert policy.speeds_known
    assert probes == PROBING


@pytest.mark.parametrize("seed", [1, 3])
def test_the_inferred_service_times_are_true(seed):
    world = make_world("stress", disclosure="total", seed=seed)
    policy, _, _ = play(world, PROBING + 1)
    assert np.abs(np.array(policy.service) / true_service(world) - 1).mean() < 0.1


def test_it_knows_the_backlogs_that_nobody_discloses():
    """After the probing its own account of the nodes is what level full would disclose."""
    world = make_world("stress", sources__scale=150.0)
    engine, policy = Embedded(world, Level.FULL, watches_cloud=True), VeilTotal(world.agent)
    total, errors = Visibility(Level.TOTAL), []
    for number in range(600):
        full = engine.next_decision()
        if policy.speeds_known:
            errors.append(np.abs(np.subtract(policy.backlogs(full.time), full.load.backlog)).mean())
        engine.place(policy.place(total.observation(full[:4], full.counts, full.cloud_count)))
        assert number < PROBING or policy.speeds_known
    assert len(errors) == 600 - PROBING - 1
    assert np.median(errors) < 3.0


def test_with_the_total_alone_it_does_better_than_jsq_with_all_counts():
    loops = {}
    for name, level in (("jsq", "count"), ("veil-total", "total")):
        world = make_world("stress", disclosure=level)
        summary = Summary(world)
        simulate(world, policies.load(name, world.agent), [summary])
        loops[name] = summary.result()["fog_loop"]
    assert loops["veil-total"] < 0.8 * loops["jsq"]


def test_what_cannot_be_explained_ends_in_a_guess_and_the_run_goes_on():
    """With service times of pure chance no constant ones explain what is observation."""
    world = make_world(
        "tiny", disclosure="total", service__distribution="exponential", horizon=6000.0
    )
    policy, nodes, probes = play(world, 400)
    assert policy.speeds_known
    assert PROBES_PER_NODE * 3 < probes < 400
    assert set(nodes) == {0, 1, 2}


def test_bursts_go_where_they_are_told_to():
    bursts = Bursts(make_world("tiny").agent, most=2)
    assert [bursts.next() for _ in range(4)] == [0, 0, 1, 1]
    assert [bursts.next(lambda: 0) for _ in range(2)] == [0, 0]
    assert [bursts.next() for _ in range(2)] == [1, 1]
