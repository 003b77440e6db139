"""Training an agent: the episodes of the embedded engine, and the experimenter's log of them.

What the agent itself keeps of its training stands in `agent.trainee`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agent.learned import LearningAgent
from agent.learning.hyperparameters import Hyperparameters
from agent.trainee import Figures, Trainee
from fogveil.errors import InputError
from testbed.embedded import simulate
from testbed.records import write_json, writing
from testbed.scenario import Scenario
from testbed.summary import Summary
from testbed.world import World, build_world

LAST = 10
"""Episodes over which the paper averages the return."""
LOG, GIVEN = "episodes.jsonl", "training.json"


@dataclass
class Episode:
    """One finished episode of a training, as the log has it."""

    episode: int
    phase: str
    decisions: int
    training_steps: int
    epsilon: float
    loss: float
    returned: float
    """Sum of rewards."""
    last_returns: float
    """Mean of the last ten."""
    fog_loop: float | None
    """What the experimenter sees; the agent does not."""
    cpu_seconds: float


Watch = Callable[[LearningAgent, Episode | None], None]
"""Called after each episode, and now and then within one."""
Lines = list[dict[str, Any]]
"""The log, a line an episode."""
Finished = tuple[Figures, float | None]
"""An episode that was run: what the agent tells of it, and the Fog loop, which it does not know."""


def train(
    scenario: Scenario,
    name: str,
    out: Path,
    given: Hyperparameters | None = None,
    every: int = 10,
    watch: Watch | None = None,
) -> Path:
    """Train an agent, or go on with the training in `out`; return the light file it ends in."""
    check_packages()
    world = build_world(scenario)
    trainee = Trainee(world.agent, name, given, out)
    with alone(out):
        trainee.resume()
        before = resume_log(out, scenario, trainee.episodes)
        watch = watch or _look_away
        episodes = _episodes(world, trainee, every, watch)
        keep_log(out, before, episodes, partial(watch, trainee.agent))
        return trainee.save_light()


def _look_away(_agent: LearningAgent, _done: Episode | None) -> None:
    """Nobody watches."""


def _episodes(world: World, trainee: Trainee, every: int, watch: Watch) -> Iterator[Finished]:
    """Run episodes until the training is over, with a checkpoint now and then."""
    agent = trainee.agent
    while not trainee.finished:
        # Draw 0 is what runs and evaluations have; no training sees it.
        episode = world.drawn(trainee.episodes + 1)
        summary = Summary(episode)
        trainee.begin()
        simulate(episode, agent, [summary], lambda _time, _decisions: watch(agent, None))
        yield trainee.end(), summary.result()["fog_loop"]
        # By now the episode is in the log: a checkpoint is never ahead of it.
        if trainee.episodes % every == 0:
            trainee.save()
    trainee.save()


def check_packages() -> None:
    """Refuse to train without the packages that only training needs."""
    missing = [package for package in ("torch", "tensorboard") if find_spec(package) is None]
    if missing:
        raise InputError(
            f"training needs {' and '.join(missing)}: pip install --constraint constraints.txt "
            "'.[train]' brings what is missing"
        )


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Keep a second training out of the folder."""
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / ".lock").open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(f"{out}: another training is at work here") from error
        yield


def resume_log(
    out: Path, scenario: Scenario, episodes: int, how: Mapping[str, Any] | None = None
) -> Lines:
    """Return the log of the episodes that the agent's checkpoint has; none begins a training.

    The whole scenario is compared by its digest: the checkpoint itself may not hold it.
    """
    digest = hashlib.sha256(scenario.model_dump_json().encode()).hexdigest()
    given = out / GIVEN
    if not episodes:
        about = {"mode": "embedded"} if how is None else how
        write_json(given, {"scenario": scenario.name, "digest": digest, **about})
        return []
    try:
        same = json.loads(given.read_text(encoding="utf-8"))["digest"] == digest
        lines = (out / LOG).read_text(encoding="utf-8").splitlines()[:episodes]
        log = [json.loads(line) for line in lines]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{out}: its log or {GIVEN} is missing or broken") from error
    if not same or len(log) != episodes:
        raise InputError(f"{out}: belongs to another scenario or log; choose another --out")
    return log


def keep_log(
    out: Path,
    before: Lines,
    episodes: Iterable[Finished],
    noted: Callable[[Episode], None] | None = None,
) -> None:
    """Log episodes as they are finished, wherever they are run, and show each to `noted`.

    What the log had beyond `before` is dropped: it came after the checkpoint. The next episode is
    asked for when the last one is in the log.
    """
    returns = deque((line["returned"] for line in before[-LAST:]), LAST)
    with _log(out, before) as note:
        for figures, fog_loop in episodes:
            returns.append(figures.returned)
            mean = sum(returns) / len(returns)
            done = Episode(**figures._asdict(), last_returns=mean, fog_loop=fog_loop)
            note(done)
            if noted:
                noted(done)


@contextmanager
def _log(out: Path, before: Lines) -> Iterator[Callable[[Episode], None]]:
    """Keep episodes.jsonl and a TensorBoard log."""
    from torch.utils.tensorboard import SummaryWriter

    with writing(out):
        lines = "".join(json.dumps(line) + "\n" for line in before)
        part = out / f"{LOG}.part"
        part.write_text(lines, encoding="utf-8")
        part.chmod(0o600)
        part.replace(out / LOG)
        board = SummaryWriter(str(out / "tensorboard"), purge_step=len(before))
    with (out / LOG).open("a", encoding="utf-8") as file:

        def note(done: Episode) -> None:
            with writing(out):
                file.write(json.dumps(vars(done)) + "\n")
                file.flush()
            for key in ("epsilon", "loss", "returned", "last_returns", "fog_loop"):
                if getattr(done, key) is not None:
                    board.add_scalar(key, getattr(done, key), done.episode)

        try:
            yield note
        finally:
            board.close()
