"""A trained agent as it is deployed: network layers and state, without torch or learning."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fogveil.agent.availability import greatest
from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.policy import AgentView, Observation, Policy

Floats = npt.NDArray[np.float32]
Layers = Sequence[tuple[Floats, Floats]]
"""Weights and biases of each linear layer; an activation between them, ReLU in our agents."""


def rectify(value: Floats) -> Floats:
    """Return ReLU of each value."""
    rectified: Floats = np.maximum(value, 0)
    return rectified


def run_layers(
    layers: Layers, value: Floats, activation: Callable[[Floats], Floats] = rectify
) -> Floats:
    """Return the network's output for one state or a batch of them."""
    for number, (weights, bias) in enumerate(layers):
        value = (activation(value) if number else value) @ weights + bias
    return value


class Actor(Policy):
    """Chooses the action of the highest value among the nodes that take jobs."""

    any_shape: ClassVar[bool] = False
    """Whether it can act on scenarios of another shape than it was trained on."""

    def __init__(
        self, view: AgentView, layers: Layers, hyperparameters: Hyperparameters | None = None
    ) -> None:
        self.layers = layers
        self.hyperparameters = hyperparameters or Hyperparameters()
        super().__init__(view)

    @classmethod
    @abstractmethod
    def input_size(cls, view: AgentView) -> int:
        """Return the number of inputs that its network has on this scenario."""

    def observe(self, observation: Observation) -> None:
        """Update the state; called first at every decision, also one taken at random."""

    @abstractmethod
    def values(self, observation: Observation) -> Floats:
        """Return the value of each action in the current state."""

    def placed(self, observation: Observation, action: int) -> None:
        """Update the state by the decision that was taken."""

    def place(self, observation: Observation) -> int:
        """Return the action of the highest value."""
        self.observe(observation)
        action = greatest(self.values(observation), observation.available)
        self.placed(observation, action)
        return action
