"""Training on a federated testbed: the agent learns in its own process, the log is kept here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fogveil.agent.learning.agent_base import LearningAgent
from fogveil.agent.learning.checkpoint import read_header
from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.registry import find_agent
from fogveil.agent.learning.training_state import (
    AGENT_FILE,
    CHECKPOINT,
    EpisodeFigures,
    TrainingState,
)
from fogveil.agent.learning.transfer import Transfer
from fogveil.agent.policies import check_level
from fogveil.core.errors import InfrastructureError
from fogveil.protocol.identity import AGENT, CLOCK
from fogveil.testbed.experiments.embedded_training import check_packages
from fogveil.testbed.launch.agent_files import copy_checkpoint_file
from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.federated_run import testbed_folder
from fogveil.testbed.launch.join_records import join, remove_records
from fogveil.testbed.launch.participant_config import Plan, Training
from fogveil.testbed.launch.recovery import MOST_LOSSES, AgentLostError
from fogveil.testbed.launch.testbed import Testbed
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


class TrainingProgress(NamedTuple):
    """What the agent's process reports of its training; attributes as those of a LearningAgent."""

    decisions: int
    phase: str
    epsilon: float
    loss: float


Watch = Callable[[TrainingProgress, LoggedEpisode | None], None]


def train_federated(
    scenario: Scenario,
    name: str,
    out: Path,
    plan: Plan,
    hyperparameters: Hyperparameters | None = None,
    every: int = 10,
    watch: Watch | None = None,
    progress: Callable[[str], None] = lambda _line: None,
    transfer: Transfer | None = None,
) -> Path:
    """Train an agent, or continue the training in `out`; return the light file of the result.

    `every` is the number of episodes between checkpoints; a transfer starts from another agent.
    """
    losses = 0
    while True:
        try:
            return _train_on_testbed(
                scenario, name, out, plan, hyperparameters, every, watch, progress, transfer
            )
        except AgentLostError as error:
            losses += 1
            if losses == MOST_LOSSES:
                raise
            progress(f"{error}: it goes on from its last checkpoint")


def _train_on_testbed(
    scenario: Scenario,
    name: str,
    out: Path,
    plan: Plan,
    hyperparameters: Hyperparameters | None,
    every: int,
    watch: Watch | None,
    progress: Callable[[str], None],
    transfer: Transfer | None,
) -> Path:
    """Train until the training is over; AgentLostError where the agent's process is lost."""
    check_packages()
    world = build_world(scenario)
    kind = find_agent(name)
    check_level(name, kind, world.agent.disclosed)
    chosen = hyperparameters or (transfer.check(name) if transfer else kind.defaults)
    with training_lock(out):
        checkpoint = out / CHECKPOINT
        done = read_header(checkpoint)["episodes"] if checkpoint.exists() else 0
        if done or transfer:  # what cannot be started from is refused before anything is launched
            state = TrainingState(world.agent, name, chosen, out, transfer)
            if state.resume() and state.finished:
                return state.save_agent()
        description = {**_describe(plan, kind, chosen), **describe_transfer(transfer)}
        earlier = resume_log(out, scenario, done, description)
        training = Training(
            name,
            chosen.model_dump(mode="json"),
            every,
            done,
            checkpoint if done else None,
            transfer,
        )
        with testbed_folder(None) as folder:
            plan = replace(plan, training=training)
            with create_testbed(world, plan, folder, progress=progress) as testbed:
                episodes = _FederatedEpisodes(world, testbed, out, done, watch)
                log_episodes(out, earlier, episodes, episodes.report)
            for file in (CHECKPOINT, AGENT_FILE):
                copy_checkpoint_file(testbed.split.folder_of(AGENT) / file, out / file)
    return out / AGENT_FILE


def _describe(
    plan: Plan, kind: type[LearningAgent], hyperparameters: Hyperparameters
) -> dict[str, Any]:
    """Describe how the training runs, and whether its windows change what is learned."""
    window = plan.window or (hyperparameters.train_period if kind.decides_ahead else 1)
    exact = window <= 1 or plan.window == 0
    return {"mode": "federated", "window": window, "approximation": not exact}


class _FederatedEpisodes:
    """The episodes of a testbed as they finish, with the progress that the agent reports."""

    def __init__(
        self, world: World, testbed: Testbed, out: Path, done: int, watch: Watch | None
    ) -> None:
        self._world, self._testbed, self._out = world, testbed, out
        self._done = done
        """Episodes of earlier processes."""
        self._watch = watch
        self._progress = TrainingProgress(0, "buffer population", 1.0, 0.0)

    def report(self, episode: LoggedEpisode | None) -> None:
        """Pass the progress on."""
        if self._watch:
            self._watch(self._progress, episode)

    def __iter__(self) -> Iterator[FinishedEpisode]:
        """Yield each episode's figures and its mean Fog loop, which only the joined record has."""
        figures: dict[int, EpisodeFigures] = {}
        over: set[int] = set()
        episode = figured = 0  # the episodes that were yielded, and that the agent has reported
        for name, report in self._testbed.reports():
            if name == AGENT and "episode" in report:
                reported = EpisodeFigures(**report["episode"])
                if reported.episode != self._done + figured:
                    raise InfrastructureError(
                        f"the agent reported the end of episode {reported.episode} when that of "
                        f"{self._done + figured} was due"
                    )
                figures[figured] = reported
                figured += 1
            elif name == AGENT and "agent" in report:
                status = report["agent"]
                self._progress = TrainingProgress(
                    status["trained"], status["phase"], status["epsilon"], status["loss"]
                )
                self.report(None)
            elif name == CLOCK and "over" in report:
                over.add(report["over"])
            # Agent and clock report the end of an episode over separate pipes, in any order.
            if episode not in over or episode not in figures:
                continue
            drawn = self._world.drawn(self._done + episode + 1)
            summary = Summary(drawn)
            split = self._testbed.split
            join(drawn, split, episode, [summary])
            remove_records(split, episode)
            yield figures.pop(episode), summary.result()["fog_loop"]
            episode += 1
            # Now the episode is in the log: the checkpoint that is kept is never ahead of it.
            checkpoint = split.folder_of(AGENT) / CHECKPOINT
            _copy_checkpoint(checkpoint, self._out, self._done + episode)


def _copy_checkpoint(checkpoint: Path, out: Path, episodes: int) -> None:
    """Copy the agent's checkpoint if it covers so many episodes; it may be writing the next one."""
    if checkpoint.exists():
        part = out / f"{checkpoint.name}.part"
        copy_checkpoint_file(checkpoint, part)
        if read_header(part).get("episodes") == episodes:
            part.replace(out / checkpoint.name)
        part.unlink(missing_ok=True)
