"""veil-total and ti-setr: from the sum of all counts alone to nearly what the oracle reaches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import make_world

import fogveil.agent.policies as policies
from fogveil.agent.inference.total_belief import KNOWN, TotalBelief
from fogveil.agent.inference.virtual_queue import VirtualQueue
from fogveil.agent.learning.node_features import Feature
from fogveil.agent.learning.veil_total import VeilTotal
from fogveil.agent.policies.ti_setr import TotalInferredResponse
from fogveil.agent.policy import Level, Observation
from fogveil.agent.visibility import Visibility
from fogveil.provider_node.node import Node
from fogveil.testbed.engine.embedded import Embedded, simulate
from fogveil.testbed.privacy.leakage.scoring import true_service
from fogveil.testbed.records.summary import Summary

JOBS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 1)), min_size=1, max_size=20)


@given(JOBS, st.integers(1, 40))
def test_a_virtual_queue_is_the_nodes_own_where_service_times_are_known(jobs, now):
    service = [2.0, 5.0]
    node, queue = Node(lambda _job, category: service[category]), VirtualQueue(service)
    for job, (arrival, category) in enumerate(jobs):
        node.accept(job, category, float(arrival))
        queue.place(float(arrival), job, category)
    done = [(job, arrived, started, end) for job, _, arrived, started, end in node.advance(now)]
    finished = queue.advance(float(now))
    assert [tuple(job) for job in finished] == done
    assert queue.in_system + queue.in_transit + len(finished) == len(jobs)
    assert queue.waiting == node.waiting
    assert queue.in_system == node.in_system


def play(world, decisions):
    """Let ti-setr place for a while; return it and where it placed."""
    policy, engine, nodes = TotalInferredResponse(world.agent), Embedded(world, Level.TOTAL), []
    while len(nodes) < decisions and (observation := engine.next_decision()):
        assert observation.counts is None
        nodes.append(policy.place(observation))
        engine.place(nodes[-1])
    return policy, nodes


@pytest.mark.parametrize("seed", [1, 4])
def test_service_times_that_are_taken_for_known_are_true(seed):
    """With seed 4 the first explanation that is found is a wrong one."""
    world = make_world("stress", sources__scale=100.0, disclosure="total", seed=seed)
    belief = play(world, 700)[0].belief
    known = belief.deviations <= KNOWN
    assert known.mean() > 0.5
    errors = np.abs(belief.service / true_service(world) - 1)[known]
    assert np.median(errors) < 0.02
    assert errors.max() < 0.2


def test_it_knows_the_backlogs_that_nobody_discloses():
    """Its own account of the nodes becomes what level full would disclose."""
    world = make_world("stress", sources__scale=150.0)
    engine, policy = (
        Embedded(world, Level.FULL, watches_cloud=True),
        policies.load(
            "ti-setr", make_world("stress", sources__scale=150.0, disclosure="total").agent
        ),
    )
    total, errors = Visibility(Level.TOTAL), []
    for number in range(700):
        full = engine.next_decision()
        node = policy.place(total.observation(full[:4], full.counts, full.cloud_count))
        if number >= 400:
            errors.append(np.abs(np.subtract(policy.belief.backlogs, full.load.backlog)).mean())
        engine.place(node)
    assert np.median(errors) < 3.0


@pytest.mark.parametrize("name", ["ti-setr", "veil-total"])
def test_with_the_total_alone_it_is_near_the_oracle_and_far_below_jsq(name):
    loops = {}
    for policy, level in (("jsq", "count"), ("setr", "full"), (name, "total")):
        world = make_world("stress", disclosure=level, seed=11)
        summary = Summary(world)
        simulate(world, policies.load(policy, world.agent), [summary])
        loops[policy] = summary.result()["fog_loop"]
    assert loops[name] < 0.75 * loops["jsq"]
    assert loops[name] < 1.25 * loops["setr"]


def test_what_cannot_be_explained_leaves_a_guess_and_the_run_goes_on():
    """With service times of pure chance no constant ones explain what is observed."""
    world = make_world(
        "tiny", disclosure="total", service__distribution="exponential", horizon=6000.0
    )
    _, nodes = play(world, 400)
    assert len(nodes) == 400
    assert set(nodes) == {0, 1, 2}


def test_a_job_is_reported_once_although_the_estimates_change():
    """Each inference computes all queues again."""
    world = make_world("stress", sources__scale=100.0, disclosure="total", horizon=2500.0)
    belief, engine = TotalBelief(world.agent), Embedded(world, Level.TOTAL)
    reported: list[int] = []
    while (observation := engine.next_decision()) is not None:
        belief.observe(observation)
        reported += [job.job for finished in belief.finished for job in finished]
        _, job, cluster, category, *_ = observation
        responses = belief.responses(job, cluster, category)
        node = responses.index(min(responses))
        belief.placed(node, job, cluster, category)
        engine.place(node)
    assert len(reported) > 100
    assert len(set(reported)) == len(reported)


def test_the_agent_observes_the_total_and_nothing_else():
    """Its features are computed from a decision without counts, and the network waits its turn."""
    world = make_world("stress", disclosure="total")
    agent = VeilTotal(world.agent)
    observation = Observation(1.0, 0, 0, 0, total=3)
    agent.actor.observe(observation)
    assert np.isfinite(agent.actor.features).all()
    assert (agent.actor.features[:, Feature.COUNT] == 0).all(), "it believes its own account"
    np.testing.assert_array_equal(
        agent.actor.values(observation), -agent.actor.features[:, Feature.PRIOR]
    )
