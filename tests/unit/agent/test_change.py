"""Inference in a world that changes: what is noticed, what is learned anew, and what is kept."""

from __future__ import annotations

import numpy as np
import pytest
from support import MemorySink, make_world

import fogveil.agent.policies as policies
from fogveil.agent.inference.fog_belief import FogBelief
from fogveil.agent.inference.fog_bounds import Model
from fogveil.agent.inference.instants import Instants
from fogveil.agent.inference.node_belief import NodeBelief
from fogveil.agent.inference.service_bounds import ServiceBounds
from fogveil.agent.inference.soft_means import SoftMeans
from fogveil.agent.inference.speed_test import SpeedTest
from fogveil.agent.inference.total_belief import TotalBelief
from fogveil.agent.inference.total_change import find_change
from fogveil.agent.inference.transcript import Transcript
from fogveil.agent.inference.virtual_queue import VirtualQueue
from fogveil.agent.policies.ci_setr import CountInferredResponse
from fogveil.agent.policy import Observation
from fogveil.core.disclosure import CountKind
from fogveil.testbed.engine.embedded import simulate

AT = 3000.0
NODE = 5
"""A node of middle speed in `stress`."""


def changed_world(*events, count="in_system", horizon=6000.0, **more):
    return make_world("stress", count=count, horizon=horizon, events=list(events), **more)


def run(world, kind=CountInferredResponse):
    policy, sink = kind(world.agent), MemorySink()
    simulate(world, policy, [sink])
    return policy, sink.table


def speed(factor):
    return {"at": AT, "kind": "speed", "node": f"fog-{NODE + 1}", "factor": factor}


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_a_changed_speed_is_noticed_and_learned_anew_at_that_node_alone(factor):
    world = changed_world(speed(factor))
    before = np.array([[work / fog.ipt for work in fog.instructions] for fog in world.fogs])
    policy, _ = run(world)
    belief = policy.belief
    assert {node for _, node in belief.fired} == {NODE}
    assert AT < belief.fired[0][0] < AT + 1500
    assert belief.bounds.model is Model.PRODUCT
    learned = np.array(belief.service) / before
    assert learned[NODE] == pytest.approx([1 / factor] * 3, rel=0.2)
    others = np.delete(np.arange(10), [NODE, *np.flatnonzero(learned[:, 0] > 1.5)])
    assert len(others) > 5
    assert learned[others] == pytest.approx(1.0, rel=0.2)


def test_bounds_learned_anew_hold_the_new_truth():
    world = changed_world(speed(0.5))
    policy, _ = run(world)
    bounds = policy.belief.bounds
    truth = np.array([[work / fog.ipt for work in fog.instructions] for fog in world.fogs])
    truth[NODE] *= 2
    assert (np.array(bounds.low) <= truth * 1.03).all()
    assert (np.array(bounds.high) >= truth * 0.97).all()


def test_a_changed_application_is_one_change_and_not_one_of_every_node():
    world = changed_world({"at": AT, "kind": "demand", "application": "moderate", "factor": 2.0})
    policy, _ = run(world)
    times = [time for time, _ in policy.belief.fired]
    assert 2 <= len(times) <= 4
    assert AT < times[0] < AT + 300
    moderate = world.categories.index("moderate")
    truth = [2 * fog.instructions[moderate] / fog.ipt for fog in world.fogs]
    fast = np.argsort(truth)[:5]
    learned = np.array(policy.belief.service)[:, moderate]
    assert learned[fast] == pytest.approx(np.array(truth)[fast], rel=0.2)


@pytest.mark.parametrize("service", ["deterministic", "exponential"])
@pytest.mark.parametrize("count", ["waiting", "in_system"])
def test_nothing_is_noticed_where_nothing_changes(service, count):
    world = make_world("stress", count=count, horizon=8000.0, seed=7, service__distribution=service)
    policy, _ = run(world)
    assert policy.belief.fired == []


def test_a_node_that_changes_in_random_service_is_noticed():
    event = {**speed(0.2), "node": "fog-9"}
    world = changed_world(event, horizon=9000.0, service__distribution="exponential")
    policy, _ = run(world)
    assert {node for _, node in policy.belief.fired} == {8}
    assert policy.belief.bounds.model is Model.NONE


@pytest.mark.parametrize("jobs", ["recovered", "lost"])
@pytest.mark.parametrize("count", ["waiting", "in_system"])
def test_a_crash_is_no_change_of_speed(jobs, count):
    crash = {"at": AT, "kind": "crash", "node": "fog-9", "back": AT + 400.0, "jobs": jobs}
    notice = {"notice": 70.0} if jobs == "lost" else {}
    world = changed_world({**crash, **notice}, count=count)
    policy, jobs_served = run(world)
    assert policy.belief.fired == []
    assert policy.belief.bounds.model is Model.PRODUCT
    late = (jobs_served["node"] == 8) & (jobs_served["emitted"] > AT + 400)
    assert late.sum() > 10
    kept = [job.job for node in policy.belief.nodes for job in node._jobs]
    assert len(kept) == len(set(kept)) < 40


def test_a_node_that_joins_late_is_tried():
    world = changed_world({"at": AT, "kind": "join", "node": "fog-10"})
    policy, jobs = run(world)
    assert jobs["emitted"][jobs["node"] == 9].min() >= AT
    assert (jobs["node"] == 9).sum() > 50
    assert policy.belief.fired == []


class ToldNode(NodeBelief):
    """A node that is told every instant."""

    def __init__(self, kind=CountKind.WAITING):
        super().__init__(0, kind, SoftMeans(1, 1, 10.0), Instants())

    def at(self, now, count=None):
        self._instants.move(now)
        if count is None:
            self.miss()
        else:
            self.observe(count)


def test_what_a_node_did_unseen_teaches_nothing():
    node = ToldNode()
    means = node._means
    node.at(0.0, 0)
    for job in range(4):
        node.place(1.0 + job, job, 0)
    node.at(5.0, 3)
    before = means.row(0)
    node.at(20.0)
    node.at(90.0)
    node.at(100.0, 2)
    assert means.row(0) == before
    assert node.finished == []
    # One is in service from its beginning, since the node is back; two wait.
    free = node.free_for(100.0, 99, [10.0])[0]
    assert 95.0 + 3 * 10 - 6 < free < 95.0 + 3 * 10 + 6


def test_a_lost_job_leaves_the_belief():
    node = ToldNode(CountKind.IN_SYSTEM)
    node.at(0.0, 0)
    for job in range(3):
        node.place(1.0 + job, job, 0)
    node.at(2.5, 2)
    for job in (0, 2, 77):
        node.forget(job)
    assert node.in_transit == 0
    node.at(4.0, 1)
    assert [job.job for job in node._jobs] == [1]


def test_bounds_of_one_node_are_forgotten_and_others_stay():
    bounds = ServiceBounds(nodes=2, categories=2, product=True)
    for node, category, time in [(0, 0, 2.0), (0, 1, 6.0), (1, 0, 5.0)]:
        bounds.tighten(node, category, time, time)
    bounds.forget(0)
    assert bounds.high[0] == [np.inf, np.inf]
    assert bounds.high[1] == pytest.approx([5.0, 15.0])
    bounds.tighten(0, 0, 1.0, 1.0)
    assert bounds.high[0] == pytest.approx([1.0, 3.0])
    bounds.forget_works()
    bounds.tighten(1, 1, 30.0, 30.0)
    assert bounds.low[0][1] == pytest.approx(6.0)
    assert bounds.high[0][0] == np.inf


@pytest.mark.parametrize("variance", [0.02, 0.25, 1.0])
def test_the_speed_test_finds_a_change_and_no_other(variance):
    generator = np.random.default_rng(9)

    def stream(mean, jobs):
        times = mean * generator.gamma(1 / variance, variance, jobs)
        brackets = [(max(time - 0.1, 0.0), time + 0.2) for time in times]
        test = SpeedTest()
        for number, (low, high) in enumerate(brackets):
            if factor := test.add(variance, 0.005, low, high):
                return number, factor
        return None

    assert [stream(1.0, 3000) for _ in range(5)] == [None] * 5
    for mean in (2.0, 0.5):
        number, factor = stream(mean, 300)
        assert number < 150
        assert factor == mean
    assert stream(1.25, 60) is None


def test_a_job_that_was_lost_costs_no_reward():
    from fogveil.agent.learning.marginal_cost import MarginalDelay

    node = MarginalDelay(reach=40)
    from fogveil.agent.inference.node_belief import Finished

    assert list(node.settle([Finished(7, 0, 0, 4), Finished(8, 1, 4, 8)])) == []
    node.forget(7)
    assert [job for job, _ in node.settle([Finished(9, 20, 20, 24)])] == [8]


def test_a_crashed_queue_serves_all_it_held_when_it_is_back():
    queue = VirtualQueue([4.0])
    for job in range(3):
        queue.place(float(job), job, 0)
    queue.advance(2.0)
    queue.hold()
    queue.place(50.0, 3, 0)
    assert queue.advance(60.0) == []
    assert (queue.waiting, queue.in_system) == (0, 0)
    queue.release(100.0)
    assert [job.finished for job in queue.advance(200.0)] == [104.0, 108.0, 112.0, 116.0]


def served(service, changes, waiting, seed=2):
    """Return a transcript of totals of three nodes, of which one changes its service at 600."""
    view = make_world("tiny", count="waiting" if waiting else "in_system").agent
    generator = np.random.default_rng(seed)
    times = np.cumsum(generator.exponential(3.0, 400))
    jobs = [
        (t, j, int(generator.integers(3)), int(generator.integers(2))) for j, t in enumerate(times)
    ]
    arrivals = [t + view.up[0][category][node] for t, _, node, category in jobs]
    left = []
    for which in range(3):
        free = 0.0
        for at, (_, _, node, category) in sorted(zip(arrivals, jobs, strict=True)):
            if node == which:
                start = max(free, at)
                factor = changes(node, category) if start > 600 else 1.0
                free = start + service[node][category] * factor
                left.append((at, start if waiting else free))
    decisions = []
    for t, j, node, category in jobs:
        total = sum(at <= t < gone for at, gone in left)
        decisions.append((Observation(float(t), j, 0, category, total=total), node))
    return Transcript(view, tuple(decisions), tuple(arrivals)), times


@pytest.mark.parametrize("waiting", [True, False])
@pytest.mark.parametrize(
    ("node", "category", "factor"), [(1, None, 2.0), (2, None, 0.5), (None, 1, 2.0)]
)
def test_a_change_behind_the_totals_is_found(waiting, node, category, factor):
    service = np.array([[5.0, 9.0], [4.0, 9.0], [6.0, 11.0]])

    def changes(which, kind):
        return factor if which == node or kind == category else 1.0

    transcript, _ = served(service, changes, waiting)
    steady, _ = served(service, lambda *_: 1.0, waiting)
    residuals = (transcript.totals - steady.totals).astype(float)
    change = find_change(transcript, service, residuals, 600.0, waiting=waiting)
    assert (change.node, change.category) == (node, category)
    assert change.factor == pytest.approx(factor, rel=0.2)
    assert find_change(steady, service, residuals * 0, 600.0, waiting=waiting) is None


def test_a_crash_is_told_from_a_node_that_drains():
    view = make_world("tiny", count="in_system").agent
    for total, held in ((0, {1}), (3, set())):
        belief = TotalBelief(view)
        belief.observe(Observation(0.0, 0, 0, 0, total=0))
        for job in range(3):
            belief.placed(1, job, 0, 0)
        now = view.up[0][0][1] + 0.01
        belief.observe(Observation(now, 3, 0, 0, total=total, available=(0, 2)))
        assert belief._held == held
        belief.observe(Observation(now + 1, 4, 0, 0, total=3))
        assert belief._held == set()
        assert sum(belief.counts) >= 1


def test_beliefs_go_on_with_other_latencies():
    first, second = make_world("tiny").agent, make_world("tiny").agent
    far = tuple(
        tuple(tuple(latency + 100.0 for latency in row) for row in cluster) for cluster in second.up
    )
    from dataclasses import replace

    belief = FogBelief(first)
    belief.observe(Observation(0.0, 0, 0, 0, (0, 0, 0)))
    near = belief.responses(0, 0, 0)
    belief.update(replace(second, up=far))
    assert np.array(belief.responses(0, 0, 0)) - near == pytest.approx(100.0)
    belief.placed(0, 0, 0, 0)
    belief.observe(Observation(99.0, 1, 0, 0, (0, 0, 0)))
    assert belief.in_transit[0] == 1


def test_the_shipped_agent_notices_too():
    world = changed_world(speed(0.5), disclosure="count", horizon=9000.0)
    policy = policies.load("veil", world.agent)
    simulate(world, policy)
    assert {node for _, node in policy._nodes.belief.fired} == {NODE}
