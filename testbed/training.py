"""Training an agent over episodes of the embedded engine, with checkpoints and a log."""

from __future__ import annotations

import fcntl
import hashlib
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

from agent.agents import find_agent, public
from agent.learned import LearningAgent
from agent.learning.checkpoint import read_checkpoint, write_checkpoint
from agent.learning.hyperparameters import Hyperparameters
from agent.policies import check_level
from fogveil.errors import InputError
from testbed.embedded import simulate
from testbed.records import write_json, writing
from testbed.scenario import Scenario
from testbed.summary import Summary
from testbed.world import World, build_world

TRAINING_SEEDS = 10**9
"""Training episodes draw from here on; evaluations use small seeds, and repeat none of them."""
LAST = 10
"""Episodes over which the paper averages the return."""
CHECKPOINT, LIGHT, LOG, GIVEN = "checkpoint.npz", "agent.npz", "episodes.jsonl", "training.json"


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
    header = _header(world, name, agent)
    with _alone(out):
        return _train(scenario, world, agent, header, out, every, watch)


def _train(
    scenario: Scenario,
    world: World,
    agent: LearningAgent,
    header: dict[str, Any],
    out: Path,
    every: int,
    watch: Watch | None,
) -> Path:
    log = _resume(out, header, agent, scenario)
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


def _header(world: World, name: str, agent: LearningAgent) -> dict[str, Any]:
    packages = ("fogveil", "numpy", "torch")
    return {
        "agent": name,
        "seed": world.agent.seed,
        "public": public(world.agent),
        "hyperparameters": agent.given.model_dump(mode="json"),
        "sizes": list(agent.learner.online.sizes),
        "versions": {"python": platform.python_version()} | {p: version(p) for p in packages},
        "commit": COMMIT,
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


COMMIT = _commit()
"""Of the code that was loaded, not of the tree when a training begins."""


@contextmanager
def _alone(out: Path) -> Iterator[None]:
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


def _resume(
    out: Path, header: dict[str, Any], agent: LearningAgent, scenario: Scenario
) -> list[dict[str, Any]]:
    """Put the agent where the last checkpoint left it, and return the log up to there.

    The whole scenario is compared by its digest: the checkpoint itself may not hold it.
    """
    path, given = out / CHECKPOINT, out / GIVEN
    digest = hashlib.sha256(scenario.model_dump_json().encode()).hexdigest()
    if not path.exists():
        write_json(given, {"scenario": scenario.name, "digest": digest})
        return []
    checkpoint = read_checkpoint(path)
    was = checkpoint.header
    for key in ("agent", "sizes", "hyperparameters", "seed", "public"):
        if was[key] != json.loads(json.dumps(header[key])):
            raise InputError(
                f"{path}: belongs to another training: its {key} differs; choose another --out"
            )
    try:
        same = json.loads(given.read_text(encoding="utf-8"))["digest"] == digest
        lines = (out / LOG).read_text(encoding="utf-8").splitlines()[: was["episodes"]]
        log = [json.loads(line) for line in lines]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{out}: its log or {GIVEN} is missing or broken") from error
    if not same or len(log) != was["episodes"]:
        raise InputError(f"{path}: belongs to another scenario or log; choose another --out")
    agent.restore(checkpoint.arrays)
    return log


@contextmanager
def _log(out: Path, before: list[dict[str, Any]]) -> Iterator[Callable[[Episode], None]]:
    """Keep episodes.jsonl and a TensorBoard log; what came after the checkpoint is dropped."""
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
