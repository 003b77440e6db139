"""Inference from counts: beliefs that decide well, bounds that hold the truth."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from support import MemorySink, make_run, make_world

import fogveil.agent.policies as policies
from fogveil.agent.inference.fog_belief import FogBelief
from fogveil.agent.inference.fog_bounds import Model
from fogveil.agent.inference.service_bounds import Contradiction, ServiceBounds
from fogveil.agent.inference.soft_means import SoftMeans
from fogveil.agent.inference.spread import known_between, later_of
from fogveil.agent.policies.ci_setr import CountInferredResponse
from fogveil.agent.policy import Level, Observation
from fogveil.provider_node.provider import Provider
from fogveil.testbed.engine.embedded import simulate

KINDS = ["waiting", "in_system"]
TOLERANCE = 1e-6


def counted(time, counts):
    return Observation(time, job=0, cluster=0, category=0, counts=counts)


class Audited(CountInferredResponse):
    """CI-SETR that keeps its observations and its bounds."""

    def reset(self):
        super().reset()
        self.bounds = self.belief.bounds
        self.observations = []
        self.brackets = []
        self.most_jobs_kept = 0

    def place(self, observation):
        self.observations.append(observation)
        node = super().place(observation)
        jobs = [job for line in self.bounds.nodes for job in line.jobs]
        self.most_jobs_kept = max(self.most_jobs_kept, len(jobs))
        self.brackets += [
            (job.job, job.start_low, job.start_high, job.finish_low, job.finish_high)
            for job in jobs
        ]
        return node


def drive(world, policy):
    sink = MemorySink()
    simulate(world, policy, [sink])
    return sink.table


def true_service(world):
    return np.array([[work / fog.ipt for work in fog.instructions] for fog in world.fogs])


def mean_delay(jobs):
    return (jobs["returned"] - jobs["emitted"]).mean()


def excess(policy="ci-setr", seeds=3, **overrides):
    """How much longer than the oracle's its delays are, on the same workloads."""
    delays = []
    for seed in range(1, seeds + 1):
        world = make_world("stress", seed=seed, **overrides)
        pair = (policies.load(name, world.agent) for name in (policy, "setr"))
        delays.append([mean_delay(drive(world, one)) for one in pair])
    own, oracle = np.array(delays).mean(axis=0)
    return own / oracle - 1


@pytest.fixture(scope="module", params=KINDS)
def audited(request):
    world = make_world("stress", count=request.param, sources__scale=100.0, horizon=4000.0)
    policy = Audited(world.agent)
    return world, policy, drive(world, policy)


def test_bounds_hold_the_true_service_times(audited):
    world, policy, _ = audited
    bounds, truth = policy.bounds, true_service(world)
    assert bounds.model is Model.PRODUCT
    assert (np.array(bounds.low) <= truth * (1 + TOLERANCE)).all()
    assert (np.array(bounds.high) >= truth * (1 - TOLERANCE)).all()
    widths = np.array(bounds.high) / np.array(bounds.low) - 1
    assert widths.max() < 0.1


def test_bounds_hold_the_true_starts_and_finishes(audited):
    _, policy, jobs = audited
    brackets = np.array(policy.brackets)
    order = np.argsort(jobs["job"])
    at = order[np.searchsorted(jobs["job"][order], brackets[:, 0])]
    for event, low, high in (("started", 1, 2), ("finished", 3, 4)):
        truth = jobs[event][at]
        assert (brackets[:, low] <= truth + TOLERANCE).all()
        assert (brackets[:, high] >= truth - TOLERANCE).all()
    bounded = brackets[np.isfinite(brackets[:, 4])]
    assert len(bounded) > len(brackets) / 3
    assert np.median(bounded[:, 4] - bounded[:, 3]) < 5


def test_memory_stays_bounded(audited):
    world, policy, jobs = audited
    assert len(jobs["job"]) > 900
    assert policy.most_jobs_kept < 30 * len(world.nodes)
    assert sum(len(node._jobs) for node in policy.belief.nodes) < 10 * len(world.nodes)


def test_estimates_converge(audited):
    world, policy, _ = audited
    error = np.array(policy.belief.service) / true_service(world) - 1
    assert np.abs(error).mean() < 0.06
    assert policy.belief.means.factor_variance < 0.1


def test_it_knows_what_it_does_not_know(audited):
    world, policy, _ = audited
    error = np.log(np.array(policy.belief.service) / true_service(world))
    assert (np.abs(error) < 5 * np.array(policy.belief.means.deviations) + 0.01).all()


@pytest.mark.parametrize("kind", KINDS)
def test_it_matches_the_oracle_where_service_is_constant(kind):
    assert excess(count=kind, sources__scale=100.0) < 0.015


@pytest.mark.parametrize("kind", KINDS)
def test_a_misfit_of_the_product_form_costs_little(kind, monkeypatch):
    overrides = {"count": kind, "sources__scale": 100.0, "horizon": 5000.0}
    world = make_world("stress", **overrides)
    factors = np.random.default_rng(5).choice([0.95, 1.05], size=(10, 3))
    service = true_service(world) * factors
    by_name = dict(zip(world.nodes, service.tolist(), strict=True))

    class Misfit(Provider):
        def __init__(self, config, demands):
            super().__init__(config, demands)
            self.expected = by_name.get(config.name, self.expected)

    monkeypatch.setattr("fogveil.testbed.engine.providers.Provider", Misfit)
    assert excess(**overrides) < 0.03

    policy = Audited(world.agent)
    drive(world, policy)
    assert policy.bounds.model is Model.CELLS
    assert (np.array(policy.bounds.low) <= service * (1 + TOLERANCE)).all()
    assert (np.array(policy.bounds.high) >= service * (1 - TOLERANCE)).all()


@pytest.mark.parametrize("shape", [25, 400])
@pytest.mark.parametrize("kind", KINDS)
def test_jitter_costs_little(kind, shape):
    jitter = {"service__distribution": "erlang", "service__shape": shape}
    assert excess(count=kind, sources__scale=100.0, horizon=5000.0, **jitter) < 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_exponential_service_is_learned_as_such(kind):
    overrides = {
        "count": kind,
        "sources__scale": 100.0,
        "horizon": 5000.0,
        "service__distribution": "exponential",
    }
    assert excess(**overrides) < excess("jsq", **overrides) - 0.25
    world = make_world("stress", **overrides)
    policy = Audited(world.agent)
    drive(world, policy)
    assert policy.bounds.model is Model.NONE
    assert not any(node.jobs for node in policy.bounds.nodes)
    assert 0.7 < policy.belief.means.factor_variance**0.5 < 1.3


def test_it_reads_counts_and_own_placements_alone():
    world = make_world("stress", horizon=2000.0)
    policy = Audited(world.agent)
    placed = drive(world, policy)["node"]
    assert policy.needs is Level.COUNT
    again = CountInferredResponse(world.agent)
    for observation, node in zip(policy.observations, placed, strict=True):
        assert (observation.load, observation.total, observation.cloud_count) == (None, None, None)
        assert again.place(Observation(*observation[:4], counts=observation.counts)) == node


def test_a_new_episode_begins_anew():
    world = make_world("stress", horizon=1000.0)
    policy = CountInferredResponse(world.agent)
    first = drive(world, policy)["node"]
    policy.reset()
    assert (drive(world, policy)["node"] == first).all()


@pytest.mark.parametrize("kind", KINDS)
def test_decisions_at_one_instant(kind):
    at_once = {"sources__kind": "deterministic", "sources__phase": "together"}
    world = make_world("stress", count=kind, horizon=2000.0, **at_once)
    policy = Audited(world.agent)
    jobs = drive(world, policy)
    assert len(np.unique(jobs["emitted"])) < len(jobs["emitted"]) / 20
    assert policy.bounds.model is Model.PRODUCT
    assert len(np.unique(jobs["node"])) > 5


def test_impossible_counts_do_no_harm():
    view = make_world("stress").agent
    policy = Audited(view)
    generator = np.random.default_rng(1)
    for job in range(300):
        counts = tuple(int(count) for count in generator.integers(0, 9, size=10))
        node = policy.place(Observation(5.0 * job, job, job % 8, job % 3, counts))
        assert 0 <= node < 10
    assert policy.bounds.model is Model.NONE
    assert np.isfinite(policy.belief.service).all()


def test_bounds_are_trusted_once_proved_and_forgotten_when_refuted():
    world = make_world("stress", horizon=1000.0)
    policy = Audited(world.agent)
    trusted = []

    class Watched(type(policy.belief)):
        def observe(self, observation):
            super().observe(observation)
            trusted.append(self.means._limits is not None)

    policy.belief.__class__ = Watched
    drive(world, policy)
    assert trusted == [False] * 49 + [True] * (len(trusted) - 49)
    means = np.array(policy.belief.means.estimates.mean)
    assert (means >= np.array(policy.bounds.low) * (1 - TOLERANCE)).all()
    assert (means <= np.array(policy.bounds.high) * (1 + TOLERANCE)).all()
    policy.belief.observe(counted(2000.0, (99,) * 10))
    assert policy.bounds.model is Model.NONE
    assert not trusted[-1]


def test_backlog_and_jobs_in_transit():
    view = make_world("stress", count="in_system").agent
    belief = FogBelief(view)
    belief.observe(counted(0.0, (0,) * 10))
    belief.placed(4, job=1, cluster=0, category=2)
    belief.placed(4, job=2, cluster=0, category=2)
    assert belief.in_transit[4] == 2
    assert belief.backlogs.tolist() == [0.0] * 10
    arrived = view.up[0][2][4] + 1.0
    belief.observe(counted(arrived, (0, 0, 0, 0, 2, 0, 0, 0, 0, 0)))
    assert belief.in_transit[4] == 0
    assert belief.backlogs[4] > belief.service[4][2]
    responses = belief.responses(3, cluster=0, category=2)
    assert responses[4] > view.up[0][2][4] + view.down[0][2][4] + belief.backlogs[4] / 2


def test_residual_times_run_from_constant_to_memoryless():
    left = [known_between(variance, 0.9)[0] - 0.9 for variance in (0.001, 0.04, 0.25, 1.0)]
    assert all(one < other for one, other in pairwise(left))
    assert left[0] == pytest.approx(0.1, abs=0.01)
    assert left[-1] == pytest.approx(1.0, abs=0.05)


def test_conditional_expectations_agree_with_samples():
    generator = np.random.default_rng(0)
    for variance, low, high in ((1.0, 0.5, 2.0), (0.25, 0.0, 0.8), (0.04, 1.1, 1.6)):
        sample = generator.gamma(1 / variance, variance, 400_000)
        sample = sample[(sample > low) & (sample <= high)]
        mean, left_open = known_between(variance, low, high)
        assert mean == pytest.approx(sample.mean(), rel=0.03)
        assert left_open == pytest.approx(sample.var(), rel=0.25)
    sample = np.maximum(3.0, generator.normal(4.0, 2.0, 400_000))
    mean, variance = later_of(3.0, (4.0, 4.0))
    assert mean == pytest.approx(sample.mean(), rel=0.01)
    assert variance == pytest.approx(sample.var(), rel=0.01)


def test_one_job_teaches_its_node_and_its_category():
    means = SoftMeans(nodes=2, categories=2, guess=10.0)
    means.learn(0, 0, (40.0, 0.0))
    table = means.estimates.mean
    assert table[0][0] == pytest.approx(40.0, rel=0.15)
    assert 10 < table[1][1] < table[1][0] < table[0][0]
    assert means.deviations[0][0] < means.deviations[1][1]


def test_contradictions_are_found_only_where_they_are():
    bounds = ServiceBounds(2, 2, product=True)
    for node, category, time in ((0, 0, 1.0), (0, 1, 3.0), (1, 0, 2.0)):
        bounds.tighten(node, category, time, time)
    bounds.tighten(1, 1, 6.0 * (1 + 1e-12), 6.0 * (1 + 1e-12))
    with pytest.raises(Contradiction):
        bounds.tighten(1, 1, 6.3, 6.4)
    cells = ServiceBounds(2, 2, product=False)
    for node, category, time in ((0, 0, 1.0), (0, 1, 3.0), (1, 0, 2.0), (1, 1, 6.3)):
        cells.tighten(node, category, time, time)
    assert cells.high == [[1.0, 3.0], [2.0, 6.3]]
    with pytest.raises(Contradiction):
        cells.tighten(1, 1, 7.0, 8.0)


def test_the_run_does_not_depend_on_what_else_is_disclosed():
    runs = [make_run("ci-setr", "stress", horizon=500.0, disclosure=d) for d in ("count", "full")]
    assert runs[0].hash == runs[1].hash
