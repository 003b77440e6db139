"""ELECTRE III: by hand, against the package mcda, against Roy's text, and as a policy."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import make_run, make_world

import fogveil.agent.policies as policies
from fogveil.agent.policies import electre_ranking as electre
from fogveil.agent.policies.electre_ranking import Criterion
from fogveil.agent.policy import Load, Observation

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns that it cannot draw
    from mcda.matrices import AdjacencyValueMatrix, PerformanceTable
    from mcda.outranking.electre import Electre3
    from mcda.scales import PreferenceDirection, QuantitativeScale

seeds = st.integers(0, 2**32 - 1)


def make_instance(seed, *, vetoes=True):
    """Draw a table and its criteria; whole numbers, so that values and thresholds meet."""
    rng = np.random.default_rng(seed)
    nodes, count = rng.integers(2, 8), rng.integers(1, 6)
    criteria = []
    for _ in range(count):
        indifference, width, more = (int(draw) for draw in rng.integers((0, 0, 1), (3, 4, 6)))
        veto = indifference + width + more if vetoes and rng.random() < 0.7 else math.inf
        weight = int(rng.integers(1, 6))
        maximise = bool(rng.integers(2))
        criteria.append(Criterion(weight, indifference, indifference + width, veto, maximise))
    return rng.integers(0, 13, (nodes, count)).astype(float), criteria


def make_sigma(seed):
    """Draw credibilities: any at all, or on a coarse grid where levels and ties abound."""
    rng = np.random.default_rng(seed)
    nodes = rng.integers(1, 9)
    sigma = rng.random((nodes, nodes)) if seed % 2 else rng.integers(0, 21, (nodes, nodes)) / 20
    np.fill_diagonal(sigma, 1.0)
    return sigma


def as_mcda(table, criteria):
    ways = {True: PreferenceDirection.MAX, False: PreferenceDirection.MIN}
    scales = [QuantitativeScale(0, 99, preference_direction=ways[each[4]]) for each in criteria]
    weights, *thresholds = (dict(enumerate(each[part] for each in criteria)) for part in range(3))
    vetoes = {number: each.veto for number, each in enumerate(criteria) if each.veto < math.inf}
    performances = PerformanceTable(table, scales=dict(enumerate(scales)))
    return Electre3(performances, weights, *thresholds, vetoes)


def classes_of(outranking):
    """Read the classes, best first, off mcda's matrix of a complete preorder."""
    beats = outranking.data.to_numpy().sum(axis=1)
    return [np.flatnonzero(beats == count).tolist() for count in sorted(set(beats), reverse=True)]


def check_keeps_intersection(places, at_least):
    """Hold the ranking against who is at least as good in both distillations."""
    better, same = at_least & ~at_least.T, at_least & at_least.T
    assert (places[:, None] < places)[better].all()
    assert (places[:, None] == places)[same].all()


# --- by hand ----------------------------------------------------------------------------------


def test_three_alternatives_by_hand():
    criteria = [Criterion(3, 1, 3, 6), Criterion(1, 0, 2, 4, maximise=False)]
    sigma = electre.credibility(np.array([[10.0, 5.0], [8.0, 4.0], [3.0, 1.0]]), criteria)
    assert sigma == pytest.approx(
        np.array(
            [
                [1, (3 + 1 / 2) / 4, 0],  # b leads by 1 of 0…2 on the second; c's lead of 4 vetoes
                [(3 / 2 + 1) / 4, 1, 3 / 4],  # c objects by a half: less than three quarters agree
                [0, 1 / 4 * (1 - 2 / 3) / (1 - 1 / 4), 1],  # b objects by two thirds
            ]
        )
    )
    assert electre.distil(sigma) == [[0], [1], [2]]
    assert electre.distil(sigma, ascending=True) == [[0], [1], [2]]


def test_five_alternatives_by_hand():
    sigma = np.array(
        [
            [1.00, 0.00, 1.00, 0.80, 1.00],
            [0.00, 1.00, 0.00, 0.90, 0.67],
            [0.60, 0.00, 1.00, 0.60, 0.80],
            [0.25, 0.80, 0.67, 1.00, 0.85],
            [0.67, 0.00, 0.80, 0.80, 1.00],
        ]
    )
    # Descending. Level 1, so above 0.80 (0.85 is not below 1 - 0.15): 0 beats 2 and 4, and is
    # first. Level 0.90, so above 0.67: nobody beats anybody. Then above 0: 1 beats 4, and is
    # second. Of the rest nobody beats anybody at any level.
    assert electre.distil(sigma) == [[0], [1], [2, 3, 4]]
    # Ascending. Above 0.80, 2 and 4 are beaten once, and no level tells them apart. Level 0.90,
    # so above 0.25: 0 beats 3. Then 0 and 1 are left, with no credibility at all.
    assert electre.distil(sigma, ascending=True) == [[0, 1], [3], [2, 4]]
    assert electre.rank(sigma).tolist() == [1.0, 1.5, 3.0, 2.5, 3.0]


# --- against mcda -----------------------------------------------------------------------------


@pytest.mark.parametrize("vetoes", [False, True])
def test_credibility_is_mcdas(vetoes):
    weakened = 0
    for seed in range(60):
        table, criteria = make_instance(seed, vetoes=vetoes)
        reference = as_mcda(table, criteria)
        expected = reference.credibility().data.to_numpy()
        assert electre.credibility(table, criteria) == pytest.approx(expected, abs=1e-9), seed
        weakened += (expected < reference.concordance().data.to_numpy()).any()
    assert (weakened > 30) == vetoes


# mcda 1.1.0 departs from Roy's distillation in four ways: (1) it looks for the level λ among all
# pairs, (a, a) too, so that λ is always 1; (2) σ(a, b) > σ(b, a) makes a preference, without the
# threshold s; (3) σ must exceed λ - s(λ), not only reach it; (4) ties are resolved once,
# from a fresh level, not at ever lower ones. So the whole is compared where none of it matters,
# and one level, without its diagonal, on a grid that leaves only (4).


@pytest.mark.filterwarnings("ignore:Starting with pandas version")
def test_distillations_and_ranking_are_mcdas_on_dominance_orders():
    # Least vetoes leave credibility 1 to whoever is nowhere worse, else 0. Being transitive, it
    # gives whoever dominates another more qualification: those that tie have nothing to tell.
    apart = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        table = rng.integers(0, 5, (rng.integers(2, 9), rng.integers(1, 4))).astype(float)
        criteria = [Criterion(1, 0, 0, 0.5, bool(rng.integers(2))) for _ in table.T]
        reference = as_mcda(table, criteria)
        sigma = electre.credibility(table, criteria)
        down, up = (
            classes_of(reference.distillation(reference.credibility(), ascending=ascending))
            for ascending in (False, True)
        )
        assert electre.distil(sigma) == down, seed
        assert electre.distil(sigma, ascending=True) == up, seed
        apart += down != up
        check_keeps_intersection(electre.rank(sigma), reference.rank().data.to_numpy() == 1)
    assert apart > 5


def test_the_first_level_is_mcdas():
    for seed in range(60):
        rng = np.random.default_rng(seed)
        nodes = int(rng.integers(2, 9))
        sigma = rng.integers(0, 4, (nodes, nodes)) / 3
        np.fill_diagonal(sigma, 0.0)
        reference = as_mcda(np.zeros((2, 1)), [Criterion(1, 0, 0)])
        expected = reference.qualification(AdjacencyValueMatrix(sigma)).tolist()
        claims = electre._claims(sigma)
        _, qualification = electre._qualify(list(range(nodes)), claims, sigma.max())
        assert list(qualification.values()) == expected, seed


# --- against Roy's text -----------------------------------------------------------------------


def roys_distillation(sigma, choose):
    """Follow the published steps to the letter, on exact twentieths or random numbers."""
    n = len(sigma)

    def s(level):
        return 0.30 - 0.15 * level

    def pairs(of):
        return [(a, b) for a in of for b in of if a != b]

    def beats(a, b, level):
        margin = sigma[a][b] - sigma[b][a] - s(sigma[a][b])
        return sigma[a][b] > level and margin > 1e-12

    left, classes = set(range(n)), []
    while left:
        level = max((sigma[a][b] for a, b in pairs(left)), default=0.0)
        kept = left
        while level > 0 and len(kept) > 1:
            below = [sigma[a][b] for a, b in pairs(kept) if level - s(level) - sigma[a][b] > 1e-12]
            level = max(below, default=0.0)
            won = [pair for pair in pairs(kept) if beats(*pair, level)]
            score = {x: sum(a == x for a, _ in won) - sum(b == x for _, b in won) for x in kept}
            kept = {x for x in kept if score[x] == choose(score.values())}
        classes.append(sorted(kept))
        left = left - kept
    return classes


@given(seeds)
def test_distillations_are_roys(seed):
    sigma = make_sigma(seed)
    down, up = roys_distillation(sigma, max), roys_distillation(sigma, min)[::-1]
    assert electre.distil(sigma) == down
    assert electre.distil(sigma, ascending=True) == up
    places = np.empty((2, len(sigma)))
    for row, classes in zip(places, (down, up), strict=True):
        for place, members in enumerate(classes, start=1):
            row[members] = place
    assert electre.rank(sigma).tolist() == places.mean(axis=0).tolist()
    check_keeps_intersection(electre.rank(sigma), (places[:, :, None] <= places[:, None]).all(0))


# --- laws -------------------------------------------------------------------------------------


@given(seeds)
def test_whoever_dominates_is_first(seed):
    table, criteria = make_instance(seed)
    best = np.array([13.0 if criterion.maximise else -1.0 for criterion in criteria])
    places = electre.rank(electre.credibility(np.vstack([table, best]), criteria))
    assert places[-1] == 1.0
    # Beyond every preference threshold it is first alone.
    best = np.array([99.0 if criterion.maximise else -99.0 for criterion in criteria])
    places = electre.rank(electre.credibility(np.vstack([table, best]), criteria))
    assert (places[:-1] > places[-1]).all()


@given(seeds)
def test_neither_the_order_of_nodes_nor_of_criteria_matters(seed):
    table, criteria = make_instance(seed)
    rng = np.random.default_rng(seed)
    nodes, order = rng.permutation(len(table)), rng.permutation(len(criteria))
    sigma = electre.credibility(table, criteria)
    moved = electre.credibility(table[nodes][:, order], [criteria[number] for number in order])
    assert moved.tolist() == sigma[nodes][:, nodes].tolist()  # to the last bit, or ties break
    assert electre.rank(moved).tolist() == electre.rank(sigma)[nodes].tolist()


# --- as policies ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def view():
    return make_world("stress").agent


def given_criteria(view, *names, queue=(1.0, 0.0, 0.0)):
    """Let the view's scenario weigh these criteria, without thresholds."""

    def table(name, weight=1.0, indifference=0.0, preference=0.0):
        keys = ("name", "weight", "indifference", "preference", "veto")
        return dict(zip(keys, (name, weight, indifference, preference, None), strict=True))

    settings = {"criteria": [table(name) for name in names], "queue": table("queue", *queue)}
    return replace(view, settings={"electre": settings})


def make_observation(cluster=0, category=0, counts=(0,) * 10, ram=(1.0,) * 10):
    expected = tuple(tuple(abs(node - 2.0 - row) for node in range(10)) for row in range(3))
    load = Load(tuple(range(10, 20)), ram, expected, (0.0,) * 10, (0.0,) * 10)
    return Observation(1.0, 0, cluster, category, tuple(counts), None, None, load)


def test_each_criterion_is_what_its_name_says(view):
    up, down = ([float(node) for node in range(10)], [(node - 8) ** 2 / 4 for node in range(10)])
    view = replace(view, up=[[up] * 3] * 8, down=[[down] * 3] * 8)
    best = {
        "service": [4],
        "ipt": [9],
        "ram": [5],
        "latency": [6],
        "bandwidth": np.flatnonzero(np.array(view.bandwidth[1]) == max(view.bandwidth[1])),
        "hops": np.flatnonzero(np.array(view.hops[1]) == min(view.hops[1])),
    }
    for name, nodes in best.items():
        policy = policies.load("electre", given_criteria(view, name))
        observation = make_observation(1, 2, ram=(1.0,) * 5 + (2.0,) + (1.0,) * 4)
        assert {policy.place(observation) for _ in range(10)} == set(nodes), name


@pytest.mark.parametrize("name", ["electre", "electre-queue"])
def test_those_that_tie_for_first_take_turns(view, name):
    policy = policies.load(name, given_criteria(view, "ram"))
    assert [policy.place(make_observation()) for _ in range(12)] == [*range(10), 0, 1]
    assert [
        policy.place(make_observation(1)),
        policy.place(make_observation(0, 1)),
        policy.place(make_observation()),
    ] == [0, 0, 2]
    policy.reset()
    assert policy.place(make_observation()) == 0


def test_one_job_is_no_strong_preference_but_a_long_queue_is(view):
    # Indifferent up to one job, for the thresholds are shares of ten; node 4 serves best.
    policy = policies.load("electre-queue", given_criteria(view, "service", queue=(3.0, 0.1, 0.2)))
    for jobs, place in ((0, 4), (1, 4), (2, 3), (40, 3)):
        counts = [jobs if node in (4, 5) else 0 for node in range(10)]
        assert policy.place(make_observation(1, 2, counts)) == place, jobs


def test_the_calibrated_order_on_the_papers_environment():
    def delay(policy, scale, seeds=5):
        runs = [
            make_run(policy, "stress", sources__scale=scale, seed=seed) for seed in range(seeds)
        ]
        return np.mean([np.mean(run.jobs["returned"] - run.jobs["emitted"]) for run in runs])

    names = ("fastest", "electre", "nearest", "round-robin", "random")
    low, high = ({name: delay(name, scale) for name in names} for scale in (200.0, 100.0))
    assert sorted(low, key=low.get)[:2] == ["fastest", "electre"]
    assert max(high, key=high.get) == "fastest"
    assert high["electre"] < 0.85 * high["fastest"]
    assert delay("electre-queue", 100.0, seeds=1) < 0.1 * high["electre"]
