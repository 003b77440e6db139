"""veil-total: from the sum of all counts alone to nearly what the oracle reaches."""

from __future__ import annotations

import numpy as np
import pytest
from support import make_world

import agent.policies as policies
from agent.inference.probing import Bursts
from agent.policies.veil_total import LOOKS_PER_NODE, VeilTotal
from agent.policy import Level
from testbed.embedded import Embedded, simulate
from testbed.leakage.meter import true_service
from testbed.summary import Summary

PROBING = LOOKS_PER_NODE * 10


def play(world, decisions):
    """Let it place for a while; return the policy and where it placed."""
    policy, engine, nodes = VeilTotal(world.agent), Embedded(world, Level.TOTAL), []
    while len(nodes) < decisions and (seen := engine.next_decision()):
        assert seen.counts is None
        nodes.append(policy.place(seen))
        engine.place(nodes[-1])
    return policy, nodes


def test_it_probes_in_bursts_until_it_knows():
    policy, nodes = play(make_world("paper", disclosure="total"), PROBING + 1)
    assert nodes[:12] == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    assert set(nodes[:PROBING]) == set(range(10))
    assert policy._known


@pytest.mark.parametrize("seed", [1, 3])
def test_what_it_knows_then_is_true(seed):
    world = make_world("paper", disclosure="total", seed=seed)
    policy, _ = play(world, PROBING + 1)
    service = np.array([line._service for line in policy._lines])
    assert np.abs(service / true_service(world) - 1).mean() < 0.1


def test_it_knows_the_lines_of_nodes_it_is_told_nothing_of():
    """After the probing its own account of the nodes is what the nodes would say."""
    world = make_world("paper", disclosure="total", sources__scale=150.0)
    engine, policy = Embedded(world, Level.TOTAL), VeilTotal(world.agent)
    off = []
    for number in range(600):
        seen = engine.next_decision()
        if policy._known:
            at_nodes = [node.node.backlog(seen.time) for node in engine._fogs]
            guessed = [max(0.0, line.free(seen.time) - seen.time) for line in policy._lines]
            off.append(np.abs(np.array(at_nodes) - guessed).mean())
        engine.place(policy.place(seen))
        assert number < PROBING or policy._known
    assert np.median(off) < 3.0


def test_with_the_total_alone_it_does_better_than_jsq_with_all_counts():
    loops = {}
    for name, level in (("jsq", "count"), ("veil-total", "total")):
        world = make_world("paper", disclosure=level)
        summary = Summary(world)
        simulate(world, policies.load(name, world.agent), [summary])
        loops[name] = summary.result()["fog_loop"]
    assert loops["veil-total"] < 0.8 * loops["jsq"]


def test_what_cannot_be_explained_ends_in_a_guess_and_the_run_goes_on():
    """With service times of pure chance no constant ones explain what is seen."""
    world = make_world(
        "tiny", disclosure="total", service__distribution="exponential", horizon=6000.0
    )
    policy, nodes = play(world, 400)
    assert policy._known
    assert len(policy._held) > LOOKS_PER_NODE * 3
    assert set(nodes) == {0, 1, 2}


def test_bursts_go_where_they_are_told_to():
    bursts = Bursts(make_world("tiny").agent, most=2)
    assert [bursts.next() for _ in range(4)] == [0, 0, 1, 1]
    assert [bursts.next(lambda: 0) for _ in range(2)] == [0, 0]
    assert [bursts.next() for _ in range(2)] == [1, 1]
