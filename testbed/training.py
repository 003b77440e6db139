"""Training an agent over episodes of the embedded engine, with checkpoints and a log."""

from __future__ import annotations

import json
import platform
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agent.agents import check_shape, find_agent, public
from agent.learned import LearningAgent
from agent.learning.checkpoint import read_checkpoint, write_checkpoint
from agent.learning.hyperparameters import Hyperparameters
from agent.policies import check_level
from fogveil.errors import InputError
from testbed.embedded import simulate
from testbed.records import writing
from testbed.scenario import Scenario
from testbed.summary import Summary
from testbed.world import World, build_world

TRAINING_SEEDS = 10**9
"""Training episodes draw from here, so that no evaluation repeats one of them."""
LAST = 10
"""Episodes over which the paper averages the return."""
CHECKPOINT, LIGHT, LOG = "checkpoint.npz", "agent.npz", "episodes.jsonl"


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
    fog_loop: float
    cpu_seconds: float


Watch = Callable[[LearningAgent, Episode | None], None]
"""Called after each episode, and now and then within one."""


def train(
    scenario: Scenario,
    name: str,
    out: Path,
    given: Hyperparameters | None = None,
    every: int = 10,
    watch: Watch | None = None,
) -> Path:
    """Train an agent, or go on with the training in `out`; return the light file it ends in."""
    missing = [package for package in ("torch", "tensorboard") if find_spec(package) is None]
    if missing:
        raise InputError(
            f"training needs {' and '.join(missing)}: pip install --constraint constraints.txt "
            "'.[train]' brings what is missing"
        )
    kind = find_agent(name)
    world = build_world(scenario)
    check_level(name, kind, world.agent.disclosed)
    agent = kind(world.agent, given)
    header = _header(scenario, world, name, agent)
    log = _resume(out, header, agent, world)
    returns = deque((line["returned"] for line in log[-LAST:]), LAST)
    spent = log[-1]["cpu_seconds"] if log else 0.0
    begin = time.process_time() - spent
    with _log(out, log) as note:
        while agent.phase != "evaluation":
            number = len(log)
            episode = world.reseeded(TRAINING_SEEDS + scenario.seed * 10**6 + number)
            summary = Summary(episode)
            phase = agent.phase
            agent.reset()
            simulate(
                episode, agent, [summary], lambda _t, _n: watch(agent, None) if watch else None
            )
            returns.append(agent.returned)
            done = Episode(
                number,
                phase,
                agent.decisions,
                agent.training_steps,
                agent.epsilon,
                agent.loss,
                agent.returned,
                sum(returns) / len(returns),
                summary.result()["fog_loop"],
                time.process_time() - begin,
            )
            log.append(vars(done))
            note(done)
            if watch:
                watch(agent, done)
            if len(log) % every == 0:
                write_checkpoint(out / CHECKPOINT, header | {"episodes": len(log)}, agent.state())
    write_checkpoint(out / CHECKPOINT, header | {"episodes": len(log)}, agent.state())
    light = {"learner_online": agent.state()["learner_online"]}
    write_checkpoint(out / LIGHT, header | {"episodes": len(log)}, light)
    return out / LIGHT


def _header(scenario: Scenario, world: World, name: str, agent: LearningAgent) -> dict[str, Any]:
    packages = ("fogveil", "numpy", "torch")
    return {
        "agent": name,
        "scenario": scenario.name,
        "seed": scenario.seed,
        "public": public(world.agent),
        "hyperparameters": agent.given.model_dump(mode="json"),
        "sizes": list(agent.learner.online.sizes),
        "versions": {"python": platform.python_version()} | {p: version(p) for p in packages},
        "commit": _commit(),
    }


def _commit() -> str | None:
    """The commit of the source tree, where it is one."""
    folder = Path(__file__).parent
    words = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError:
        return None
    return done.stdout.strip() or None


def _resume(
    out: Path, header: dict[str, Any], agent: LearningAgent, world: World
) -> list[dict[str, Any]]:
    """Put the agent where the last checkpoint left it, and return the log up to there."""
    path = out / CHECKPOINT
    if not path.exists():
        return []
    checkpoint = read_checkpoint(path)
    was = checkpoint.header
    check_shape(path, was["public"], world.agent)
    for key in ("agent", "scenario", "seed", "hyperparameters"):
        if was[key] != header[key]:
            raise InputError(
                f"{path}: belongs to another training: {key} was {was[key]!r}, now {header[key]!r}"
            )
    agent.restore(checkpoint.arrays)
    lines = (out / LOG).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[: was["episodes"]]]


@contextmanager
def _log(out: Path, before: list[dict[str, Any]]) -> Iterator[Callable[[Episode], None]]:
    """Keep episodes.jsonl and a TensorBoard log; what came after the checkpoint is dropped."""
    from torch.utils.tensorboard import SummaryWriter

    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        lines = "".join(json.dumps(line) + "\n" for line in before)
        (out / LOG).write_text(lines, encoding="utf-8")
        board = SummaryWriter(str(out / "tensorboard"), purge_step=len(before))
    with (out / LOG).open("a", encoding="utf-8") as file:

        def note(done: Episode) -> None:
            with writing(out):
                file.write(json.dumps(vars(done)) + "\n")
                file.flush()
            for key in ("epsilon", "loss", "returned", "last_returns", "fog_loop"):
                board.add_scalar(key, getattr(done, key), done.episode)

        try:
            yield note
        finally:
            board.close()
