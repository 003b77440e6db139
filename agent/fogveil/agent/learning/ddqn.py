"""Double Q-learning: the online network selects the next action, the target network values it.

The paper's text gives the two networks the opposite roles; this is van Hasselt's method.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fogveil.agent.learning.adam import Adam
from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.network import Floats, Network, SparseStates, rows_from


class DoubleQ:
    """The learner: two networks, Adam, Huber loss."""

    def __init__(self, sizes: tuple[int, ...], hyperparameters: Hyperparameters, seed: int) -> None:
        torch.set_num_threads(1)  # small matrices; and sums must not depend on the machine
        self.online = Network(sizes, seed)
        self.target = Network(sizes)
        self._discount = hyperparameters.discount_factor
        self._adam = Adam(len(self.online.parameters), hyperparameters.learning_rate)
        self.update_target()

    @torch.no_grad()
    def train(
        self,
        states: Floats | SparseStates,
        actions: npt.NDArray[np.integer],
        rewards: npt.NDArray[np.number],
    ) -> float:
        """Take one gradient step on a batch of transitions and return the loss before it.

        `states` holds the states of the transitions, then the states that followed them.
        """
        size = len(actions)
        both, activations = self.values(self.online, states)
        values, best = both[:size], both[size:].argmax(1, keepdim=True)
        future = self.values(self.target, rows_from(states, size))[0].gather(1, best)
        reward = torch.from_numpy(rewards.astype(np.float32))[:, None]
        target = reward + self._discount * future
        chosen = torch.from_numpy(actions.astype(np.int64))[:, None]
        error = values.gather(1, chosen) - target
        clipped = error.clamp(-1.0, 1.0)
        slope = torch.zeros_like(values).scatter_(1, chosen, clipped / size)
        self.backward(slope, states, activations)
        # Adam's means decay into denormals, which are slow. The switch is for the whole thread, so
        # it is on during this step only.
        torch.set_flush_denormal(True)
        self._adam.step(self.online.parameters, self.online.gradient)
        torch.set_flush_denormal(False)
        # Huber: e²/2 near zero, |e| - 1/2 beyond 1; both are c·(e - c/2) with c = clip(e).
        return float((clipped * (error - clipped / 2)).mean())

    def values(
        self, network: Network, states: Floats | SparseStates
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the value of each action in each state, and the activations for `backward`."""
        return network.forward(states)

    def backward(
        self, slope: torch.Tensor, states: Floats | SparseStates, activations: list[torch.Tensor]
    ) -> None:
        """Compute the gradient from the loss's derivative by the values."""
        self.online.backward(slope, states, activations)

    def update_target(self) -> None:
        """Copy the online network to the target network."""
        self.target.parameters.copy_(self.online.parameters)

    def adopt(self, parameters: Floats) -> None:
        """Begin with the weights of another learner of the same shape."""
        self.online.parameters.copy_(torch.from_numpy(parameters))
        self.update_target()

    def state(self) -> dict[str, Any]:
        """Return the complete state for a checkpoint, as arrays."""
        networks = {"online": self.online, "target": self.target}
        vectors = {name: network.parameters.numpy().copy() for name, network in networks.items()}
        return {**vectors, **self._adam.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.online.parameters.copy_(torch.from_numpy(state["online"]))
        self.target.parameters.copy_(torch.from_numpy(state["target"]))
        self._adam.restore(state)


class SharedDoubleQ(DoubleQ):
    """One network for all actions: states are [state, action, feature], the value is per action.

    One feature is a prior cost: the value is the network's output minus that feature.
    """

    def __init__(
        self,
        sizes: tuple[int, ...],
        hyperparameters: Hyperparameters,
        seed: int,
        *,
        cost_feature: int,
    ) -> None:
        super().__init__(sizes, hyperparameters, seed)
        self._cost_feature = cost_feature
        for part in self.online.layers()[-1]:  # untrained, the value is the prior
            part[:] = 0
        self.update_target()

    def values(
        self, network: Network, states: Floats | SparseStates
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the value of each action in each state, and the activations for `backward`."""
        assert isinstance(states, np.ndarray)
        out, activations = network.forward(states.reshape(-1, states.shape[-1]))
        cost = torch.from_numpy(states[..., self._cost_feature])
        return out.view(states.shape[:2]) - cost, activations

    def backward(
        self, slope: torch.Tensor, states: Floats | SparseStates, activations: list[torch.Tensor]
    ) -> None:
        """Compute the gradient from the loss's derivative by the values."""
        assert isinstance(states, np.ndarray)
        flat = states.reshape(-1, states.shape[-1])
        self.online.backward(slope.reshape(-1, 1), flat, activations)
