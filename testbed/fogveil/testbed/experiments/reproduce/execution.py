"""The work of a plan of `fogveil reproduce` that is not finished."""

from __future__ import annotations

from collections.abc import Iterable

from fogveil.testbed.experiments.comparison import prepare
from fogveil.testbed.experiments.planned_work import (
    Outstanding,
    Task,
    check_trainings,
    run_seconds,
    training_seconds,
)
from fogveil.testbed.experiments.reproduce.plan import Evaluation, Plan
from fogveil.testbed.scenario import load_scenario

SOURCES = 24
"""Clusters times applications in most scenarios."""


def training_tasks(plan: Plan) -> list[Task]:
    """Return the trainings that are not finished, the longest first."""
    tasks = [
        Task(training_seconds(t.agent) * t.share, training=t)
        for t in plan.trainings
        if not t.finished
    ]
    return sorted(tasks, key=lambda task: -task.seconds)


def run_tasks(evaluations: Iterable[Evaluation]) -> list[Task]:
    """Return the runs that are not finished, the longest first."""
    tasks = []
    for evaluation in evaluations:
        comparison = evaluation.comparison
        outstanding = prepare(comparison)[1] if evaluation.ready else comparison.runs()
        own = None
        for run in outstanding:
            if run.rate is None and own is None:
                own = getattr(load_scenario(comparison.file).sources, "scale", None)
            decisions = SOURCES * run.horizon / (run.rate or own or 1.0)
            seconds = run_seconds(evaluation.method, decisions)
            tasks.append(Task(seconds, comparison=comparison, run=run))
    return sorted(tasks, key=lambda task: -task.seconds)


def find_outstanding(plan: Plan) -> Outstanding:
    """Return the work that is not finished, after a check of what is."""
    check_trainings(plan.trainings)
    ready = [evaluation for evaluation in plan.evaluations if evaluation.ready]
    later = [evaluation for evaluation in plan.evaluations if not evaluation.ready]
    return Outstanding(training_tasks(plan), run_tasks(ready), run_tasks(later))
