"""The leakage meter: the attacker's error over permuted secrets, beside two guesses.

What is inferred is the service time of each application at each node, in simulated time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fogveil.agent.inference.estimator import infer
from fogveil.agent.inference.transcript import Floats, Ints, Transcript, marks_of
from fogveil.agent.policy import Level
from fogveil.core.errors import InputError
from fogveil.core.randomness import Seeds, drawn
from fogveil.testbed.launch.participant_config import Plan as TestbedPlan
from fogveil.testbed.privacy.leakage.attackers import load_attacker, watch, watch_testbed
from fogveil.testbed.privacy.leakage.scoring import (
    Score,
    guess_prior,
    guess_topology,
    log_speeds,
    score,
    true_service,
)
from fogveil.testbed.privacy.leakage.trust import Prior, Rehearsed, Trust, learn_trust
from fogveil.testbed.report.statistics import Estimate, estimate
from fogveil.testbed.scenario import Scenario
from fogveil.testbed.scenario.world import World, build_world
from fogveil.testbed.workers.files import FileList, Located
from fogveil.testbed.workers.work import Crew, compute_in_order

FEWEST_DECISIONS = 32
"""With fewer, the first estimate would be after one decision or none."""

REHEARSALS = 8
"""Worlds of its own in which the attacker learns how far to trust its estimates."""
FIRST_REHEARSAL = 2**20
"""Their numbers begin far above those of the permutations that are measured."""


@dataclass(frozen=True)
class AttackPlan:
    """Which attacker to run, on which scenario, and how often."""

    scenario: Scenario
    level: Level
    decisions: int
    policy: str | None
    """What places while the attacker observes; None places in order to learn."""
    permutations: int = 5
    as_given: bool = False
    """Keep the secrets where the scenario has them, instead of permuting them."""
    testbed: TestbedPlan | None = None
    """How to run the testbed to observe; None observes the embedded engine."""

    def __post_init__(self) -> None:
        """Refuse plans that cannot be measured."""
        if self.level not in (Level.COUNT, Level.TOTAL):
            raise InputError(
                f"--level {self.level.word}: expected count or total (none shows nothing, and full "
                "leaves nothing to infer)"
            )
        if self.decisions < FEWEST_DECISIONS:
            raise InputError(f"--decisions {self.decisions}: expected at least {FEWEST_DECISIONS}")
        if self.permutations < 1:
            raise InputError(f"--permutations {self.permutations}: expected at least 1")

    @property
    def name(self) -> str:
        """The name of the result's file."""
        return self.level.word if self.policy else f"{self.level.word}-active"


class Trial(NamedTuple):
    """The scores of the attacker and of the guesses on one permutation of the secrets."""

    attacker: dict[int, Score]
    """By the number of decisions it observed."""
    prior: Score
    topology: Score
    explained: bool
    """Whether some constant service times explain all observations."""
    nodes: list[dict[str, Any]]
    """A row for each node."""


def permuted_world(plan: AttackPlan, number: int) -> World:
    """Return the world of one trial, with its own permutation of secrets and its own seed."""
    seed = plan.scenario.seed + number
    changes: dict[str, Any] = {"seed": seed, "disclosure": plan.level.word}
    if not plan.as_given:
        permutation = {"assignment": "shuffled", "seed": drawn(Seeds.of(seed).environment, 1)}
        changes["fog"] = plan.scenario.fog.model_copy(update=permutation)
    return build_world(plan.scenario.model_copy(update=changes))


def rehearse(plan: AttackPlan, number: int) -> dict[int, Rehearsed]:
    """Let the attacker infer in a world of its own; by the number of decisions."""
    own = replace(plan, as_given=False, testbed=None)
    world = permuted_world(own, FIRST_REHEARSAL + number)
    policy = load_attacker(plan.policy, plan.level, world.agent)
    transcript = watch(world, plan.level, policy, plan.decisions)
    estimates = infer(plan.level, transcript, marks_of(plan.decisions))
    prior, truth = _prior(world), true_service(world)
    return {mark: Rehearsed(each.service, prior, truth) for mark, each in estimates.items()}


def _prior(world: World) -> Prior:
    """Return what is known without observation, which is the same for all permutations."""
    return Prior(guess_prior(world), np.sort(true_service(world), axis=0))


def run_trial(plan: AttackPlan, number: int, trust: Mapping[int, Trust] | None = None) -> Trial:
    """Let the attacker observe one permutation, and score what it infers.

    `trust` is what it learned in rehearsals, by the number of decisions; without, it trusts its
    estimates. The order of speeds is that of the estimates themselves.
    """
    world = permuted_world(plan, number)
    if plan.testbed:
        transcript = watch_testbed(world, plan.level, plan.policy, plan.decisions, plan.testbed)
    else:
        policy = load_attacker(plan.policy, plan.level, world.agent)
        transcript = watch(world, plan.level, policy, plan.decisions)
    estimates = infer(plan.level, transcript, marks_of(plan.decisions))
    truth = true_service(world)
    prior = _prior(world)
    service = {
        mark: (trust[mark] if trust else Trust()).shrink(each.service, prior)
        for mark, each in estimates.items()
    }
    last = estimates[plan.decisions]
    return Trial(
        attacker={
            mark: score(service[mark], truth)._replace(rank=score(each.service, truth).rank)
            for mark, each in estimates.items()
        },
        prior=score(prior.guess, truth),
        topology=score(guess_topology(world), truth),
        explained=last.explained,
        nodes=_node_rows(world, transcript, service[plan.decisions], truth),
    )


def _node_rows(
    world: World, transcript: Transcript, service: Floats, truth: Floats
) -> list[dict[str, Any]]:
    placements = [node for _, node in transcript.decisions]
    true_ranks, inferred_ranks = (_speed_ranks(table) for table in (truth, service))
    return [
        {
            "node": name,
            "workloads": placements.count(number),
            "true_service": float(truth[number].mean()),
            "inferred_service": float(service[number].mean()),
            "error": float(np.abs(service[number] / truth[number] - 1).mean()),
            "true_place": int(true_ranks[number]),
            "inferred_place": int(inferred_ranks[number]),
        }
        for number, name in enumerate(world.nodes)
    ]


def _speed_ranks(service: Floats) -> Ints:
    """Return the rank of each node by speed; the fastest has 1."""
    speeds = log_speeds(service)
    return np.argsort(np.argsort(-speeds, kind="stable"), kind="stable") + 1


def measure(
    plan: AttackPlan, crew: Crew, progress: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """Run the attacker on every permutation; return means and 95 % intervals over them.

    `progress` is called with the number of finished permutations.
    """
    trials = []
    for trial in _run_trials(plan, crew):
        trials.append(trial)
        if progress:
            progress(len(trials))
    return {
        "name": plan.scenario.name,
        "level": plan.level.word,
        "active": plan.policy is None,
        "policy": plan.policy,
        "decisions": plan.decisions,
        "mode": plan.testbed.mode if plan.testbed else "embedded",
        "permutations": plan.permutations,
        "as_given": plan.as_given,
        "seed": plan.scenario.seed,
        "marks": list(trials[0].attacker),
        "attacker": [
            _mean_score(trial.attacker[mark] for trial in trials) for mark in trials[0].attacker
        ],
        "prior": _mean_score(trial.prior for trial in trials),
        "topology": _mean_score(trial.topology for trial in trials),
        "unexplained": sum(not trial.explained for trial in trials),
        "nodes": trials[0].nodes,
        "scenario": plan.scenario.model_dump(mode="json", exclude={"disclosure"}),
    }


def _mean_score(scores: Iterable[Score]) -> dict[str, Any]:
    errors, ranks = zip(*((each.error, each.rank) for each in scores), strict=True)
    return {"error": _to_json(estimate(errors)), "rank": _to_json(estimate(ranks))}


def _to_json(value: Estimate) -> dict[str, float | None]:
    return {"mean": value.mean, "ci95": value.half_width}


def _run_trials(plan: AttackPlan, crew: Crew) -> Iterator[Trial]:
    """Rehearse and run the trials, and yield them in order."""
    rehearsals = [RehearsalOrder(plan, number) for number in range(REHEARSALS)]
    trust = _learn(compute_in_order(rehearsals, crew))
    numbers = range(plan.permutations)
    if plan.testbed:  # which uses all cores by itself
        yield from (run_trial(plan, number, trust) for number in numbers)
        return
    yield from compute_in_order([TrialOrder(plan, number, trust) for number in numbers], crew)


@dataclass(frozen=True)
class AttackOrder:
    """What a worker computes of an attack."""

    plan: AttackPlan
    number: int

    def list_files(self, files: FileList) -> None:
        """Name the files of the scenario and of the policy."""
        files.add_scenario(self.plan.scenario)
        if self.plan.policy:
            files.add_policy(self.plan.policy)

    def plan_at(self, located: Located) -> AttackPlan:
        """Return the plan with its files as the worker has them."""
        policy = self.plan.policy and located.policy(self.plan.policy)
        return replace(self.plan, scenario=located.scenario(self.plan.scenario), policy=policy)


class RehearsalOrder(AttackOrder):
    """A rehearsal."""

    def compute(self, located: Located) -> dict[int, Rehearsed]:
        """Rehearse."""
        return rehearse(self.plan_at(located), self.number)


@dataclass(frozen=True)
class TrialOrder(AttackOrder):
    """A trial, with what was learned in rehearsals."""

    trust: Mapping[int, Trust]

    def compute(self, located: Located) -> Trial:
        """Observe and infer."""
        return run_trial(self.plan_at(located), self.number, self.trust)


def _learn(rehearsals: Iterable[dict[int, Rehearsed]]) -> dict[int, Trust]:
    """Return how far to trust an estimate after each number of decisions."""
    played = list(rehearsals)
    return {mark: learn_trust([each[mark] for each in played]) for mark in played[0]}
