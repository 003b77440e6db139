"""The leakage meter where a speed changes in secret: when the attacker knows the new one.

Its estimate is that of the policies which adapt (ci-setr and veil from counts, ti-setr and
veil-total from the total): what lets them adapt is what tells the secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fogveil.agent.inference.fog_belief import FogBelief
from fogveil.agent.inference.total_belief import TotalBelief
from fogveil.agent.inference.transcript import Floats
from fogveil.agent.policy import Level
from fogveil.core.errors import InputError
from fogveil.testbed.engine.embedded import Embedded, take_decisions
from fogveil.testbed.privacy.leakage.attackers import load_attacker
from fogveil.testbed.privacy.leakage.meter import AttackOrder, AttackPlan, permuted_world
from fogveil.testbed.privacy.leakage.scoring import log_speeds, rank_correlation
from fogveil.testbed.scenario.events import SpeedEvent
from fogveil.testbed.scenario.models import Scenario
from fogveil.testbed.scenario.world import World
from fogveil.testbed.workers.files import Located
from fogveil.testbed.workers.work import Crew, compute_in_order

BEFORE = 200
"""Decisions before the change that are shown, too, as far as there are so many."""
WITHIN = 0.05
"""The largest error of somebody who knows."""
KEPT = 50
"""Decisions for which it must stay so: one estimate may be right by chance."""
RANK_SLACK = 0.01


class Course(NamedTuple):
    """How one attacker's estimate went, decision by decision, from some before the change on."""

    before: int
    """The decisions before the change."""

    error: Floats
    """Of the mean service time of the node that changes, against what it is at the time."""
    rank: Floats
    """The rank correlation of all speeds."""
    for_node: Floats
    """Decisions for that node since the change."""


class Known(NamedTuple):
    """After how many decisions since the change something was known; None if it never was."""

    decisions: int | None
    for_node: int | None


def speed_event(scenario: Scenario) -> SpeedEvent | None:
    """Return the first change of a speed; the attack is measured by it."""
    return next((event for event in scenario.events if isinstance(event, SpeedEvent)), None)


def follow(plan: AttackPlan, number: int) -> Course:
    """Let the attacker observe one permutation of the secrets until long after the change."""
    world = permuted_world(plan, number)
    event = speed_event(plan.scenario)
    assert event is not None
    node = world.nodes.index(event.node)
    rows: list[tuple[float, float, float]] = []
    since, for_node = 0, 0
    for time, service, chosen in _estimates(world, plan):
        truth = _true_service(world, time)
        error = abs(service[node].mean() / truth[node].mean() - 1)
        rank = rank_correlation(log_speeds(service), log_speeds(truth))
        if time >= event.at:
            since += 1
            for_node += chosen == node
        else:
            rows = rows[-BEFORE + 1 :]
        rows.append((float(error), rank, float(for_node)))
        if since == plan.decisions:
            break
    before = len(rows) - since
    if not before or since < plan.decisions:
        raise InputError(
            f"the speed changes at {event.at:g}, and the scenario has no decision before it, or "
            f"fewer than --decisions {plan.decisions} after it"
        )
    return Course(before, *np.array(rows).T)


def _estimates(world: World, plan: AttackPlan) -> Iterator[tuple[float, Floats, int]]:
    """Return, for each decision, its time, the service times inferred so far, and its node."""
    endless = replace(world, sources=replace(world.sources, horizon=inf))
    engine = Embedded(endless, plan.level)
    view = world.agent
    belief = FogBelief(view) if plan.level is Level.COUNT else TotalBelief(view)
    policy = load_attacker(plan.policy, plan.level, view)
    for observation, node in take_decisions(engine, policy):
        if engine.new_latencies:
            belief.update(engine.new_latencies.applied_to(view))
        belief.observe(observation)
        yield observation.time, np.array(belief.service), node
        belief.placed(node, observation.job, observation.cluster, observation.category)


def _true_service(world: World, time: float) -> Floats:
    """Return the service times, [node, category], that hold at an instant."""
    rows = []
    for fog in world.fogs:
        ipt, work = fog.ipt, fog.instructions
        for change in fog.changes:
            if change.at <= time:
                ipt = ipt if change.ipt is None else change.ipt
                work = work if change.instructions is None else change.instructions
        rows.append([each / ipt for each in work])
    return np.array(rows)


def known_after(course: Course, holds: npt.NDArray[np.bool_]) -> Known:
    """Return after how many decisions something holds, and goes on to for `KEPT` more.

    >>> course = Course(9, *np.zeros((2, 109)), np.arange(109.0) - 9)
    >>> known_after(course, np.arange(109) >= 9 + 7)
    Known(decisions=7, for_node=6)
    """
    after = holds[course.before :]
    for first in range(len(after) - KEPT + 1):
        if after[first : first + KEPT].all():
            # The estimate of a decision is made before its own placement.
            return Known(first, int(course.for_node[course.before + first - 1]) if first else 0)
    return Known(None, None)


class CourseOrder(AttackOrder):
    """One attacker's course."""

    def compute(self, located: Located) -> Course:
        """Follow the attacker."""
        return follow(self.plan_at(located), self.number)


def measure_change(
    plan: AttackPlan, crew: Crew, progress: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """Follow the attacker on every permutation; return medians over them.

    `progress` is called with the number of finished permutations.
    """
    if plan.testbed:
        raise InputError("a change of speed is measured in this process: leave --federated out")
    courses: list[Course] = []
    orders = [CourseOrder(plan, number) for number in range(plan.permutations)]
    for course in compute_in_order(orders, crew):
        courses.append(course)
        if progress:
            progress(len(courses))
    return summarise(plan, courses)


def summarise(plan: AttackPlan, courses: Sequence[Course]) -> dict[str, Any]:
    """Return the medians over courses, and when each knew."""
    event = speed_event(plan.scenario)
    assert event is not None
    before = [float(course.rank[: course.before].mean()) for course in courses]
    common = min(course.before for course in courses)
    known = {
        "service": [known_after(course, course.error <= WITHIN) for course in courses],
        "rank": [
            known_after(course, course.rank >= rank - RANK_SLACK)
            for course, rank in zip(courses, before, strict=True)
        ],
    }
    return {
        "name": plan.scenario.name,
        "level": plan.level.word,
        "active": plan.policy is None,
        "policy": plan.policy,
        "decisions": plan.decisions,
        "permutations": plan.permutations,
        "seed": plan.scenario.seed,
        "event": event.model_dump(mode="json"),
        "first": -common,
        "error": np.median([each.error[each.before - common :] for each in courses], 0).tolist(),
        "rank": np.median([each.rank[each.before - common :] for each in courses], 0).tolist(),
        "rank_before": median(before),
        "known": {what: [each._asdict() for each in found] for what, found in known.items()},
    }
