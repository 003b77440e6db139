"""The cost of training PARL, beside stable-baselines3's DQN on the same problem and sizes.

Both run a part of a training: random decisions, then decisions with the paper's mean exploration
and a gradient step every fourth. The two costs are extrapolated to the paper's length.
"""

from __future__ import annotations

import resource
import time
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from fogveil.agent.learning.actor import Floats
from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.parl import Parl, ParlActor
from fogveil.agent.learning.vanishing_distribution import VanishingDistribution
from fogveil.agent.policy import Observation
from fogveil.gym import PlacementEnv
from fogveil.testbed.engine.embedded import Embedded, simulate
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import build_world

OVERRIDES = {"sources.scale": 100.0, "disclosure": "total"}
PAPER = Hyperparameters()
D = VanishingDistribution()
POPULATION, STEPS = 8_000, 3_000
MEAN_EPSILON = 0.75 * (1 + 0.01) / 2 + 0.25 * 0.01


class PaperState(gym.Wrapper[Floats, np.int64, Any, np.int64]):
    """The environment with the paper's state ⟨c, w, d⟩ as its observation."""

    def __init__(self, env: PlacementEnv) -> None:
        super().__init__(env)
        view = build_world(load_scenario("stress", OVERRIDES)).agent
        self._clusters, self._categories = len(view.clusters), len(view.categories)
        self._head = self._clusters + self._categories
        size = self._head + len(view.nodes) * self._clusters * self._categories
        self.observation_space = gym.spaces.Box(0.0, 1.0, (size,), np.float32)

    def reset(self, **options: Any) -> tuple[Floats, dict[str, Any]]:
        """Begin an episode with d zero."""
        vector, info = self.env.reset(**options)
        self._recent: list[int] = []
        self._age = 0
        return self._state(vector), info

    def step(self, action: np.int64) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Add the placement to d."""
        cluster, category = self._workload
        triple = (int(action) * self._clusters + cluster) * self._categories + category
        self._recent = [triple, *self._recent[: D.reach - 1]]
        self._age += 1
        vector, reward, *rest, info = self.env.step(action)
        return self._state(vector), float(reward), *rest, info  # type: ignore[return-value]

    def _state(self, vector: Floats) -> Floats:
        clusters = self._clusters
        self._workload = (
            int(vector[:clusters].argmax()),
            int(vector[clusters : self._head].argmax()),
        )
        state = np.zeros(self.observation_space.shape or (), np.float32)
        state[: self._head] = vector[: self._head]
        weights = D.table[min(self._age, D.reach + 1)]
        np.add.at(state, [self._head + t for t in self._recent], weights[: len(self._recent)])
        return state


def cost_of_fogveil() -> tuple[float, float]:
    """Return CPU seconds per decision of the population, and per gradient step of the training."""
    world = build_world(load_scenario("stress", OVERRIDES))
    hyperparameters = PAPER.model_copy(
        update={
            "buffer_population": POPULATION / PAPER.buffer_capacity,
            "training_steps": 10**9,
            "epsilon_first": MEAN_EPSILON,
            "epsilon_last": MEAN_EPSILON,
        }
    )
    agent = Parl(world.agent, hyperparameters)
    times = [time.process_time()]
    limits = [POPULATION, POPULATION + STEPS * PAPER.train_period]
    episode = 0
    while limits:
        agent.reset()
        engine = Embedded(world.reseeded(episode), agent.needs)
        while limits and (seen := engine.next_decision()) is not None:
            node = agent.place(seen.without_disclosure())
            agent.learn(seen, node)
            engine.place(node)
            if agent.decisions == limits[0]:
                times.append(time.process_time())
                del limits[0]
        episode += 1
    return (times[1] - times[0]) / POPULATION, (times[2] - times[1]) / STEPS


def cost_of_stable_baselines() -> tuple[float, float]:
    """Return the same for stable-baselines3."""
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import BaseCallback

    class Stopwatch(BaseCallback):
        times: list[float]

        def _on_training_start(self) -> None:
            self.times = [time.process_time()]

        def _on_step(self) -> bool:
            if self.num_timesteps == POPULATION:
                self.times.append(time.process_time())
            return True

    env = PaperState(PlacementEnv("stress", overrides=OVERRIDES))
    model = DQN(
        "MlpPolicy",
        env,
        learning_rate=PAPER.learning_rate,
        buffer_size=50_000,
        learning_starts=POPULATION,
        batch_size=PAPER.batch_size,
        gamma=PAPER.discount_factor,
        train_freq=PAPER.train_period,
        target_update_interval=PAPER.target_update_period,
        exploration_fraction=1e-6,
        exploration_final_eps=MEAN_EPSILON,
        max_grad_norm=1e9,
        policy_kwargs={"net_arch": list(PAPER.layers)},
        device="cpu",
    )
    watch = Stopwatch()
    model.learn(POPULATION + STEPS * PAPER.train_period, callback=watch)
    end = time.process_time()
    return (watch.times[1] - watch.times[0]) / POPULATION, (end - watch.times[1]) / STEPS


def at_paper_length(costs: tuple[float, float]) -> float:
    """Extrapolate to 100K decisions of population and 150K gradient steps."""
    return costs[0] * PAPER.population_decisions + costs[1] * PAPER.training_steps


def cost_of_decisions() -> tuple[float, float]:
    """Return CPU seconds per decision of the light form, and of the torch network."""
    from fogveil.agent.learning.network import Network

    world = build_world(load_scenario("stress", OVERRIDES))
    sizes = (251, *PAPER.layers, 10)
    network = Network(sizes, 1)
    actor = ParlActor(world.agent, network.layers())
    for job in range(D.reach + 1):
        actor.place(Observation(0.0, job, job % 8, job % 3, total=0))
    seen = Observation(0.0, 0, 1, 1, total=0)
    begin = time.process_time()
    for _ in range(5000):
        actor.values(seen)
    light = (time.process_time() - begin) / 5000
    state = np.zeros((1, 251), np.float32)
    begin = time.process_time()
    for _ in range(5000):
        network.forward(state)[0].argmax()
    return light, (time.process_time() - begin) / 5000


def main() -> None:
    """Print the comparison."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print("training PARL at paper length: 100K decisions of population, 150K gradient steps")
    print(f"{'':28}{'per decision':>14}{'per gradient step':>20}{'paper length':>15}")
    rows = {
        "fogveil": cost_of_fogveil(),
        "stable-baselines3 DQN": cost_of_stable_baselines(),
    }
    for name, (first, second) in rows.items():
        total = at_paper_length((first, second))
        print(f"{name:28}{first * 1e6:>11.0f} µs{second * 1e3:>17.2f} ms{total:>13.0f} s")
    costs = [at_paper_length(cost) for cost in rows.values()]
    print(f"fogveil takes {costs[1] / costs[0]:.1f} times less CPU")
    print("(a gradient step includes the four decisions that come with it)")

    light, torch_form = cost_of_decisions()
    forms = f"{light * 1e6:.0f} µs in the light form, {torch_form * 1e6:.0f} µs by torch"
    print(f"\none decision of a trained agent: {forms}")

    world = build_world(load_scenario("stress", OVERRIDES))
    agent = Parl(world.agent)
    agent.reset()
    simulate(world, agent)
    agent.replay.added = PAPER.buffer_capacity
    for column in agent.replay.columns.values():
        column[:] = 1
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"memory of this process, both libraries and a full replay included: {used:.0f} MB")


if __name__ == "__main__":
    main()
