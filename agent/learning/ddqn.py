"""Double Q-learning: the online network selects the next action, the target network values it.

The paper's text gives the two networks the opposite roles; this is van Hasselt's method.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from agent.learning.hyperparameters import Hyperparameters
from agent.learning.network import Floats, Network


class DoubleQ:
    """The learner: two networks, Adam, Huber loss."""

    def __init__(self, inputs: int, actions: int, given: Hyperparameters, seed: int) -> None:
        torch.set_num_threads(1)  # small matrices; and sums must not depend on the machine's load
        sizes = (inputs, *given.layers, actions)
        self.online = Network(sizes, seed)
        self.target = Network(sizes)
        self._given = given
        parameters = torch.nn.Parameter(self.online.parameters)
        parameters.grad = self.online.gradient
        self._parameters = parameters
        self._adam = torch.optim.Adam([parameters], given.learning_rate, fused=True)
        self.update_target()

    @torch.no_grad()
    def train(
        self,
        states: Floats,
        actions: npt.NDArray[np.integer],
        rewards: Floats,
    ) -> float:
        """Take one gradient step and return the loss before it.

        `states` holds the states of a batch of transitions, then the states that followed them.
        """
        size = len(actions)
        inputs = torch.from_numpy(states)
        values, kept = self.online.forward(inputs)
        best = values[size:].argmax(1, keepdim=True)
        future = self.target.forward(inputs[size:])[0].gather(1, best)
        reward = torch.from_numpy(rewards.astype(np.float32))[:, None]
        target = reward + self._given.discount_factor * future
        chosen = torch.from_numpy(actions.astype(np.int64))[:, None]
        error = values[:size].gather(1, chosen) - target
        clipped = error.clamp(-1.0, 1.0)
        slope = torch.zeros(size, values.shape[1]).scatter_(1, chosen, clipped / size)
        self.online.backward(slope, kept)
        self._adam.step()
        # Huber: e²/2 near zero, |e| - 1/2 beyond 1; both are c·(e - c/2) with c = clip(e).
        return float((clipped * (error - clipped / 2)).mean())

    def update_target(self) -> None:
        """Copy the online network to the target network."""
        self.target.parameters.copy_(self.online.parameters.detach())

    def state(self) -> dict[str, Any]:
        """Return all that a checkpoint must hold, as arrays."""
        adam = self._adam.state[self._parameters]
        empty = torch.zeros_like(self.online.parameters)
        return {
            "online": self.online.parameters.numpy().copy(),
            "target": self.target.parameters.numpy().copy(),
            "adam_mean": adam.get("exp_avg", empty).numpy().copy(),
            "adam_square": adam.get("exp_avg_sq", empty).numpy().copy(),
            "adam_step": np.float32(adam["step"].item() if adam else 0.0),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.online.parameters.copy_(torch.from_numpy(state["online"]))
        self.target.parameters.copy_(torch.from_numpy(state["target"]))
        self._adam.state[self._parameters] = {
            "step": torch.tensor(float(state["adam_step"])),
            "exp_avg": torch.from_numpy(state["adam_mean"].copy()),
            "exp_avg_sq": torch.from_numpy(state["adam_square"].copy()),
        }
