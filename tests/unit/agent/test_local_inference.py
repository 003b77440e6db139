"""Inference that computes what has moved alone, held against one that computes everything."""

import tracemalloc
from dataclasses import replace
from math import inf, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import make_world

import fogveil.agent.inference.soft_means as soft_means
from fogveil.agent.inference.fog_belief import FogBelief
from fogveil.agent.inference.service_bounds import WORTHWHILE, ServiceBounds
from fogveil.agent.inference.soft_means import MISFITS, SCALE, SPEEDS, WORKS, Overdue, SoftMeans
from fogveil.agent.policies.ci_setr import CountInferredResponse
from fogveil.agent.policy import Observation
from fogveil.testbed.engine.embedded import simulate

NODES, CATEGORIES = 4, 3


class AllNodesBelief(FogBelief):
    """A belief whose nodes are all told, and all computed, at every instant."""

    def _find_moved(self, now, counts):
        super()._find_moved(now, counts)
        return set(range(len(counts)))


class Twice(CountInferredResponse):
    """CI-SETR beside a belief that is told everything."""

    def reset(self):
        super().reset()
        self.all = AllNodesBelief(self.view)

    def update(self, view):
        super().update(view)
        self.all.update(view)

    def place(self, observation):
        node = super().place(observation)
        job, cluster, category = observation.job, observation.cluster, observation.category
        self.all.observe(observation)
        for own, whole in (
            (self.before, self.all.responses(job, cluster, category)),
            (self.waits, self.all.backlogs),
        ):
            assert (own == whole).all()
        costs = [self.all._response(number, job, cluster, category) for number in range(len(whole))]
        assert costs == self.before.tolist()
        assert node == min(observation.available or range(len(costs)), key=costs.__getitem__)
        self.all.placed(node, job, cluster, category)
        return node


class Seen(FogBelief):
    """A belief that shows what it expected before the placement."""

    policy: Twice

    def fastest(self, job, cluster, category, available):
        self.policy.before = self.responses(job, cluster, category)
        self.policy.waits = self.backlogs
        return super().fastest(job, cluster, category, available)


@pytest.mark.parametrize("count", ["waiting", "in_system"])
@pytest.mark.parametrize("scenario", ["stress", "change/crash-lost", "change/day"])
def test_nothing_follows_where_nothing_moves(scenario, count):
    world = make_world(scenario, count=count)
    policy = Twice(world.agent)
    policy.belief = Seen(world.agent)
    policy.belief.policy = policy
    simulate(world, policy)


class WholeCovariance:
    """The belief of `SoftMeans` by the whole covariance of all cells."""

    def __init__(self):
        same_node = np.kron(np.eye(NODES), np.ones((CATEGORIES, CATEGORIES)))
        same_category = np.kron(np.ones((NODES, NODES)), np.eye(CATEGORIES))
        self.covariance = (
            SCALE + SPEEDS * same_node + WORKS * same_category + MISFITS * np.eye(len(same_node))
        )

    def learn(self, node, category, noise):
        """Condition on one cell, and return how the means move for a surprise of 1."""
        row = self.covariance[node * CATEGORIES + category].copy()
        self.covariance -= np.outer(row, row) / (row[node * CATEGORIES + category] + noise)
        return row.reshape(NODES, CATEGORIES)

    def relearn(self, node):
        cells = slice(node * CATEGORIES, (node + 1) * CATEGORIES)
        self.covariance[cells, cells] += SPEEDS

    def relearn_works(self):
        self.covariance += WORKS * np.kron(np.ones((NODES, NODES)), np.eye(CATEGORIES))

    @property
    def deviations(self):
        return np.sqrt(self.covariance.diagonal()).reshape(NODES, CATEGORIES)


CELLS = st.tuples(st.integers(0, NODES - 1), st.integers(0, CATEGORIES - 1))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.one_of(CELLS, st.sampled_from(["node", "works"])), max_size=40))
def test_the_covariance_in_parts_is_the_whole_one(events):
    means, whole = SoftMeans(NODES, CATEGORIES, 10.0), WholeCovariance()
    works = 0
    for event in events:
        if event == "node":
            means.relearn(1)
            whole.relearn(1)
        elif event == "works":
            works += 1
            if works >= soft_means.MOST_CAUSES:
                continue
            means.relearn_works()
            whole.relearn_works()
        else:
            noise = means.factor_variance
            expected = whole.learn(*event, noise)
            before, service = means.estimates.mean, means.row(event[0])[event[1]]
            means.learn(*event, (1.3 * service, 0.0))
            moved = np.log(means.estimates.mean / before)
            np.testing.assert_allclose(
                moved * expected[event], expected * moved[event], rtol=1e-6, atol=1e-9
            )
            cell = event[0] * CATEGORIES + event[1]
            whole.covariance[cell, cell] += soft_means.DRIFT * noise
        np.testing.assert_allclose(means.deviations, whole.deviations, rtol=1e-6)


def test_many_changes_of_all_work_keep_the_covariance_small():
    means = SoftMeans(NODES, CATEGORIES, 10.0)
    for turn in range(60):
        means.relearn_works()
        before = means.deviations
        means.learn(turn % NODES, turn % CATEGORIES, (12.0, 0.01))
        assert (means.deviations <= before + 1e-4).all()
        assert np.isfinite(means.estimates.optimistic).all()
        assert means._shares.shape[2] <= soft_means.MOST_CAUSES * CATEGORIES


def test_overdue_jobs_of_several_nodes_add_up():
    means = SoftMeans(NODES, CATEGORIES, 10.0)
    late = [Overdue(0, 1, 40.0), Overdue(2, 0, 30.0)]
    logs = [np.log(means.estimates_given(part).mean) for part in ([], late[:1], late[1:], late)]
    np.testing.assert_allclose(logs[3] - logs[0], logs[1] + logs[2] - 2 * logs[0], atol=1e-12)
    assert means.estimates_given([]) is means.estimates


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(CELLS, st.floats(0.5, 1.0), st.floats(1.0, 2.0), st.booleans()), max_size=25
    ),
    st.integers(0, 30),
)
def test_bounds_are_the_shortest_paths_of_all_constraints(steps, forgotten):
    """Also after one node or all work was forgotten, which keeps what relates the others."""
    bounds = ServiceBounds(NODES, CATEGORIES, product=True)
    size = NODES + CATEGORIES
    links = np.full((size, size), inf)
    np.fill_diagonal(links, 0.0)
    for number, ((node, category), low, high, works) in enumerate(steps):
        if number == forgotten:
            if works:
                bounds.forget_works()
                links[NODES:, :] = links[:, NODES:] = inf
                np.fill_diagonal(links, 0.0)
            else:
                bounds.forget(node)
                links[node, :] = links[:, node] = inf
                links[node, node] = 0.0
        truth = (node + 1.0) * (category + 2.0)
        old_low, old_high = bounds.low[node][category], bounds.high[node][category]
        worthwhile = WORTHWHILE * (old_high - old_low if old_high < inf else old_low)
        if truth * low > old_low + worthwhile:
            links[NODES + category, node] = -log(truth * low)
        if truth * high < old_high - (worthwhile if old_high < inf else 0.0):
            links[node, NODES + category] = log(truth * high)
        bounds.tighten(node, category, truth * low, truth * high)
        links = closed(links)
        np.testing.assert_allclose(bounds.low, np.exp(-links[NODES:, :NODES].T), rtol=1e-9)
        np.testing.assert_allclose(bounds.high, np.exp(links[:NODES, NODES:]), rtol=1e-9)
        assert np.array_equal(bounds.limits, (bounds.low, bounds.high))


def closed(links):
    """Return the shortest paths by the algorithm of Floyd and Warshall."""
    for between in range(len(links)):
        links = np.minimum(links, links[:, between, None] + links[between])
    return links


def peak_memory(nodes):
    """Return the most memory that a belief takes in some decisions."""
    view = make_world("stress").agent
    one_row = (tuple(5.0 + place % 7 for place in range(nodes)),) * len(view.categories)
    table = (one_row,) * len(view.clusters)
    view = replace(view, nodes=tuple(f"fog-{n}" for n in range(nodes)), up=table, down=table)
    tracemalloc.start()
    belief = FogBelief(view)
    for job in range(30):
        belief.observe(Observation(10.0 * job, job, 0, 0, (0,) * nodes))
        belief.responses(job, 0, 0)
        belief.placed(belief.fastest(job, 0, 0, None), job, 0, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_is_linear_in_nodes():
    assert peak_memory(2000) < 8 * peak_memory(500)
