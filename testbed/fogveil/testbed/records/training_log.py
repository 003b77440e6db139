"""The experimenter's log of a training: episodes.jsonl, a TensorBoard log and training.json.

What the agent itself keeps of its training is in `fogveil.agent.learning.training_state`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fogveil.agent.learning.training_state import EpisodeFigures
from fogveil.agent.learning.transfer import Transfer
from fogveil.core.errors import InputError
from fogveil.core.files import open_private, write_private
from fogveil.testbed.records.output import reporting_write_errors, write_json
from fogveil.testbed.records.provenance import provenance
from fogveil.testbed.scenario import Scenario

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

AVERAGED_EPISODES = 10
"""Over so many the paper averages the return."""
LOG, DESCRIPTION, TENSORBOARD = "episodes.jsonl", "training.json", "tensorboard"
SCENARIO = "scenario.json"
"""The whole scenario, for the experimenter alone: the checkpoint must not contain it."""


@dataclass
class LoggedEpisode:
    """One finished episode of a training; its fields are the keys of a line of the log."""

    episode: int
    phase: str
    decisions: int
    training_steps: int
    epsilon: float
    loss: float
    returned: float
    """Sum of rewards."""
    last_returns: float
    """Mean over the last ten episodes."""
    fog_loop: float | None
    """Known to the experimenter only, not to the agent."""
    cpu_seconds: float


LogLines = list[dict[str, Any]]
"""The log, one entry per episode."""
FinishedEpisode = tuple[EpisodeFigures, float | None]
"""What the agent reports of an episode, and its mean Fog loop, which the agent does not know."""


@contextmanager
def training_lock(out: Path) -> Iterator[None]:
    """Hold the folder against a second training."""
    with reporting_write_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / ".lock").open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(
                f"{out}: another training is running in this folder; wait for it or choose "
                "another --out"
            ) from error
        yield


def scenario_digest(scenario: Scenario) -> str:
    """Return the digest by which a training's description names its whole scenario.

    A key that a later version adds, with a default that changes nothing, does not change it.
    """
    return hashlib.sha256(scenario.model_dump_json(exclude_defaults=True).encode()).hexdigest()


def describe_transfer(transfer: Transfer | None) -> dict[str, Any]:
    """Return what a training's description says of the agent that it started from."""
    if transfer is None:
        return {}
    named = {"file": str(transfer.file), "sha256": transfer.digest, "replay": transfer.replay}
    return {"started_from": named}


def resume_log(
    out: Path, scenario: Scenario, episodes: int, description: Mapping[str, Any] | None = None
) -> LogLines:
    """Return the log up to the agent's checkpoint; with no episodes a new training begins.

    The whole scenario is compared by its digest: the checkpoint itself must not contain it.
    """
    digest = scenario_digest(scenario)
    path = out / DESCRIPTION
    if not episodes:
        named = {"scenario": scenario.name, "seed": scenario.seed, "digest": digest}
        how = {"mode": "embedded", **(description or {})}
        write_json(path, {**named, **how, "provenance": provenance()})
        write_private(out / SCENARIO, scenario.model_dump_json())
        return []
    try:
        same = json.loads(path.read_text(encoding="utf-8"))["digest"] == digest
        lines = (out / LOG).read_text(encoding="utf-8").splitlines()[:episodes]
        log = [json.loads(line) for line in lines]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{out}: {LOG} or {DESCRIPTION} is missing or damaged, so the training cannot "
            "continue; choose another --out"
        ) from error
    if not same or len(log) != episodes:
        raise InputError(f"{out}: belongs to another scenario or log; choose another --out")
    return log


def kept_seed(out: Path, former: int) -> int | None:
    """Return the seed of the training in a folder; None where there is none.

    A description without a seed is an earlier version's, which had the scenario's (`former`).
    """
    try:
        seed = json.loads((out / DESCRIPTION).read_text(encoding="utf-8")).get("seed", former)
    except (OSError, ValueError, AttributeError):  # a damaged one is refused by `resume_log`
        return None
    return seed if isinstance(seed, int) else None


def log_episodes(
    out: Path,
    earlier: LogLines,
    episodes: Iterable[FinishedEpisode],
    on_episode: Callable[[LoggedEpisode], None] | None = None,
) -> None:
    """Log episodes as they finish, wherever they run, and pass each to `on_episode`.

    Lines after `earlier` are dropped: they are later than the checkpoint. The next episode is
    requested when the last one is in the log.
    """
    returns = deque((line["returned"] for line in earlier[-AVERAGED_EPISODES:]), AVERAGED_EPISODES)
    with _open_log(out, earlier) as append:
        for figures, fog_loop in episodes:
            returns.append(figures.returned)
            mean = sum(returns) / len(returns)
            episode = LoggedEpisode(**figures._asdict(), last_returns=mean, fog_loop=fog_loop)
            append(episode)
            if on_episode:
                on_episode(episode)


@contextmanager
def _open_log(out: Path, earlier: LogLines) -> Iterator[Callable[[LoggedEpisode], None]]:
    from torch.utils.tensorboard import SummaryWriter

    path = out / LOG
    with reporting_write_errors(out):
        write_private(path, "".join(json.dumps(line) + "\n" for line in earlier))
        # Written anew: what an earlier process added after its checkpoint would be there twice.
        shutil.rmtree(out / TENSORBOARD, ignore_errors=True)
        board = SummaryWriter(str(out / TENSORBOARD))
        for line in earlier:
            _add_scalars(board, line)
    with open_private(path, "a") as file:

        def append(episode: LoggedEpisode) -> None:
            with reporting_write_errors(out):
                file.write(json.dumps(vars(episode)) + "\n")
                file.flush()
            _add_scalars(board, vars(episode))

        try:
            yield append
        finally:
            board.close()


def _add_scalars(board: SummaryWriter, line: Mapping[str, Any]) -> None:
    """Show a line of the log in TensorBoard."""
    for key in ("epsilon", "loss", "returned", "last_returns", "fog_loop"):
        if line[key] is not None:
            board.add_scalar(key, line[key], line["episode"])
