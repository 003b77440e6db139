"""One gradient step of PARL by the hand-written network and Adam, and by torch's.

They alternate in short rounds, and the median round counts. Torch gets dense states for free; the
hand-written step starts from the non-zeros that the replay buffer gives.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from fogveil.agent.learning.ddqn import DoubleQ
from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.network import SparseStates
from fogveil.agent.learning.vanishing_distribution import VanishingDistribution

PAPER = Hyperparameters()
SIZES = (251, *PAPER.layers, 10)
ROUNDS, STEPS = 40, 100

Step = Callable[[], float]


def torch_step(states: SparseStates, actions: Any, rewards: Any, *, fused: bool = False) -> Step:
    """Return a double-DQN step by torch.nn, automatic differentiation and torch.optim.Adam."""

    def make_network() -> torch.nn.Sequential:
        layers = [torch.nn.Linear(*shape) for shape in pairwise(SIZES)]
        parts: list[torch.nn.Module] = [m for layer in layers for m in (layer, torch.nn.ReLU())]
        return torch.nn.Sequential(*parts[:-1])

    online, target = make_network(), make_network()
    adam = torch.optim.Adam(online.parameters(), PAPER.learning_rate, fused=fused or None)
    dense = torch.zeros(len(states.at), SIZES[0]).scatter_add_(
        1, torch.from_numpy(states.at), torch.from_numpy(states.amount)
    )
    now, after = dense[: len(actions)], dense[len(actions) :]
    chosen, reward = torch.from_numpy(actions)[:, None], torch.from_numpy(rewards)[:, None]

    def step() -> float:
        with torch.no_grad():
            best = online(after).argmax(1, keepdim=True)
            goal = reward + PAPER.discount_factor * target(after).gather(1, best)
        loss = torch.nn.functional.smooth_l1_loss(online(now).gather(1, chosen), goal)
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
        return float(loss.detach())

    return step


def main() -> None:
    """Print CPU time per step, at the paper's sizes."""
    torch.set_num_threads(1)
    random = np.random.default_rng(1)
    size = 2 * PAPER.batch_size, 2 + VanishingDistribution().reach
    states = SparseStates(random.integers(0, SIZES[0], size), random.random(size, np.float32))
    actions = random.integers(0, SIZES[-1], PAPER.batch_size)
    rewards = random.standard_normal(PAPER.batch_size).astype(np.float32)
    learner = DoubleQ(SIZES, PAPER, seed=1)
    steps: dict[str, Step] = {
        "by hand": lambda: learner.train(states, actions, rewards),
        "torch.nn, torch.optim.Adam": torch_step(states, actions, rewards),
        "torch.nn, torch.optim.Adam(fused=True)": torch_step(states, actions, rewards, fused=True),
    }
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            begin = time.process_time()
            for _ in range(STEPS):
                step()
            times[name].append((time.process_time() - begin) / STEPS)
    medians = {name: float(np.median(each)) for name, each in times.items()}
    for name, median in medians.items():
        print(f"{name:40}{median * 1e6:>6.0f} µs{median / medians['by hand']:>7.2f} x")


if __name__ == "__main__":
    main()
