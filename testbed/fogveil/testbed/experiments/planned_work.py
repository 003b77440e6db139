"""Trainings and runs that a plan still has to do: expected time, and execution by workers.

Every training continues from its last checkpoint and every run is a file of its own, so whatever
stops the command loses minutes at most.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fogveil.agent.learning.checkpoint import read_header
from fogveil.agent.learning.hyperparameters import Hyperparameters, change_hyperparameters
from fogveil.agent.learning.training_state import AGENT_FILE
from fogveil.core.errors import InputError
from fogveil.testbed.experiments.comparison import ComparedRun, Comparison, RunWork
from fogveil.testbed.experiments.training_work import TrainingWork
from fogveil.testbed.records.output import reporting_write_errors
from fogveil.testbed.records.training_log import DESCRIPTION, scenario_digest
from fogveil.testbed.scenario import Scenario
from fogveil.testbed.workers.work import Crew, Order, Work, work_through

TRAINING_SECONDS = {
    "parl": 125.0,
    "plrl-ed": 100.0,
    "plrl-ql": 100.0,
    "plrl-edql": 100.0,
    "veil-total": 120.0,
}
"""CPU time of a whole training when last measured; it grows with the agent's share."""
OTHER_TRAINING_SECONDS = 30.0
DECISION_SECONDS = {
    "electre-queue": 160e-6,
    "ci-setr": 90e-6,
    "veil": 160e-6,
    "veil-total": 160e-6,
}
OTHER_DECISION_SECONDS = 25e-6
RUN_SECONDS = 0.03
"""CPU time of a run beside its decisions."""
INFERENCE_SECONDS = 6.0
"""CPU time of a run that infers service times from totals, beside its decisions."""
INFERRING = ("veil-total", "ti-setr")


def training_seconds(agent: str) -> float:
    """Return the CPU time that a whole training of an agent is expected to take."""
    return TRAINING_SECONDS.get(agent, OTHER_TRAINING_SECONDS)


def run_seconds(policy: str, decisions: float) -> float:
    """Return the CPU time that a run of a policy, by its label, is expected to take."""
    each = DECISION_SECONDS.get(policy, OTHER_DECISION_SECONDS)
    return RUN_SECONDS + each * decisions + INFERENCE_SECONDS * policy.startswith(INFERRING)


class TrainingFolder:
    """A training by its folder: what a plan's trainings share."""

    @property
    def folder(self) -> Path:
        """The training's folder."""
        raise NotImplementedError

    @property
    def light(self) -> Path:
        """The trained agent's file."""
        return self.folder / AGENT_FILE

    @property
    def finished(self) -> bool:
        """Whether the trained agent exists."""
        return self.light.exists()


class Training(Protocol):
    """A training of some plan."""

    @property
    def agent(self) -> str:
        """The agent's name."""

    @property
    def folder(self) -> Path:
        """The training's folder."""

    @property
    def light(self) -> Path:
        """The trained agent's file."""

    @property
    def finished(self) -> bool:
        """Whether the trained agent exists."""

    @property
    def hyperparameters(self) -> Hyperparameters:
        """Those of the training."""

    def load_scenario(self) -> Scenario:
        """Return the scenario with the training's seed."""


class NamedWork(Work, Protocol):
    """Work of another kind."""

    @property
    def name(self) -> str:
        """What is reported when it is done; may be empty."""


class Task(NamedTuple):
    """A piece of work: a training, one run of an evaluation, or something else."""

    seconds: float
    """CPU time that it is expected to take."""
    training: Training | None = None
    comparison: Comparison | None = None
    run: ComparedRun | None = None
    other: NamedWork | None = None
    """Work of another kind, of which only its plan knows what it is."""

    @property
    def name(self) -> str:
        """What is reported when it is done; nothing for a run."""
        if self.other:
            return self.other.name
        return self.training.folder.name if self.training else ""

    @property
    def work(self) -> Work:
        """What is to be done: a training begun or continued, a run, and so on."""
        if self.other:
            return self.other
        if self.training:
            training = self.training
            scenario = training.load_scenario()
            return TrainingWork(scenario, training.agent, training.folder, training.hyperparameters)
        assert self.comparison is not None
        assert self.run is not None
        return RunWork(self.comparison, self.run)

    def order(self) -> Order:
        """Return what a worker has to compute."""
        return self.work.order()

    def keep(self, found: Any) -> None:
        """Write what was computed."""
        self.work.keep(found)


def check_trainings(trainings: Iterable[Training]) -> None:
    """Refuse finished trainings that are not those of the plan: of other seeds, scenarios, lengths.

    They may have been made elsewhere, by `fogveil train` with the same options.
    """
    for training in trainings:
        if not training.finished:
            continue
        header = read_header(training.light)
        kept = change_hyperparameters(
            training.hyperparameters, header.get("hyperparameters", {}), str(training.light)
        )
        different = [] if header["agent"] == training.agent else ["agent"]
        different += [] if kept == training.hyperparameters else ["hyperparameters"]
        if _trained_on(training.folder) != scenario_digest(training.load_scenario()):
            different.append("scenario")
        if different:
            raise InputError(
                f"{training.folder}: holds another training: its {' and '.join(different)} "
                "differs from the plan's; remove the folder to train again, or choose another --out"
            )


def _trained_on(folder: Path) -> str | None:
    """Return the digest of the scenario of a training; None where it is not known."""
    try:
        digest = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))["digest"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return digest if isinstance(digest, str) else None


class Outstanding(NamedTuple):
    """The work that is not finished."""

    trainings: list[Task]
    runs: list[Task]
    """Of shipped policies and of agents that are trained already."""
    later_runs: list[Task]
    """Of agents that are to be trained first."""

    @property
    def seconds(self) -> float:
        """The CPU time that is expected."""
        return sum(task.seconds for tasks in self for task in tasks)


class Remaining:
    """The time that remains, from the tasks' expected times and how long they really took."""

    def __init__(
        self, seconds: float, workers: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.total, self.done = seconds, 0.0
        self._workers, self._now = workers, now
        self._begin = now()

    def finished(self, task: Task) -> None:
        """Count a task as done."""
        self.done += task.seconds

    @property
    def seconds(self) -> float:
        """The wall time that remains; by the pace so far once there is one.

        >>> clock = iter([0.0, 30.0])
        >>> remaining = Remaining(100.0, 2, now=lambda: next(clock))
        >>> remaining.finished(Task(50.0))
        >>> remaining.seconds  # half of it took 30 seconds
        30.0
        """
        left = self.total - self.done
        if self.done <= self.total / 50:
            return left / self._workers
        return left / self.done * (self._now() - self._begin)


def execute_outstanding(
    outstanding: Outstanding, crew: Crew, on_done: Callable[[Task], None]
) -> None:
    """Execute all of it; runs that need no training fill the cores while the last agents train."""
    for tasks in ([*outstanding.trainings, *outstanding.runs], outstanding.later_runs):
        for folder in dict.fromkeys(task.comparison.out for task in tasks if task.comparison):
            with reporting_write_errors(folder):
                (folder / "runs").mkdir(parents=True, exist_ok=True)
        for task in work_through(tasks, crew):
            on_done(task)


def describe_work(seconds: float, workers: int | None) -> str:
    """Return in words how long CPU time takes; not known for workers that are still to come.

    >>> describe_work(1200, 4), describe_work(1200, None)
    ('about 5 minutes with 4 workers', 'about 20 minutes of CPU time')
    """
    if workers is None:
        return f"{describe_time(seconds)} of CPU time"
    return f"{describe_time(seconds / workers)} with {workers} worker{'s' if workers > 1 else ''}"


def describe_time(seconds: float) -> str:
    """Return a time in words.

    >>> describe_time(20), describe_time(100), describe_time(9000)
    ('less than a minute', 'about 2 minutes', 'about 2 h 30 min')
    """
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute"
    if minutes < 90:  # noqa: PLR2004
        return f"about {minutes} minute{'s' if minutes > 1 else ''}"
    return f"about {minutes // 60} h {minutes % 60} min"
