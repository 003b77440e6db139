"""The agent's part of a training: the learning agent, its checkpoints, and each episode's figures.

All of it belongs to the agent: it holds the public facts of the scenario and nothing more.
"""

from __future__ import annotations

import json
import platform
import time
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from fogveil.agent.learning.checkpoint import read_checkpoint, write_checkpoint
from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.registry import find_agent, public_facts
from fogveil.agent.learning.transfer import Transfer
from fogveil.agent.policies import check_level
from fogveil.agent.policy import AgentView
from fogveil.core.errors import InputError
from fogveil.core.version import source_commit

CHECKPOINT, AGENT_FILE = "checkpoint.npz", "agent.npz"
SAME = ("agent", "sizes", "hyperparameters", "seed", "public", "started_from")
"""Header fields in which a checkpoint and the training that resumes it must agree."""


class EpisodeFigures(NamedTuple):
    """The results of a finished episode, as far as the agent knows them."""

    episode: int
    phase: str
    """The phase in which the episode began."""
    decisions: int
    """Decisions of all episodes so far."""
    training_steps: int
    """Training steps of all episodes so far."""
    epsilon: float
    loss: float
    returned: float
    """The return: the sum of the episode's rewards."""
    cpu_seconds: float
    """CPU time of the whole training so far, also before it was resumed."""


class TrainingState:
    """A learning agent whose training can stop after an episode and resume in another process.

    `begin` and `end` enclose an episode; `save` writes everything, `save_agent` the network alone.
    """

    def __init__(
        self,
        view: AgentView,
        name: str,
        hyperparameters: Hyperparameters | None,
        folder: Path,
        transfer: Transfer | None = None,
    ) -> None:
        """Begin a training, from the weights of an earlier one where a transfer is given."""
        kind = find_agent(name)
        check_level(name, kind, view.disclosed)
        if transfer:
            defaults = transfer.check(name)
            hyperparameters = hyperparameters or defaults
        self.agent = kind(view, hyperparameters)
        self.episodes = 0
        """Finished episodes."""
        self._folder = folder
        self._header: dict[str, Any] = {
            "agent": name,
            "seed": view.seed,
            "public": public_facts(view),
            "hyperparameters": self.agent.hyperparameters.model_dump(mode="json"),
            "sizes": list(self.agent.learner.online.sizes),
            "versions": library_versions(),
        }
        if transfer:
            self._header["started_from"] = transfer.apply(self.agent)
        self._phase = self.agent.phase
        self._cpu_start = time.process_time()

    @property
    def finished(self) -> bool:
        """Whether the training is over."""
        return self.agent.phase == "evaluation"

    def resume(self) -> bool:
        """Restore the folder's checkpoint; return False if there is none."""
        path = self._folder / CHECKPOINT
        if not path.exists():
            return False
        header, arrays = read_checkpoint(path)
        for key in SAME:
            if header.get(key) != json.loads(json.dumps(self._header.get(key))):
                raise InputError(
                    f"{path}: belongs to another training: its {key} differs; choose another --out"
                )
        self.agent.restore(arrays)
        self.episodes = header["episodes"]
        self._cpu_start = time.process_time() - header.get("cpu_seconds", 0.0)
        return True

    def begin(self) -> None:
        """Begin an episode."""
        self._phase = self.agent.phase
        self.agent.reset()

    def end(self) -> EpisodeFigures:
        """End the episode and return its figures."""
        agent = self.agent
        self.episodes += 1
        return EpisodeFigures(
            self.episodes - 1,
            self._phase,
            agent.decisions,
            agent.training_steps,
            agent.epsilon,
            agent.loss,
            agent.returned,
            self._cpu_seconds,
        )

    def save(self) -> None:
        """Write the checkpoint, from which another process continues bit for bit."""
        self._write(CHECKPOINT, self.agent.state(), cpu_seconds=self._cpu_seconds)

    def save_agent(self) -> Path:
        """Write the network alone, which can be run as a policy, and return the file."""
        return self._write(AGENT_FILE, {"learner_online": self.agent.state()["learner_online"]})

    def _write(self, name: str, arrays: dict[str, Any], **more: float) -> Path:
        header = {**self._header, "commit": source_commit(), "episodes": self.episodes, **more}
        write_checkpoint(self._folder / name, header, arrays)
        return self._folder / name

    @property
    def _cpu_seconds(self) -> float:
        return time.process_time() - self._cpu_start


@cache
def library_versions() -> dict[str, str]:
    """Return the versions that a training depends on."""
    packages = ("fogveil", "numpy", "torch")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}
