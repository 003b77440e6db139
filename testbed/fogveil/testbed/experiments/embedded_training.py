"""Training on the embedded engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from fogveil.agent.learning.agent_base import LearningAgent
from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.training_state import TrainingState
from fogveil.agent.learning.transfer import Transfer
from fogveil.core.errors import InputError
from fogveil.testbed.engine.embedded import simulate
from fogveil.testbed.records.summary import Summary
from fogveil.testbed.records.training_log import (
    FinishedEpisode,
    LoggedEpisode,
    describe_transfer,
    log_episodes,
    resume_log,
    training_lock,
)
from fogveil.testbed.scenario import Scenario
from fogveil.testbed.scenario.world import World, build_world

Watch = Callable[[LearningAgent, LoggedEpisode | None], None]
"""Called after each episode, and repeatedly within one with None."""


def train(
    scenario: Scenario,
    name: str,
    out: Path,
    hyperparameters: Hyperparameters | None = None,
    every: int = 10,
    watch: Watch | None = None,
    transfer: Transfer | None = None,
) -> Path:
    """Train an agent, or continue the training in `out`; return the light file of the result.

    `every` is the number of episodes between checkpoints; a transfer starts from another agent.
    """
    check_packages()
    world = build_world(scenario)
    training = TrainingState(world.agent, name, hyperparameters, out, transfer)
    watch = watch or (lambda _agent, _episode: None)
    with training_lock(out):
        training.resume()
        earlier = resume_log(out, scenario, training.episodes, describe_transfer(transfer))
        episodes = _run_episodes(world, training, every, watch)
        log_episodes(out, earlier, episodes, partial(watch, training.agent))
        return training.save_agent()


def _run_episodes(
    world: World, training: TrainingState, every: int, watch: Watch
) -> Iterator[FinishedEpisode]:
    """Run episodes until the training is complete, with a checkpoint after every few."""
    agent = training.agent
    while not training.finished:
        # Runs and evaluations use draw 0, trainings never do.
        episode = world.drawn(training.episodes + 1)
        summary = Summary(episode)
        training.begin()
        simulate(episode, agent, [summary], lambda _time, _decisions: watch(agent, None))
        yield training.end(), summary.result()["fog_loop"]
        # Now the episode is in the log: a checkpoint is never ahead of it.
        if training.episodes % every == 0:
            training.save()
    training.save()


def check_packages() -> None:
    """Refuse to train without the packages that only training needs."""
    missing = [package for package in ("torch", "tensorboard") if find_spec(package) is None]
    if missing:
        raise InputError(
            f"training needs {' and '.join(missing)}: pip install --constraint constraints.txt "
            "'.[train]' installs what is missing"
        )
