"""An attacker with few observations shrinks to what it knew before, and sees no truth for it."""

from __future__ import annotations

import numpy as np
from support import SCENARIOS

from fogveil.agent.policy import Level
from fogveil.testbed.privacy.leakage.meter import AttackPlan, measure
from fogveil.testbed.privacy.leakage.scoring import guess_prior, score, true_service
from fogveil.testbed.privacy.leakage.trust import Prior, Rehearsed, Trust, learn_trust
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import build_world
from fogveil.testbed.workers.local import local_crew

STRESS = load_scenario(SCENARIOS / "stress.toml", {"sources.scale": 100.0})


def test_few_decisions_are_no_worse_than_the_best_guess():
    """In the first version the error was 88 % after 50 decisions, and 33 % without any."""
    with local_crew(2) as crew:
        result = measure(AttackPlan(STRESS, Level.COUNT, 50 * 2, "jsq", permutations=3), crew)
    guess = result["prior"]["error"]["mean"]
    assert len(result["attacker"]) >= 4
    for after in result["attacker"]:
        assert after["error"]["mean"] <= guess + 1e-9
    assert result["attacker"][-1]["error"]["mean"] < 0.1  # it still infers where it can
    assert result["attacker"][-1]["rank"]["mean"] > 0.9


def test_the_guess_is_the_best_one_speed():
    world = build_world(STRESS)
    truth = true_service(world)
    best = score(guess_prior(world), truth).error
    for factor in np.linspace(0.5, 2.0, 31):
        assert score(guess_prior(world) * factor, truth).error >= best - 1e-12


def rehearsals(noise: float, number: int = 8) -> list[Rehearsed]:
    """Return rehearsals of an attacker whose estimates are off by a random factor."""
    random = np.random.default_rng(5)
    values = np.linspace(1.0, 4.0, 10)[:, None]
    played = []
    for _ in range(number):
        truth = random.permutation(values)
        estimate = truth * np.exp(random.normal(0.0, noise, truth.shape))
        played.append(Rehearsed(estimate, Prior(np.full_like(values, 2.0), values), truth))
    return played


def test_trust_follows_from_rehearsals():
    assert learn_trust(rehearsals(0.0)).weight == 1.0
    assert learn_trust(rehearsals(0.02)).weight >= 0.9
    assert learn_trust(rehearsals(3.0)) == Trust(0.0)


def test_an_estimate_of_strange_speeds_is_not_trusted():
    prior = rehearsals(0.0)[0].prior
    strange = prior.values * 3
    assert (Trust(limit=0.5).shrink(strange, prior) == prior.guess).all()
    assert np.allclose(Trust(limit=2.0).shrink(strange, prior), strange)
    assert (Trust(0.0).shrink(strange, prior) == prior.guess).all()
