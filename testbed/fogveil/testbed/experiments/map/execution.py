"""The work of the map that is not finished."""

from __future__ import annotations

from fogveil.testbed.experiments.comparison import prepare
from fogveil.testbed.experiments.map.plan import POINTS, PointTraining, comparison_of, trainings
from fogveil.testbed.experiments.planned_work import Outstanding, Task, check_trainings

TRAINING_SECONDS = 125.0
"""CPU time of a training at full length when last measured."""
RUN_SECONDS = {1: 0.3, 10: 2.0}
"""CPU time of a run by its horizon, in horizons of training."""


def find_outstanding() -> Outstanding:
    """Return the work that is not finished, after a check of what is."""
    planned = trainings(POINTS)
    check_trainings(planned)
    outstanding = Outstanding([], [], [])
    for training in planned:
        if not training.finished:
            outstanding.trainings.append(Task(_seconds(training), training=training))
    for point in POINTS:
        comparison = comparison_of(point)
        ready = all(training.finished for training in trainings([point]))
        runs = prepare(comparison)[1] if ready else comparison.runs()
        tasks = outstanding.runs if ready else outstanding.later_runs
        for run in runs:
            seconds = RUN_SECONDS[round(run.horizon / comparison.horizons[0])]
            tasks.append(Task(seconds, comparison=comparison, run=run))
    return outstanding


def _seconds(training: PointTraining) -> float:
    slower = 1 + training.point.decay if training.point.decay > 0.5 else 1.0  # noqa: PLR2004
    return TRAINING_SECONDS * slower / (1 if training.point.full_length else 4)
