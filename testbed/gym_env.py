"""The placement problem as a Gymnasium environment, over the same engine as every run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from agent.policy import Observation
from fogveil.disclosure import Level
from fogveil.errors import InputError
from testbed.embedded import Embedded
from testbed.scenario import load_scenario
from testbed.summary import Summary
from testbed.world import build_world

Vector = npt.NDArray[np.float32]


class PlacementEnv(gym.Env[Vector, np.int64]):
    """Each step places one workload; an episode is one run of the scenario.

    The observation is a vector: cluster and category of the workload (one-hot), the latencies
    from there to the nodes, and what the disclosure level permits: the total count; each node's
    count, the Cloud's last; at `full` also backlog and service time per node. The reward is the
    paper's, the decrease of queued jobs at all nodes since the last decision. Episodes have no
    terminal state: they are truncated after the last workload. Each reset goes on to the next
    seed; `reset(seed=…)` chooses one.

    >>> env = gym.make("testbed.gym_env:fogveil/Placement-v0", scenario="scenarios/tiny.toml")
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
        self._after_the_last = np.zeros(size, np.float32)
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
        seen = self._engine.next_decision()
        if seen is None:
            raise InputError("the scenario's horizon ends before its first workload")
        self._queued = _queued(seen)
        return self._vector(seen), {}

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """Place the current workload and go on to the next."""
        if not self.action_space.contains(action):
            raise InputError(f"action {action!r}: expected one of {self.action_space}")
        self._engine.place(int(action))
        seen = self._engine.next_decision()
        if seen is None:
            run_hash = self._engine.finish()
            info = {"run_hash": run_hash, "summary": self._summary.result()}
            return self._after_the_last, 0.0, False, True, info
        before, self._queued = self._queued, _queued(seen)
        return self._vector(seen), float(before - self._queued), False, False, {}

    def _vector(self, seen: Observation) -> Vector:
        view = self._world.agent
        parts: list[Any] = [
            np.eye(len(view.clusters))[seen.cluster],
            np.eye(len(view.categories))[seen.category],
            view.up[seen.cluster][seen.category],
        ]
        if seen.counts is None:
            parts.append([seen.total])
        else:
            parts += [seen.counts, [seen.cloud_count]]
        if seen.load is not None:
            parts += [seen.load.backlog, seen.load.service]
        return np.concatenate(parts).astype(np.float32)


def _queued(seen: Observation) -> int:
    if seen.counts is None:
        assert seen.total is not None
        return seen.total
    assert seen.cloud_count is not None
    return sum(seen.counts) + seen.cloud_count


if "fogveil/Placement-v0" not in gym.registry:
    gym.register("fogveil/Placement-v0", "testbed.gym_env:PlacementEnv")
