"""Training on a federated testbed: the agent learns in its own process, the log is kept here."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from agent.agents import find_agent
from agent.learned import LearningAgent
from agent.learning.checkpoint import read_header
from agent.learning.hyperparameters import Hyperparameters
from agent.policies import check_level
from agent.trainee import CHECKPOINT, LIGHT, Figures, Trainee
from fogveil.identity import AGENT
from testbed.federated.evaluate import join, remove_records
from testbed.federated.launch import Testbed
from testbed.federated.run import testbed_folder
from testbed.federated.split import CLOCK, Plan, Training, copy_whole
from testbed.scenario import Scenario
from testbed.summary import Summary
from testbed.training import Episode, Finished, alone, check_packages, keep_log, resume_log
from testbed.world import World, build_world


class Progress(NamedTuple):
    """What the agent's process tells of its training, by the names that a LearningAgent has."""

    decisions: int
    phase: str
    epsilon: float
    loss: float


Watch = Callable[[Progress, Episode | None], None]


def train_federated(
    scenario: Scenario,
    name: str,
    out: Path,
    plan: Plan,
    given: Hyperparameters | None = None,
    every: int = 10,
    watch: Watch | None = None,
) -> Path:
    """Train an agent, or go on with the training in `out`; return the light file it ends in."""
    check_packages()
    world = build_world(scenario)
    kind = find_agent(name)
    check_level(name, kind, world.agent.disclosed)
    with alone(out):
        checkpoint = out / CHECKPOINT
        done = read_header(checkpoint)["episodes"] if checkpoint.exists() else 0
        if done:
            trainee = Trainee(world.agent, name, given, out)
            trainee.resume()
            if trainee.finished:
                return trainee.save_light()
        hyperparameters = given or kind.defaults
        before = resume_log(out, scenario, done, _how(plan, kind, hyperparameters))
        training = Training(
            name, hyperparameters.model_dump(mode="json"), every, done, checkpoint if done else None
        )
        with testbed_folder(None) as folder:
            with Testbed(world, replace(plan, training=training), folder) as testbed:
                told = _Told()
                episodes = _episodes(world, testbed, out, done, told, watch)
                note = (lambda episode: watch(told.progress, episode)) if watch else _look_away
                keep_log(out, before, episodes, note)
            for name_made in (CHECKPOINT, LIGHT):
                copy_whole(testbed.split.folder_of(AGENT) / name_made, out)
    return out / LIGHT


def _how(plan: Plan, kind: type[LearningAgent], hyperparameters: Hyperparameters) -> dict[str, Any]:
    """Say how the training was run, and whether its windows change what is learned."""
    window = plan.window or (hyperparameters.train_period if kind.decides_ahead else 1)
    exact = window <= 1 or plan.window == 0
    return {"mode": "federated", "window": window, "approximation": not exact}


class _Told:
    progress = Progress(0, "buffer population", 1.0, 0.0)


def _look_away(_done: Episode | None) -> None:
    """Nobody watches."""


def _episodes(
    world: World, testbed: Testbed, out: Path, done: int, told: _Told, watch: Watch | None
) -> Iterator[Finished]:
    """Yield episodes as the testbed finishes them, each joined for the delay nobody else knows."""
    figures: dict[int, Figures] = {}
    over: set[int] = set()
    episode = 0
    for name, report in testbed.reports():
        if name == AGENT and "episode" in report:
            found = Figures(**report["episode"])
            figures[found.episode - done] = found
        elif name == AGENT and "agent" in report:
            status = report["agent"]
            told.progress = Progress(
                status["trained"], status["phase"], status["epsilon"], status["loss"]
            )
            if watch:
                watch(told.progress, None)
        elif name == CLOCK and "over" in report:
            over.add(report["over"])
        # The two tell of an episode's end each by a pipe of its own, in any order.
        if episode not in over or episode not in figures:
            continue
        drawn = world.drawn(done + episode + 1)
        summary = Summary(drawn)
        join(drawn, testbed.split, episode, [summary])
        remove_records(testbed.split, episode)
        yield figures.pop(episode), summary.result()["fog_loop"]
        episode += 1
        # By now it is in the log: the checkpoint that is kept is never ahead of that.
        _keep(testbed.split.folder_of(AGENT) / CHECKPOINT, out, done + episode)


def _keep(made: Path, out: Path, episodes: int) -> None:
    """Copy the agent's checkpoint if it is of so many episodes; it may just make the next one."""
    if made.exists():
        part = out / f"{made.name}.part"
        shutil.copy(made, part)
        if read_header(part)["episodes"] == episodes:
            part.replace(out / made.name)
        part.unlink(missing_ok=True)
