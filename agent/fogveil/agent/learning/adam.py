"""Adam over one flat parameter vector; `network` has the measured gain over torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

MEAN_DECAY, SQUARE_DECAY, EPSILON = 0.9, 0.999, 1e-8


class Adam:
    """Kingma and Ba's method with its usual constants; a test compares it with torch's."""

    def __init__(self, size: int, learning_rate: float) -> None:
        self._rate = learning_rate
        self._mean, self._square, self._scale = (torch.zeros(size) for _ in range(3))
        self._steps = 0

    def step(self, parameters: torch.Tensor, gradient: torch.Tensor) -> None:
        """Update the parameters by one gradient."""
        self._steps += 1
        self._mean.lerp_(gradient, 1 - MEAN_DECAY)
        self._square.mul_(SQUARE_DECAY).addcmul_(gradient, gradient, value=1 - SQUARE_DECAY)
        torch.sqrt(self._square, out=self._scale)
        unbiased_square = 1 - SQUARE_DECAY**self._steps
        self._scale.div_(unbiased_square**0.5).add_(EPSILON)
        unbiased_mean = 1 - MEAN_DECAY**self._steps
        parameters.addcdiv_(self._mean, self._scale, value=-self._rate / unbiased_mean)

    def state(self) -> dict[str, Any]:
        """Return the complete state for a checkpoint."""
        return {
            "adam_mean": self._mean.numpy().copy(),
            "adam_square": self._square.numpy().copy(),
            "adam_steps": np.int64(self._steps),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self._mean.copy_(torch.from_numpy(state["adam_mean"]))
        self._square.copy_(torch.from_numpy(state["adam_square"]))
        self._steps = int(state["adam_steps"])
