"""The work of `fogveil change`, where each result is kept, and what is not finished.

Its runs are those of a comparison, of agents that learn at work, and of retrained agents.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import fogveil.agent.policies as policies
from fogveil.agent.learning.adaptation import AdaptationRequest, parse_adapt
from fogveil.agent.learning.transfer import Transfer
from fogveil.agent.policies.parl import FILE
from fogveil.core.files import write_private
from fogveil.testbed.engine.adapting_run import run_adapting
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.experiments.change.attack import attack_runs
from fogveil.testbed.experiments.change.handover import Handover
from fogveil.testbed.experiments.change.plan import (
    ADAPTING,
    AT,
    HORIZON,
    IN_SYSTEM,
    KINDS,
    OUT,
    PARL,
    RETRAINED,
    SCRATCH,
    SEEDS,
    TRAINING_SEEDS,
    TRANSFERRED,
    ChangeTraining,
    Kind,
    trainings,
)
from fogveil.testbed.experiments.comparison import ComparedRun, prepare
from fogveil.testbed.experiments.planned_work import (
    Outstanding,
    Task,
    check_trainings,
    run_seconds,
)
from fogveil.testbed.experiments.training_work import TrainingWork
from fogveil.testbed.records.job_times import JobTimes, JobTimesRecord
from fogveil.testbed.records.output import reporting_write_errors
from fogveil.testbed.scenario.world import build_world
from fogveil.testbed.source_tree import code_digest
from fogveil.testbed.workers.files import FileList, Located

TRAINING_SECONDS = {SCRATCH: 31.0, TRANSFERRED: 7.0}
"""CPU time when last measured."""
ADAPTING_SECONDS = {"on": 2.0, "auto": 0.5}
HANDOVER_SECONDS = 0.5
POLICY_SECONDS = {"veil-total": 11.0}
"""Of runs that take longer here than elsewhere: after a change totals are explained anew."""
DECISIONS = 3600
"""Of a run, about."""
MODULES = (
    "fogveil.testbed.engine.adapting_run",
    "fogveil.testbed.engine.run",
    "fogveil.agent.learning.parl",
    "fogveil.agent.policies.parl",
    "fogveil.testbed.experiments.change.handover",
)
"""What runs of this module execute, but for what these import."""


def _result_path(kind: Kind, name: str, seed: int, agent: str = "") -> Path:
    """Return a result's file; its name changes with whatever could change the result."""
    code = code_digest(frozenset(MODULES))
    content = json.dumps([kind.scenario(seed, "total").model_dump_json(), name, agent, code])
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    return OUT / "learning" / f"{kind.name}_{name.replace(' ', '-')}_{seed}_{digest}.npz"


class KeptRun:
    """A run of which the times of its workloads are kept."""

    name = ""

    @property
    def path(self) -> Path:
        """The file of the result."""
        raise NotImplementedError

    def keep(self, found: bytes) -> None:
        """Write the result."""
        with reporting_write_errors(self.path):
            write_private(self.path, found)


@dataclass(frozen=True)
class AdaptingRun(KeptRun):
    """A run of the shipped PARL that goes on learning."""

    kind: Kind
    method: str
    seed: int

    @property
    def path(self) -> Path:
        """The file of the result."""
        return _result_path(self.kind, self.method, self.seed)

    def order(self) -> AdaptingRun:
        """Return itself: it has all that a worker needs."""
        return self

    def list_files(self, files: FileList) -> None:
        """Name nothing: all of it ships."""

    def compute(self, _located: Located) -> bytes:
        """Run it and return when its workloads came back."""
        times = JobTimesRecord()
        scenario = self.kind.scenario(self.seed, "total")
        request = AdaptationRequest(parse_adapt(ADAPTING[self.method]))
        run_adapting(scenario, PARL, request, watchers=[times])
        return times.content()


@dataclass(frozen=True)
class RetrainedRun(KeptRun):
    """A run in which a retrained agent takes over from the shipped one at the change."""

    training: ChangeTraining
    seed: int

    @property
    def path(self) -> Path:
        """The file of the result; known once the agent is trained."""
        agent = hashlib.sha256(self.training.light.read_bytes()).hexdigest()
        name = f"{self.training.method} {self.training.seed}"
        return _result_path(self.training.kind, name, self.seed, agent)

    def order(self) -> RetrainedRun:
        """Return itself: it has all that a worker needs."""
        return self

    def list_files(self, files: FileList) -> None:
        """Name the retrained agent."""
        files.add(self.training.light)

    def compute(self, located: Located) -> bytes:
        """Run it and return when its workloads came back."""
        times = JobTimesRecord()
        scenario = self.training.kind.scenario(self.seed, "total")
        retrained = located.path(self.training.light)
        policy = Handover(build_world(scenario).agent, PARL, retrained, AT)
        run_embedded(scenario, policy, watchers=[times])
        return times.content()


def transfer_of(training: ChangeTraining) -> TrainingWork:
    """Return a training that starts from the shipped PARL."""
    return TrainingWork(
        training.load_scenario(),
        training.agent,
        training.folder,
        training.hyperparameters,
        Transfer(FILE),
    )


def find_outstanding() -> Outstanding:
    """Return the work that is not finished, after a check of what is."""
    (OUT / "learning").mkdir(parents=True, exist_ok=True)
    planned = trainings()
    check_trainings(planned)
    outstanding = Outstanding([], [], [])
    for training in planned:
        seconds = TRAINING_SECONDS[training.method]
        if not training.finished and training.method == SCRATCH:
            outstanding.trainings.append(Task(seconds, training=training))
        elif not training.finished:
            outstanding.trainings.append(Task(seconds, other=transfer_of(training)))
        for seed in range(1, SEEDS + 1):
            run = RetrainedRun(training, seed)
            if not training.finished or not run.path.exists():
                tasks = outstanding.runs if training.finished else outstanding.later_runs
                tasks.append(Task(HANDOVER_SECONDS, other=run))
    for kind in (*KINDS, *IN_SYSTEM):
        comparison = kind.comparison
        for compared in prepare(comparison)[1]:
            label = policies.label_of(compared.policy)
            seconds = POLICY_SECONDS.get(label) or run_seconds(label, DECISIONS)
            outstanding.runs.append(Task(seconds, comparison=comparison, run=compared))
        for method, word in ADAPTING.items():
            runs = [AdaptingRun(kind, method, seed) for seed in range(1, SEEDS + 1)]
            outstanding.runs.extend(
                Task(ADAPTING_SECONDS[word], other=run)
                for run in runs
                if method in kind.methods and not run.path.exists()
            )
    outstanding.runs.extend(
        Task(run.attacker.seconds, other=run) for run in attack_runs() if not run.path.exists()
    )
    return outstanding


def read_times(kind: Kind, method: str, seed: int) -> list[JobTimes]:
    """Return the finished runs of a method on one seed: one, or one for each training."""
    if method in ADAPTING:
        return [JobTimes.load(AdaptingRun(kind, method, seed).path)]
    if method in RETRAINED:
        chosen = [t for t in trainings() if (t.kind, t.method) == (kind, method)]
        assert len(chosen) == len(TRAINING_SEEDS)
        return [JobTimes.load(RetrainedRun(training, seed).path) for training in chosen]
    return [kind.comparison.times_of(ComparedRun(method, None, HORIZON, seed))]
