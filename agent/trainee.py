"""An agent in training, and its folder: checkpoints to go on from, and what an episode came to.

All of it is the agent's own: it knows the public projection of the scenario and nothing more.
"""

from __future__ import annotations

import json
import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from agent.agents import find_agent, public
from agent.learning.checkpoint import read_checkpoint, write_checkpoint
from agent.learning.hyperparameters import Hyperparameters
from agent.policies import check_level
from agent.policy import AgentView
from fogveil.errors import InputError

CHECKPOINT, LIGHT = "checkpoint.npz", "agent.npz"
SAME = ("agent", "sizes", "hyperparameters", "seed", "public")
"""What a checkpoint must have in common with a training that goes on from it."""


class Figures(NamedTuple):
    """What a finished episode came to, as the agent can tell."""

    episode: int
    phase: str
    """In which the episode began."""
    decisions: int
    """Of all episodes, like the next."""
    training_steps: int
    epsilon: float
    loss: float
    returned: float
    """Sum of rewards."""
    cpu_seconds: float
    """Spent by this process since the training began, and by those before it."""


class Trainee:
    """A learning agent that can stop after an episode and go on in another process.

    `begin` and `end` enclose an episode; `save` keeps all, `save_light` what acting needs.
    """

    def __init__(
        self, view: AgentView, name: str, given: Hyperparameters | None, folder: Path
    ) -> None:
        kind = find_agent(name)
        check_level(name, kind, view.disclosed)
        self.agent = kind(view, given)
        self.episodes = 0
        """How many are finished."""
        self._folder = folder
        self._header = {
            "agent": name,
            "seed": view.seed,
            "public": public(view),
            "hyperparameters": self.agent.given.model_dump(mode="json"),
            "sizes": list(self.agent.learner.online.sizes),
            "versions": _versions(),
            "commit": COMMIT,
        }
        self._phase = self.agent.phase
        self._since = time.process_time()

    @property
    def finished(self) -> bool:
        """Whether there is nothing more to train."""
        return self.agent.phase == "evaluation"

    def resume(self) -> bool:
        """Go on from the folder's checkpoint, if it has one."""
        path = self._folder / CHECKPOINT
        if not path.exists():
            return False
        was, arrays = read_checkpoint(path)
        for key in SAME:
            if was[key] != json.loads(json.dumps(self._header[key])):
                raise InputError(
                    f"{path}: belongs to another training: its {key} differs; choose another --out"
                )
        self.agent.restore(arrays)
        self.episodes = was["episodes"]
        self._since = time.process_time() - was.get("cpu_seconds", 0.0)
        return True

    def begin(self) -> None:
        """Begin an episode."""
        self._phase = self.agent.phase
        self.agent.reset()

    def end(self) -> Figures:
        """End the episode and return what it came to."""
        agent = self.agent
        self.episodes += 1
        return Figures(
            self.episodes - 1,
            self._phase,
            agent.decisions,
            agent.training_steps,
            agent.epsilon,
            agent.loss,
            agent.returned,
            self._spent,
        )

    def save(self) -> None:
        """Write the checkpoint, from which another process goes on bit for bit."""
        known = {"episodes": self.episodes, "cpu_seconds": self._spent}
        write_checkpoint(self._folder / CHECKPOINT, self._header | known, self.agent.state())

    def save_light(self) -> Path:
        """Write the network alone, a policy like any other, and return the file."""
        path = self._folder / LIGHT
        light = {"learner_online": self.agent.state()["learner_online"]}
        write_checkpoint(path, self._header | {"episodes": self.episodes}, light)
        return path

    @property
    def _spent(self) -> float:
        return time.process_time() - self._since


def _versions() -> dict[str, str]:
    packages = ("fogveil", "numpy", "torch")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


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
