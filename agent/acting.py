"""A trained agent as it is deployed: its layers and its state, no torch, no learning."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from agent.policy import AgentView, Observation, Policy

Floats = npt.NDArray[np.float32]
Layers = Sequence[tuple[Floats, Floats]]
"""Weights and biases of each linear layer; ReLU between them."""


def run_layers(layers: Layers, value: Floats) -> Floats:
    """Push one state, or a batch of them, through the layers."""
    for number, (weights, bias) in enumerate(layers):
        value = (np.maximum(value, 0) if number else value) @ weights + bias
    return value


class Actor(Policy):
    """Takes the action of the highest value."""

    any_shape: ClassVar[bool] = False
    """Whether it can act on scenarios of another shape than it was trained on."""

    def __init__(self, view: AgentView, layers: Layers) -> None:
        self.layers = layers
        super().__init__(view)

    @abstractmethod
    def input_size(self) -> int:
        """Return the inputs that its network must have on this scenario."""

    def look(self, seen: Observation) -> None:
        """Take in what is seen; every decision begins with it, also one taken at random."""

    @abstractmethod
    def values(self, seen: Observation) -> Floats:
        """Return the value of each action now."""

    def chose(self, seen: Observation, action: int) -> None:
        """Keep what later states need of this decision."""

    def place(self, seen: Observation) -> int:
        """Return the best action."""
        self.look(seen)
        action = int(self.values(seen).argmax())
        self.chose(seen, action)
        return action
