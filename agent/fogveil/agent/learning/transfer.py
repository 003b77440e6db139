"""Starting from a trained agent: its file, what of it fits another scenario, and what does not."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fogveil.agent.learning.agent_base import LearningAgent
from fogveil.agent.learning.checkpoint import Checkpoint, layers_of, read_checkpoint, read_header
from fogveil.agent.learning.hyperparameters import Hyperparameters, change_hyperparameters
from fogveil.agent.learning.network_policy import AGENT as NETWORK
from fogveil.agent.learning.registry import check_shape, find_agent
from fogveil.agent.learning.relearning import transfer_hyperparameters
from fogveil.core.errors import InputError

REPLAY = "replay_"
"""Begins the names of a checkpoint's arrays that belong to the buffer."""


@dataclass(frozen=True)
class Transfer:
    """The earlier agent that a training starts from."""

    file: Path
    replay: bool = False
    """Whether its buffer is taken over, too."""

    @property
    def digest(self) -> str:
        """The SHA-256 of the file, by which the later training names it."""
        try:
            return hashlib.sha256(self.file.read_bytes()).hexdigest()
        except OSError as error:
            raise InputError(f"{self.file}: cannot be read: {error.strerror}") from error

    def check(self, name: str) -> Hyperparameters:
        """Refuse a file of another agent than `name`; return the defaults of the new training."""
        header = read_header(self.file)
        check_learns(self.file, header)
        if header["agent"] != name:
            raise InputError(
                f"{self.file}: is an agent {header['agent']}, and cannot become one of {name}: "
                f"use --agent {header['agent']}"
            )
        return transfer_hyperparameters(trained_with(self.file, header), replay=self.replay)

    def apply(self, agent: LearningAgent) -> dict[str, Any]:
        """Give an untrained agent the weights and the buffer; return what records say of them."""
        checkpoint = read_checkpoint(self.file)
        adopt_weights(agent, self.file, checkpoint)
        if self.replay:
            _adopt_replay(agent, self.file, checkpoint)
        return {"sha256": self.digest, "replay": self.replay}


def check_learns(path: Path, header: Mapping[str, Any]) -> None:
    """Refuse the network of another library."""
    if header["agent"] == NETWORK:
        raise InputError(
            f"{path}: is another library's network, which fogveil cannot train: expected a file "
            "that fogveil train has written"
        )


def trained_with(path: Path, header: Mapping[str, Any]) -> Hyperparameters:
    """Return the hyper-parameters of the training that a file comes from."""
    kept = header.get("hyperparameters", {})
    return change_hyperparameters(find_agent(header["agent"]).defaults, kept, str(path))


def adopt_weights(agent: LearningAgent, path: Path, checkpoint: Checkpoint) -> None:
    """Give an agent the weights of a checkpoint, or say in what their shapes differ."""
    if not agent.actor_kind.any_shape:
        check_shape(path, checkpoint.header["public"], agent.view)
    sizes, expected = checkpoint.header["sizes"], list(agent.learner.online.sizes)
    if sizes != expected:
        raise InputError(
            f"{path}: has layers of {_listed(sizes)} neurons, and the agent that starts from it "
            f"has {_listed(expected)}"
        )
    layers_of(path, checkpoint)  # refuses what is no network
    agent.learner.adopt(checkpoint.arrays["learner_online"])


def _adopt_replay(agent: LearningAgent, path: Path, checkpoint: Checkpoint) -> None:
    state = {
        name.removeprefix(REPLAY): array
        for name, array in checkpoint.arrays.items()
        if name.startswith(REPLAY)
    }
    if not state:
        raise InputError(
            f"{path}: has no buffer, only a checkpoint.npz has one: leave --replay out, or name "
            "the checkpoint beside it"
        )
    known = checkpoint.header["public"]
    differs = [
        f"{len(known[key])} {key} against {len(getattr(agent.view, key))}"
        for key in ("nodes", "clusters", "categories")
        if len(known[key]) != len(getattr(agent.view, key))
    ]
    if differs or not agent.replay.fits(state):
        what = ", ".join(differs) or "its columns differ"
        raise InputError(
            f"{path}: its buffer is of another shape of scenario ({what}): leave --replay out"
        )
    agent.replay.adopt(state)


def _listed(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes))
