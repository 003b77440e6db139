"""PLRL, the privacy-lacking agents of the literature: same machinery, other state and reward.

State: the source of the workload and the count of each Fog node. Reward, negated: the execution
delay of the last placement without its waiting (ED: latency + mean service time, which needs the
nodes' resources, level `full`), the count of the chosen node at the next decision (QL), or their
sum (ED+QL).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from agent.acting import Actor, Floats, run_layers
from agent.learned import LearningAgent
from agent.learning.replay import Places, Replay
from agent.policy import Level, Observation

LARGEST_COUNT = np.iinfo(np.int16).max
DELAY_SCALE = 0.01
"""Rewards with a delay in them are scaled: that leaves the best policy what it is, and brings
values of tens of thousands into the reach of a Huber loss and small steps."""


class PlrlActor(Actor):
    """The trained agent: looks at the source and the counts."""

    needs = Level.COUNT

    def input_size(self) -> int:
        """One-hot source and the counts."""
        return len(self.view.clusters) + len(self.view.nodes)

    def values(self, seen: Observation) -> Floats:
        """Value the actions."""
        assert seen.counts is not None
        state = np.zeros(self.input_size(), np.float32)
        state[seen.cluster] = 1
        state[len(self.view.clusters) :] = np.minimum(seen.counts, LARGEST_COUNT)
        return run_layers(self.layers, state)


class PlrlQueueLength(LearningAgent):
    """PLRL(QL): punished by the queue of the node it chose."""

    needs = Level.COUNT
    actor_kind = PlrlActor
    weighs_delay, weighs_queue = False, True

    def make_replay(self) -> Replay:
        """A decision is its source, the counts, the action and a reward."""
        counts = np.dtype((np.int16, (len(self.view.nodes),)))
        columns: dict[str, Any] = {
            "source": np.int16,
            "counts": counts,
            "action": np.int16,
            "reward": np.float32,
        }
        return Replay(self.given.buffer_capacity, columns)

    def inputs(self) -> int:
        """One-hot source and the counts."""
        return len(self.view.clusters) + len(self.view.nodes)

    def reset(self) -> None:
        """Begin an episode."""
        super().reset()
        self._last: tuple[int, float] | None = None

    def reward(self, seen: Observation) -> float:
        """Return the negated delay and queue of the last placement."""
        if self._last is None:
            return 0.0
        node, delay = self._last
        assert seen.counts is not None
        queue = float(seen.counts[node]) if self.weighs_queue else 0.0
        return -(delay + queue) * (DELAY_SCALE if self.weighs_delay else 1.0)

    def remember(self, seen: Observation, action: int, reward: float) -> None:
        """Add the decision to the buffer."""
        assert seen.counts is not None
        counts = np.minimum(seen.counts, LARGEST_COUNT)
        self.replay.add(source=seen.cluster, counts=counts, action=action, reward=reward)
        delay = 0.0
        if self.weighs_delay:
            assert seen.load is not None
            up = self.view.up[seen.cluster][seen.category][action]
            delay = up + seen.load.expected[seen.category][action]
        self._last = action, delay

    def states(self, places: Places) -> Floats:
        """Rebuild states from the buffer."""
        states = np.zeros((len(places), self.inputs()), np.float32)
        states[np.arange(len(places)), self.replay.columns["source"][places]] = 1
        states[:, len(self.view.clusters) :] = self.replay.columns["counts"][places]
        return states


class PlrlDelay(PlrlQueueLength):
    """PLRL(ED): punished by the execution delay, blind to queues in its reward."""

    needs = Level.FULL
    weighs_delay, weighs_queue = True, False


class PlrlDelayAndQueueLength(PlrlQueueLength):
    """PLRL(ED+QL): punished by both."""

    needs = Level.FULL
    weighs_delay, weighs_queue = True, True
