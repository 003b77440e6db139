"""Agents that learn at work: when, from what, and what of it is kept."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from support import SCENARIOS, make_world

import fogveil.agent.policies as policies
from fogveil.agent.drift_record import drifts_path, read_drifts, write_drifts
from fogveil.agent.learning.adaptation import Adaptation, AdaptationRequest
from fogveil.agent.learning.adapting import Adapt, Firing
from fogveil.agent.learning.checkpoint import read_checkpoint
from fogveil.agent.learning.drift_watch import Drift, DriftWatch
from fogveil.agent.learning.network_policy import write_network
from fogveil.agent.learning.relearning import AdaptationHyperparameters
from fogveil.core.errors import InputError
from fogveil.testbed.engine.adapting_run import run_adapting
from fogveil.testbed.engine.embedded import simulate
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.scenario import Scenario, load_scenario

BRISK = {"buffer_population": 0.002, "training_steps": 30, "drift_block": 5, "drift_reference": 8}


def paper(policy: str, **overrides) -> Scenario:
    level = policies.find(policy).needs.word
    chosen = {"disclosure": level, "horizon": 2500.0, "sources.scale": 100.0, **overrides}
    return load_scenario(SCENARIOS / "paper.toml", chosen)


def load(policy: str, adapt: Adapt, **changes) -> Adaptation:
    world = make_world("paper", disclosure="full")
    return Adaptation(policy, world.agent, AdaptationRequest(adapt, changes))


@pytest.mark.parametrize("policy", ["parl", "veil"])
def test_until_a_drift_it_acts_bit_for_bit_as_it_was_trained(policy):
    scenario = paper(policy)
    deaf = AdaptationRequest(Adapt.AUTO, {"drift_threshold": 1e9})
    result = run_adapting(scenario, policy, deaf)
    greedy = run_embedded(scenario, policy)
    assert result["run_hash"] == greedy["run_hash"]
    assert result["adaptation"] == []
    assert result["policy"] == greedy["policy"] == policy
    assert result["label"] == greedy["label"]
    assert "adapt" not in greedy


@pytest.mark.parametrize("policy", ["parl", "veil"])
def test_it_learns_from_the_first_decisions_on_and_keeps_it(policy, tmp_path):
    scenario = paper(policy, horizon=1200.0)
    request = AdaptationRequest(Adapt.ON, BRISK)
    results = [run_adapting(scenario, policy, request, tmp_path / name) for name in "ab"]
    assert results[0]["run_hash"] == results[1]["run_hash"], "it repeats"
    assert results[0]["adaptation"] == []
    written = json.loads((tmp_path / "a/run.json").read_text())
    assert written["adapt"]["when"] == "on"
    assert written["adapt"]["hyperparameters"]["training_steps"] == 30
    light = tmp_path / "a/adapted/agent.npz"
    kept = read_checkpoint(light)
    assert kept.header["adapted"]["training_steps"] > 10
    before = Adaptation(policy, make_world("paper").agent, request).agent
    assert (kept.arrays["learner_online"] != before.learner.state()["online"]).any()
    assert run_embedded(scenario, str(light))["label"] == "adapted"


def surge(policy: str) -> Scenario:
    event = {"at": 1200.0, "kind": "rate", "scale": 25.0}
    return paper(policy, events=[event])


def test_a_surge_switches_learning_on_and_the_record_says_why():
    result = run_adapting(surge("parl"), "parl", AdaptationRequest(Adapt.AUTO, BRISK))
    first = result["adaptation"][0]
    assert first["signal"] == "the sum of queued jobs rises"
    assert 1200 < first["time"] < 2500
    assert first["statistic"] > first["threshold"] == 20.0
    assert first["decision"] % 4 == 0, "where a window of decisions taken ahead may end"
    calm = run_adapting(paper("parl"), "parl", AdaptationRequest(Adapt.AUTO, BRISK))
    assert calm["adaptation"] == []
    assert result["run_hash"] != run_embedded(surge("parl"), "parl")["run_hash"]


def test_learning_ends_after_its_steps_and_begins_again_at_the_next_drift():
    adaptation = load("veil", Adapt.AUTO, **BRISK, drift_threshold=1.0, drift_tolerance=0.05)
    world = make_world("paper", disclosure="full", horizon=4000, sources__scale=60.0)
    simulate(world, adaptation.agent)
    firings = adaptation.agent.firings
    ended = [firing for firing in firings if firing.until is not None]
    assert len({firing.until for firing in ended}) > 1
    for firing in ended:
        assert firing.until - firing.decision >= 29 * 4, "a training step each four decisions"
    assert all(one.decision < two.decision for one, two in pairwise(firings))


def test_what_was_before_a_drift_is_not_learned_from():
    agent = load("parl", Adapt.AUTO, **BRISK).agent
    world = make_world("paper", disclosure="full", horizon=1500)
    simulate(world, agent)
    assert not agent.firings
    assert agent.replay.held == agent.decisions > 100
    agent._note(Drift("rises", 50.0, 30.0), 1.0)
    assert agent.replay.held == agent.hyperparameters.population_decisions == 40
    assert agent.epsilon > 0
    assert agent.phase == "adaptation"


def test_its_hyperparameters_change_as_those_of_a_training():
    agent = load("veil", Adapt.ON, epsilon_first=0.0, population_epsilon=0.0).agent
    assert agent.epsilon == 0.0
    with pytest.raises(InputError, match="no hyper-parameter is called eps; .*drift_threshold"):
        load("veil", Adapt.ON, eps=1)
    with pytest.raises(InputError, match="has layers of 15, 64, 64, 1 neurons, and the agent that"):
        load("veil", Adapt.ON, layers=(8,))


def test_what_cannot_learn_is_one_sentence(tmp_path):
    for spec in ("jsq", "ci-setr", "mine.py:Mine", policies.find("jsq")):
        with pytest.raises(InputError, match="cannot learn at work: --adapt is for parl, veil"):
            load(spec, Adapt.ON)
    with pytest.raises(InputError, match="does not exist"):
        load("none.npz", Adapt.ON)
    with pytest.raises(InputError, match="policy parl was trained on the scenario paper, and this"):
        Adaptation("parl", make_world("tiny").agent, AdaptationRequest(Adapt.ON))
    header = {"level": "total", "public": {}}
    layers = [(np.zeros((3, 2), np.float32), np.zeros(2, np.float32))]
    write_network(tmp_path / "sb3.npz", header, layers, "relu", None)
    with pytest.raises(InputError, match="another library's network, which fogveil cannot train"):
        load(str(tmp_path / "sb3.npz"), Adapt.ON)
    view = make_world("paper", disclosure="total").agent
    with pytest.raises(InputError, match="policy veil needs disclosure level 'count'"):
        Adaptation("veil", view, AdaptationRequest(Adapt.ON))


# --- the test for drift --------------------------------------------------------------------------


def watch(**changes) -> DriftWatch:
    return DriftWatch(AdaptationHyperparameters(**changes))


@pytest.mark.parametrize(("move", "direction"), [(3.0, "rises"), (-3.0, "falls")])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_it_fires_on_a_shift_in_units_of_the_signal_itself(move, direction, scale):
    random, followed = np.random.default_rng(4), watch()
    assert not any(followed.add(value) for value in random.normal(0, scale, 2000))
    found = filter(None, map(followed.add, random.normal(move * scale, scale, 400)))
    assert next(found).direction == direction


def test_a_signal_without_a_shift_is_no_drift_nor_is_a_single_burst():
    random, followed = np.random.default_rng(5), watch()
    values = random.exponential(1.0, 8000)
    values[5000:5020] += 2.0
    assert not any(followed.add(value) for value in values)


def test_the_first_job_that_ever_waits_is_no_drift_and_a_queue_that_stays_is_one():
    followed = watch()
    assert not any(followed.add(value) for value in [*[0.0] * 1000, 1.0, 1.0, *[0.0] * 500])
    assert any(followed.add(2.0) for _ in range(200))


# --- the record ----------------------------------------------------------------------------------


def test_the_record_reads_back_exactly(tmp_path):
    firings = [
        Firing(1960, 8200.123456789, "the sum of queued jobs rises", 33.3, 30.0, 5960),
        Firing(7000, 1e5 / 3, "the sum of queued jobs falls", 30.1, 30.0),
    ]
    write_drifts(tmp_path, 3, firings)
    assert read_drifts(drifts_path(tmp_path, 3), 4096) == firings
    write_drifts(tmp_path, 3, [])
    assert read_drifts(drifts_path(tmp_path, 3), 4096) == []


COMING_AND_GOING = [
    {"at": 300.0, "kind": "leave", "node": "fog-4"},
    {"at": 400.0, "kind": "crash", "node": "fog-5", "back": 700.0, "jobs": "recovered"},
    {"at": 600.0, "kind": "join", "node": "fog-4"},
    {"at": 800.0, "kind": "speed", "node": "fog-10", "factor": 0.5},
    {"at": 900.0, "kind": "demand", "application": "demanding", "factor": 1.5},
]


@pytest.mark.parametrize("policy", ["parl", "veil"])
def test_it_learns_while_nodes_come_and_go(policy):
    """Also at random it places on nodes that take jobs alone: else the engine ends the run."""
    lost = {"at": 1000.0, "kind": "crash", "node": "fog-3", "back": 1100.0, "jobs": "lost"}
    events = [*COMING_AND_GOING, *([lost | {"notice": 20.0}] if policy == "veil" else [])]
    scenario = paper(policy, horizon=1300.0, events=events)
    request = AdaptationRequest(Adapt.ON, {**BRISK, "epsilon_first": 0.5, "epsilon_last": 0.5})
    once, again = (run_adapting(scenario, policy, request) for _ in range(2))
    assert once["run_hash"] == again["run_hash"]
    assert once["run_hash"] != run_embedded(scenario, policy)["run_hash"]
