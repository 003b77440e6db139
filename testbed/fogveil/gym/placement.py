"""The placement problem as a Gymnasium environment, on the engine of every embedded run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from fogveil.agent.observation_vector import Mask, ObservationVector, Vector
from fogveil.agent.policy import AgentView, Observation
from fogveil.core.disclosure import Level
from fogveil.core.errors import InputError
from fogveil.gym.render import Frame, draw_rgb, draw_text
from fogveil.gym.rewards import REWARDS, Outcome, RewardFunction, checked_reward, find_reward
from fogveil.testbed.engine.embedded import Embedded
from fogveil.testbed.engine.outlook import Outlook
from fogveil.testbed.records.summary import Summary
from fogveil.testbed.scenario import Scenario, load_scenario
from fogveil.testbed.scenario.world import build_world


class PlacementEnv(gym.Env[Vector, np.int64]):
    """Each step places one workload; an episode is one run of the scenario.

    The observation is a vector: cluster and category of the workload (one-hot), the latencies
    from there to the nodes, and what the disclosure level permits: the total count; each node's
    count, the Cloud's last; at `full` also backlog and service time per node. `reward` is "queue"
    (the paper's: the decrease of queued jobs at all nodes since the last decision), "delay",
    "marginal" or a function of an `Outcome`. Episodes have no terminal state: they are truncated
    after the last workload. Each reset advances by `seed_step` to the next seed; `reset(seed=…)`
    sets it. `info` is the experimenter's: its key "experimenter" holds what no agent is told.

    >>> env = gym.make("fogveil.gym:fogveil/Placement-v0", scenario="tiny")
    >>> vector, info = env.reset(seed=1)
    >>> env.action_space, info["cluster"], info["category"]
    (Discrete(3), 'cluster-1', 'light')
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 (Gymnasium's own declaration)
        "render_modes": ["ansi", "rgb_array"],
        "render_fps": 8,
    }

    def __init__(
        self,
        scenario: str | Path | Scenario,
        level: str | None = None,
        overrides: dict[str, Any] | None = None,
        *,
        reward: str | RewardFunction = "queue",
        seed_step: int = 1,
        render_mode: str | None = None,
    ) -> None:
        changes = dict(overrides or {})
        if level is not None:
            changes["disclosure"] = level
        if isinstance(scenario, Scenario):
            content = load_scenario(scenario.model_dump(mode="json"), changes)
        else:
            content = load_scenario(Path(scenario), changes)
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise InputError(f"render mode {render_mode!r}: expected 'ansi' or 'rgb_array'")
        if seed_step < 1:
            raise InputError(f"seed_step {seed_step}: expected 1 or more")
        self._reward = find_reward(reward)
        self._world = build_world(content)
        if self._world.loses_jobs:
            raise InputError(
                "the environment cannot pay for jobs that a crash loses: write "
                'jobs = "recovered" in the scenario\'s events'
            )
        self.level = self._world.agent.disclosed
        """What the observations hold."""
        if self.level < Level.TOTAL and self._reward is REWARDS["queue"]:
            raise InputError(
                "the reward needs disclosure level total, count or full; at level none choose "
                'reward="delay" or "marginal"'
            )
        self.render_mode = render_mode
        self.reward_name = reward if isinstance(reward, str) else "function"
        self.vectors = ObservationVector(self.view, self.level)
        """Where the observation's parts are in a vector: `vectors.parts`."""
        self._seed = self._world.scenario.seed
        self._seed_step = seed_step
        self._final_vector = np.zeros(self.vectors.size, np.float32)
        self.observation_space = spaces.Box(0.0, np.inf, (self.vectors.size,), np.float32)
        self.action_space = spaces.Discrete(len(self.view.nodes))

    @property
    def view(self) -> AgentView:
        """The public facts of the scenario."""
        return self._world.agent

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Vector, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed, options=options)
        self._seed = self._seed + self._seed_step if seed is None else seed
        self._world = self._world.reseeded(self._seed)
        self._summary = Summary(self._world)
        self._engine = Embedded(
            self._world, self.level, watches_cloud=True, sinks=[self._summary], stepwise=True
        )
        self._outlook = Outlook(self._engine.providers.fogs)
        self._last: tuple[Outcome, float] | None = None
        self.vectors.update(self.view)
        observation = self._engine.next_decision()
        if observation is None:
            raise InputError("the scenario's horizon ends before its first workload")
        self._observe(observation)
        return self.vectors.of(observation), self._info()

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """Place the current workload and advance to the next."""
        if not self.action_space.contains(action) or not self.action_masks()[action]:
            raise InputError(f"action {action!r}: expected one of {self.action_space}")
        if self._seen is None:
            raise InputError("the episode is over: reset the environment")
        seen, node, before = self._seen, int(action), sum(self._queued)
        self._engine.place(node)
        effect = self._outlook.placed(node, seen.job)
        observation = self._engine.next_decision()
        self._observe(observation)
        up = self._world.paths_over_time.at(seen.time).up
        down = self._world.paths_over_time.at(effect.finished).down
        arrived = seen.time + up[seen.cluster][seen.category][node]
        returned = effect.finished + down[seen.cluster][seen.category][node]
        outcome = Outcome(
            seen=seen,
            node=node,
            latency=arrived - seen.time,
            waiting=effect.started - arrived,
            service=effect.finished - effect.started,
            delay=returned - seen.time,
            delay_to_others=effect.others,
            queued_before=before,
            queued_after=before if observation is None else sum(self._queued),
            last=observation is None,
        )
        reward = checked_reward(self._reward(outcome))
        self._last = outcome, reward
        if observation is None:
            run_hash = self._engine.finish()
            info = {**self._info(), "run_hash": run_hash, "summary": self._summary.result()}
            return self._final_vector, reward, False, True, info
        return self.vectors.of(observation), reward, False, False, self._info()

    def action_masks(self) -> Mask:
        """Return which actions are possible now: sb3-contrib's name for it."""
        return self._mask

    def render(self) -> Any:
        """Return the queues as text (`ansi`) or as a picture (`rgb_array`)."""
        if self.render_mode is None:
            gym.logger.warn("render() needs a render_mode: 'ansi' or 'rgb_array'")
            return None
        frame = self._frame()
        return draw_text(frame) if self.render_mode == "ansi" else draw_rgb(frame)

    def _observe(self, observation: Observation | None) -> None:
        """Keep the decision that has to be taken, and the counts that the experimenter knows."""
        self._seen = observation
        providers = self._engine.providers
        self._queued = (*providers.counts, providers.cloud.count)
        if observation is not None:
            self._mask = self.vectors.mask(observation)
            if self._engine.new_latencies is not None:
                self.vectors.update(self._engine.new_latencies.applied_to(self.view))

    def _workload(self, seen: Observation) -> dict[str, Any]:
        return {
            "time": seen.time,
            "job": seen.job,
            "cluster": self.view.clusters[seen.cluster],
            "category": self.view.categories[seen.category],
        }

    def _info(self) -> dict[str, Any]:
        """Return the workload at hand, the last placement, and what only the experimenter knows."""
        names = (*self.view.nodes, self.view.cloud)
        private: dict[str, Any] = {"counts": dict(zip(names, self._queued, strict=True))}
        info: dict[str, Any] = {"action_mask": self._mask.copy(), "experimenter": private}
        if self._seen is not None:
            info |= self._workload(self._seen)
        if self._last is not None:
            outcome = self._last[0]
            info["placed"] = {**self._workload(outcome.seen), "node": self.view.nodes[outcome.node]}
            private |= {name: getattr(outcome, name) for name in PARTS}
            private["rewards"] = {name: reward(outcome) for name, reward in REWARDS.items()}
        return info

    def _frame(self) -> Frame:
        scenario = self._world.scenario
        return Frame(
            title=f"{scenario.name}, seed {self._seed}",
            at_hand=None if self._seen is None else self._workload(self._seen),
            node=None if self._last is None else self.view.nodes[self._last[0].node],
            reward=None if self._last is None else self._last[1],
            counts=dict(zip((*self.view.nodes, self.view.cloud), self._queued, strict=True)),
        )


PARTS = ("latency", "waiting", "service", "delay", "delay_to_others")
"""Of an outcome, what `info` holds of it."""
