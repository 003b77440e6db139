"""The placement problem as a Gymnasium environment, on the engine of every embedded run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from fogveil.agent.learning.parl import queue_reward
from fogveil.agent.policy import Observation
from fogveil.core.disclosure import Level
from fogveil.core.errors import InputError
from fogveil.testbed.engine.embedded import Embedded
from fogveil.testbed.records.summary import Summary
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import build_world

Vector = npt.NDArray[np.float32]


class PlacementEnv(gym.Env[Vector, np.int64]):
    """Each step places one workload; an episode is one run of the scenario.

    The observation is a vector: cluster and category of the workload (one-hot), the latencies
    from there to the nodes, and what the disclosure level permits: the total count; each node's
    count, the Cloud's last; at `full` also backlog and service time per node. The reward is the
    paper's, the decrease of queued jobs at all nodes since the last decision. Episodes have no
    terminal state: they are truncated after the last workload. Each reset advances to the next
    seed; `reset(seed=…)` sets it.

    >>> env = gym.make("fogveil.gym:fogveil/Placement-v0", scenario="tiny")
    >>> vector, _ = env.reset(seed=1)
    >>> env.action_space
    Discrete(3)
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own declaration)

    def __init__(
        self,
        scenario: str | Path,
        level: str | None = None,
        overrides: dict[str, Any] | None = None,
    ) -> None:
        changes = dict(overrides or {})
        if level is not None:
            changes["disclosure"] = level
        self._world = build_world(load_scenario(Path(scenario), changes))
        self._level = self._world.agent.disclosed
        if self._level < Level.TOTAL:
            raise InputError("the reward needs disclosure level total, count or full")
        self._seed = self._world.scenario.seed
        view = self._world.agent
        nodes = len(view.nodes)
        disclosed = {Level.TOTAL: 1, Level.COUNT: nodes + 1, Level.FULL: 3 * nodes + 1}
        size = len(view.clusters) + len(view.categories) + nodes + disclosed[self._level]
        self.observation_space = spaces.Box(0.0, np.inf, (size,), np.float32)
        self._final_vector = np.zeros(size, np.float32)
        self.action_space = spaces.Discrete(nodes)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Vector, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed, options=options)
        self._seed = self._seed + 1 if seed is None else seed
        self._world = self._world.reseeded(self._seed)
        self._summary = Summary(self._world)
        self._engine = Embedded(self._world, self._level, watches_cloud=True, sinks=[self._summary])
        observation = self._engine.next_decision()
        if observation is None:
            raise InputError("the scenario's horizon ends before its first workload")
        self._queued = _queued(observation)
        return self._vector(observation), {}

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """Place the current workload and advance to the next."""
        if not self.action_space.contains(action):
            raise InputError(f"action {action!r}: expected one of {self.action_space}")
        self._engine.place(int(action))
        observation = self._engine.next_decision()
        if observation is None:
            run_hash = self._engine.finish()
            info = {"run_hash": run_hash, "summary": self._summary.result()}
            return self._final_vector, 0.0, False, True, info
        before, self._queued = self._queued, _queued(observation)
        reward = float(queue_reward(before, self._queued))
        return self._vector(observation), reward, False, False, {}

    def _vector(self, observation: Observation) -> Vector:
        view = self._world.agent
        parts: list[Any] = [
            np.eye(len(view.clusters))[observation.cluster],
            np.eye(len(view.categories))[observation.category],
            view.up[observation.cluster][observation.category],
        ]
        if observation.counts is None:
            parts.append([observation.total])
        else:
            parts += [observation.counts, [observation.cloud_count]]
        if observation.load is not None:
            parts += [observation.load.backlog, observation.load.service]
        return np.concatenate(parts).astype(np.float32)


def _queued(observation: Observation) -> int:
    if observation.counts is None:
        assert observation.total is not None
        return observation.total
    assert observation.cloud_count is not None
    return sum(observation.counts) + observation.cloud_count
