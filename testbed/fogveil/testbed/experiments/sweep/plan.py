"""The trainings and runs of a sweep, which of them are not done, and their order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import fogveil.agent.policies as policies
from fogveil.agent.learning.hyperparameters import Hyperparameters, change_hyperparameters
from fogveil.agent.learning.registry import find_agent
from fogveil.testbed.experiments.comparison import Comparison, find_finished
from fogveil.testbed.experiments.planned_work import (
    Outstanding,
    Task,
    TrainingFolder,
    check_trainings,
    run_seconds,
    training_seconds,
)
from fogveil.testbed.experiments.sweep.definition import Point, Sweep, TrainedAgent
from fogveil.testbed.scenario import Scenario, load_scenario


@dataclass(frozen=True)
class SweptTraining(TrainingFolder):
    """A training of an agent, at one point of the sweep or at a point of its own."""

    file: str
    overrides: Point
    settings: TrainedAgent
    seed: int
    out: Path

    @property
    def agent(self) -> str:
        """The agent's name."""
        return self.settings.agent

    @cached_property
    def folder(self) -> Path:
        """The training's folder: its name changes with whatever could change the training."""
        content = [self.load_scenario().model_dump_json(), self.hyperparameters.model_dump_json()]
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:8]
        name = f"{self.load_scenario().name}-{self.agent}-{digest}-{self.seed}"
        return self.out / "training" / name

    @property
    def hyperparameters(self) -> Hyperparameters:
        """The agent's own, with what the sweep changes of them."""
        own = find_agent(self.agent).defaults
        return change_hyperparameters(own, self.settings.hyperparameters, f"agent {self.agent}")

    def load_scenario(self) -> Scenario:
        """Return the scenario of the training, with the training's seed and the agent's level."""
        level = find_agent(self.agent).needs.word
        return load_scenario(self.file, {"disclosure": level, **self.overrides, "seed": self.seed})


@dataclass(frozen=True)
class Cell:
    """One policy, or one trained agent, at one point: a run for each seed."""

    point: Point
    """The values of the keys that vary."""
    policy: str
    """As the table shows it."""
    training: SweptTraining | None
    comparison: Comparison

    @property
    def ready(self) -> bool:
        """Whether its runs can begin."""
        return self.training is None or self.training.finished


@dataclass(frozen=True)
class SweepPlan:
    """All trainings and cells of a sweep, with its folder."""

    sweep: Sweep
    out: Path

    @cached_property
    def cells(self) -> list[Cell]:
        """Every policy and trained agent at every point; a wrong value is refused here."""
        return [
            cell
            for file in self.sweep.scenarios
            for point in self.sweep.all_points()
            for cell in self._cells_at(file, point)
        ]

    def _cells_at(self, file: str, point: Point) -> Iterator[Cell]:
        overrides = {**self.sweep.set, **point}
        short = [policies.label_of(name) for name in self.sweep.policies]
        for name, label in zip(self.sweep.policies, short, strict=True):
            shown = label if short.count(label) == 1 else name
            for comparison in self._comparisons(file, overrides, name):
                yield Cell(point, shown, None, comparison)
        for agent in self.sweep.agents:
            at = overrides if agent.at is None else {**self.sweep.set, **agent.at}
            for seed in agent.training_seeds:
                training = SweptTraining(file, at, agent, seed, self.out)
                for comparison in self._comparisons(file, overrides, str(training.light)):
                    yield Cell(point, agent.label or agent.agent, training, comparison)

    def _comparisons(self, file: str, overrides: Point, policy: str) -> Iterator[Comparison]:
        """Yield a comparison of consecutive seeds, or one for each listed seed."""
        seeds = self.sweep.seeds
        horizon = load_scenario(file, overrides).horizon
        chosen: list[tuple[dict[str, Any], int]] = (
            [({}, seeds)] if isinstance(seeds, int) else [({"seed": seed}, 1) for seed in seeds]
        )
        for seed, count in chosen:
            common = (policy,), (None,), (horizon,)
            yield Comparison(file, {**overrides, **seed}, *common, count, self.out)

    @cached_property
    def trainings(self) -> list[SweptTraining]:
        """The trainings, each once."""
        return list(
            {cell.training.folder: cell.training for cell in self.cells if cell.training}.values()
        )

    def find_outstanding(self) -> Outstanding:
        """Return the work that is not finished, after a check of what is."""
        check_trainings(self.trainings)
        outstanding = Outstanding([], [], [])
        for training in self.trainings:
            if not training.finished:
                share = training.hyperparameters.training_steps / (
                    find_agent(training.agent).defaults.training_steps
                )
                seconds = training_seconds(training.agent) * share
                outstanding.trainings.append(Task(seconds, training=training))
        for cell in self.cells:
            comparison = cell.comparison
            runs = find_finished(comparison)[1] if cell.ready else comparison.runs()
            tasks = outstanding.runs if cell.ready else outstanding.later_runs
            for run in runs:
                scenario = load_scenario(comparison.file, comparison.overrides)
                seconds = run_seconds(cell.policy, expected_decisions(scenario))
                tasks.append(Task(seconds, comparison=comparison, run=run))
        return outstanding


def expected_decisions(scenario: Scenario) -> float:
    """Return how many workloads a scenario emits before its horizon, about."""
    scale = getattr(scenario.sources, "scale", None)
    if scale is None:  # a trace: of any length
        return scenario.horizon
    nodes = getattr(scenario.topology, "nodes", None)
    clusters = (
        scenario.roles.clusters
        if scenario.roles
        else sum(node.role == "cluster" for node in nodes if hasattr(node, "role"))
        if isinstance(nodes, list)
        else 1
    )
    return clusters * len(scenario.applications) * scenario.horizon / float(scale)
