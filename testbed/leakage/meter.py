"""The measurement: the attacker's error on permuted secrets, beside guesses without observation.

What is estimated is the service time of each application at each node, in simulated time. Looks
and placements are dated in simulated time, so no scale is left free: the error is absolute, the
mean of |inferred / true - 1| over nodes and applications. A node's speed is the reciprocal of its
service times, and the rank correlation is Spearman's, of inferred and true speeds.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import active_children
from typing import Any, NamedTuple

import numpy as np

from agent.inference.inferring import infer
from agent.inference.transcript import Floats, Ints, Transcript, marks_of
from agent.policy import Level
from fogveil.errors import InputError, SurroundingsError
from fogveil.randomness import Seeds, drawn
from testbed.federated.split import Plan as TestbedPlan
from testbed.leakage.attackers import attacker, watch, watch_testbed
from testbed.scenario import Scenario
from testbed.statistics import Estimate, estimate
from testbed.world import World, build_world

FEWEST_DECISIONS = 32
"""Below this the first of the marks would hold a decision or none."""
GUESSES = ("prior", "topology")


@dataclass(frozen=True)
class Plan:
    """Which attacker is played, on which scenario, and how often."""

    scenario: Scenario
    level: Level
    decisions: int
    policy: str | None
    """Who places while the attacker watches; None places in order to learn."""
    permutations: int = 5
    as_given: bool = False
    """Leave the secrets where the scenario puts them, instead of dealing them out at random."""
    testbed: TestbedPlan | None = None
    """How a testbed is brought up to be watched; None watches the embedded engine."""

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if self.level not in (Level.COUNT, Level.TOTAL):
            raise InputError(
                f"--level {self.level.word}: expected count or total (at none nothing is seen, "
                "at full nothing is left to infer)"
            )
        if self.decisions < FEWEST_DECISIONS:
            raise InputError(f"--decisions {self.decisions}: expected at least {FEWEST_DECISIONS}")
        if self.permutations < 1:
            raise InputError(f"--permutations {self.permutations}: expected at least 1")

    @property
    def name(self) -> str:
        """What results are filed under."""
        return self.level.word if self.policy else f"{self.level.word}-active"


class Score(NamedTuple):
    """How near an estimate comes to the truth."""

    error: float
    rank: float
    per_node: list[float]


class Trial(NamedTuple):
    """One permutation of the secrets: what the attacker and the guesses make of it."""

    attacker: dict[int, Score]
    """By the number of decisions."""
    prior: Score
    topology: Score
    explained: bool
    nodes: list[dict[str, Any]]


def permuted(plan: Plan, number: int) -> World:
    """Return the scenario with the secrets of one trial, and chance events of its own."""
    seed = plan.scenario.seed + number
    changes: dict[str, Any] = {"seed": seed, "disclosure": plan.level.word}
    if not plan.as_given:
        deal = {"assignment": "shuffled", "seed": drawn(Seeds.of(seed).environment, 1)}
        changes["fog"] = plan.scenario.fog.model_copy(update=deal)
    return build_world(plan.scenario.model_copy(update=changes))


def run_trial(plan: Plan, number: int) -> Trial:
    """Let the attacker watch one permutation, and score what it infers."""
    world = permuted(plan, number)
    if plan.testbed:
        transcript = watch_testbed(world, plan.level, plan.policy, plan.decisions, plan.testbed)
    else:
        policy = attacker(plan.policy, plan.level, world.agent)
        transcript = watch(world, plan.level, policy, plan.decisions)
    found = infer(plan.level, transcript, marks_of(plan.decisions))
    truth = true_service(world)
    last = found[plan.decisions]
    return Trial(
        attacker={mark: score(one.service, truth) for mark, one in found.items()},
        prior=score(guess_prior(world), truth),
        topology=score(guess_topology(world), truth),
        explained=last.explained,
        nodes=_node_rows(world, transcript, last.service, truth),
    )


def true_service(world: World) -> Floats:
    """Return the mean service time of each application at each node, [node, category]."""
    return np.array([[work / fog.ipt for work in fog.instructions] for fog in world.fogs])


def guess_prior(world: World) -> Floats:
    """Guess the mean speed for every node; what the mean is, this guess is told."""
    mean = float(np.mean([fog.ipt for fog in world.fogs]))
    return np.array([[work / mean for work in fog.instructions] for fog in world.fogs])


def guess_topology(world: World) -> Floats:
    """Guess by public centrality, as the scenario deals speeds out before they are permuted.

    Which speeds there are, this guess is told; whose they are, it guesses.
    """
    fog = world.scenario.fog.model_copy(update={"assignment": "centrality"})
    return true_service(build_world(world.scenario.model_copy(update={"fog": fog})))


def score(service: Floats, truth: Floats) -> Score:
    """Compare inferred service times with the true ones."""
    off = np.abs(service / truth - 1)
    rank = rank_correlation(_speeds(service), _speeds(truth))
    return Score(float(off.mean()), rank, off.mean(axis=1).tolist())


def rank_correlation(one: Floats, other: Floats) -> float:
    """Return Spearman's correlation, 0 where one side makes no difference between nodes.

    >>> rank_correlation(np.array([1.0, 2.0, 9.0]), np.array([5.0, 6.0, 7.0]))
    1.0
    """
    ranks = [_ranks(values) - (len(values) - 1) / 2 for values in (one, other)]
    spread = float(np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum()))
    return float((ranks[0] * ranks[1]).sum()) / spread if spread else 0.0


def _ranks(values: Floats) -> Floats:
    """Equal values share their mean rank; differences of a rounding error are none."""
    _, place, size = np.unique(values.round(12), return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(size) - (size + 1) / 2)[place]
    return ranks


def _speeds(service: Floats) -> Floats:
    """Speeds in logarithms, up to what all have in common."""
    speeds: Floats = -np.log(service).mean(axis=1)
    return speeds


def _node_rows(
    world: World, transcript: Transcript, service: Floats, truth: Floats
) -> list[dict[str, Any]]:
    sent = [node for _, node in transcript.decisions]
    places = [_places(_speeds(table)) for table in (truth, service)]
    return [
        {
            "node": name,
            "workloads": sent.count(number),
            "true_service": float(truth[number].mean()),
            "inferred_service": float(service[number].mean()),
            "error": float(np.abs(service[number] / truth[number] - 1).mean()),
            "true_place": int(places[0][number]),
            "inferred_place": int(places[1][number]),
        }
        for number, name in enumerate(world.nodes)
    ]


def _places(speeds: Floats) -> Ints:
    """The fastest node's is 1."""
    return np.argsort(np.argsort(-speeds, kind="stable"), kind="stable") + 1


def measure(plan: Plan, done: Callable[[int], None] | None = None) -> dict[str, Any]:
    """Play the attacker on every permutation; return means and 95 % intervals over them."""
    trials = []
    for trial in _trials(plan):
        trials.append(trial)
        if done:
            done(len(trials))
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
            _over(trial.attacker[mark] for trial in trials) for mark in trials[0].attacker
        ],
        "prior": _over(trial.prior for trial in trials),
        "topology": _over(trial.topology for trial in trials),
        "unexplained": sum(not trial.explained for trial in trials),
        "nodes": trials[0].nodes,
        "scenario": plan.scenario.model_dump(mode="json", exclude={"disclosure"}),
    }


def _over(scores: Iterable[Score]) -> dict[str, Any]:
    found = list(scores)
    errors, ranks = [one.error for one in found], [one.rank for one in found]
    return {"error": _spelled(estimate(errors)), "rank": _spelled(estimate(ranks))}


def _spelled(value: Estimate) -> dict[str, float | None]:
    return {"mean": value.mean, "ci95": value.half_width}


def _trials(plan: Plan) -> Iterator[Trial]:
    """Run the trials on all cores, in their order."""
    workers = min(len(os.sched_getaffinity(0)), plan.permutations)
    if workers == 1 or plan.testbed:  # which takes all cores by itself
        yield from (run_trial(plan, number) for number in range(plan.permutations))
        return
    pool = ProcessPoolExecutor(workers, initializer=_leave_signals_to_the_parent)
    try:
        futures = [pool.submit(run_trial, plan, number) for number in range(plan.permutations)]
        for future in futures:
            yield future.result()
    except BrokenProcessPool as error:
        raise SurroundingsError("a worker process died") from error
    except BaseException:
        for worker in active_children():
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_signals_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
