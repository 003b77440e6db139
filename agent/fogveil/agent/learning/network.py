"""A fully connected network whose parameters lie in one vector, with its gradient by hand.

At the paper's sizes a training step by torch.nn, automatic differentiation and torch.optim.Adam
takes 1.8 times the CPU of this network and `Adam`, and 1.4 times with torch's fused Adam
(`python -m benchmarks.gradient_step`); tests compare gradients and steps with torch's. States with
few non-zeros (the paper's have 26 of 251) pass the first layer by those alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import embedding_bag

Floats = npt.NDArray[np.float32]


class SparseStates(NamedTuple):
    """States by their non-zeros: index and amount as [state, k]; indices may repeat."""

    at: npt.NDArray[np.int64]
    amount: Floats


def rows_from(states: Floats | SparseStates, first: int) -> Floats | SparseStates:
    """Return the states from row `first` on."""
    if isinstance(states, SparseStates):
        return SparseStates(states.at[first:], states.amount[first:])
    return states[first:]


class Network:
    """Linear layers with ReLU between them, over one flat parameter vector."""

    def __init__(self, sizes: Sequence[int], seed: int | None = None) -> None:
        self.sizes = tuple(sizes)
        count = sum(i * o + o for i, o in pairwise(self.sizes))
        self.parameters = torch.zeros(count)
        self.gradient = torch.zeros(count)
        self._weights, self._biases = self._views(self.parameters)
        self._weight_gradients, self._bias_gradients = self._views(self.gradient)
        if seed is not None:
            self._initialise(seed)

    def _views(self, flat: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        weights, biases, at = [], [], 0
        for i, o in pairwise(self.sizes):
            weights.append(flat[at : at + i * o].view(i, o))
            biases.append(flat[at + i * o : at + i * o + o])
            at += i * o + o
        return weights, biases

    def _initialise(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for weight, bias in zip(self._weights, self._biases, strict=True):
            bound = weight.shape[0] ** -0.5  # as in torch.nn.Linear
            weight.uniform_(-bound, bound, generator=generator)
            bias.uniform_(-bound, bound, generator=generator)

    def forward(self, states: Floats | SparseStates) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the outputs, and the inputs of all layers but the first for `backward`."""
        value, activations = self._first(states), []
        for weight, bias in zip(self._weights[1:], self._biases[1:], strict=True):
            activations.append(value.relu_())
            value = torch.addmm(bias, value, weight)
        return value, activations

    def _first(self, states: Floats | SparseStates) -> torch.Tensor:
        weight, bias = self._weights[0], self._biases[0]
        if isinstance(states, SparseStates):
            at, amount = torch.from_numpy(states.at), torch.from_numpy(states.amount)
            bag: torch.Tensor = embedding_bag(at, weight, mode="sum", per_sample_weights=amount)
            return bag.add_(bias)
        return torch.addmm(bias, torch.from_numpy(states), weight)

    def backward(
        self, error: torch.Tensor, states: Floats | SparseStates, activations: list[torch.Tensor]
    ) -> None:
        """Write the gradient of the loss to `gradient`, from its derivative by the outputs.

        `states` and `activations` may have more rows than `error`: the first ones are used.
        """
        rows = len(error)
        for layer in range(len(self._weights) - 1, 0, -1):
            inputs = activations[layer - 1][:rows]
            torch.mm(inputs.t(), error, out=self._weight_gradients[layer])
            torch.sum(error, 0, out=self._bias_gradients[layer])
            error = torch.mm(error, self._weights[layer].t()) * (inputs > 0)
        torch.mm(self._dense(states, rows).t(), error, out=self._weight_gradients[0])
        torch.sum(error, 0, out=self._bias_gradients[0])

    def _dense(self, states: Floats | SparseStates, rows: int) -> torch.Tensor:
        if not isinstance(states, SparseStates):
            return torch.from_numpy(states[:rows])
        at, amount = (torch.from_numpy(part[:rows]) for part in states)
        return torch.zeros(rows, self.sizes[0]).scatter_add_(1, at, amount)

    def layers(self) -> list[tuple[Floats, Floats]]:
        """Return (weights, biases) of each layer as arrays that share the parameters' memory."""
        return [(w.numpy(), b.numpy()) for w, b in zip(self._weights, self._biases, strict=True)]
