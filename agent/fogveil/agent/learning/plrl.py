"""PLRL, the privacy-lacking agents of the literature: the same learner, other state and reward.

State: the source of the workload and the count of each Fog node. Reward, negated: the execution
delay of the last placement without its waiting (ED: latency + mean service time, which needs the
nodes' resources, level `full`), the count of the chosen node at the next decision (QL), or their
sum (ED+QL).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fogveil.agent.learning.actor import Actor, Floats, run_layers
from fogveil.agent.learning.agent_base import LearningAgent
from fogveil.agent.learning.replay import Places, Replay
from fogveil.agent.policy import AgentView, Level, Observation

LARGEST_COUNT = np.iinfo(np.int16).max
DELAY_SCALE = 0.01
"""Scale of rewards that include a delay: it leaves the best policy unchanged, and brings values
of tens of thousands into the range of a Huber loss and small steps."""


def _shown(counts: Sequence[int]) -> npt.NDArray[np.int_]:
    """Return counts as a state holds them; a node that tells none shows none."""
    return np.clip(counts, 0, LARGEST_COUNT)


class PlrlActor(Actor):
    """The trained agent: its state is the source and the counts."""

    needs = Level.COUNT

    @classmethod
    def input_size(cls, view: AgentView) -> int:
        """Return the size of a one-hot source and the counts."""
        return len(view.clusters) + len(view.nodes)

    def values(self, observation: Observation) -> Floats:
        """Return the actions' values."""
        assert observation.counts is not None
        state = np.zeros(self.input_size(self.view), np.float32)
        state[observation.cluster] = 1
        state[len(self.view.clusters) :] = _shown(observation.counts)
        return run_layers(self.layers, state)


class PlrlQueueLength(LearningAgent):
    """PLRL(QL): penalised by the queue of the node it chose."""

    needs = Level.COUNT
    actor_kind = PlrlActor
    weighs_delay, weighs_queue = False, True

    def make_replay(self) -> Replay:
        """Return a buffer of the source, the counts, the action and the reward."""
        counts = np.dtype((np.int16, (len(self.view.nodes),)))
        columns: dict[str, Any] = {
            "source": np.int16,
            "counts": counts,
            "action": np.int16,
            "reward": np.float32,
        }
        return Replay(self.hyperparameters.buffer_capacity, columns)

    def reset(self) -> None:
        """Begin an episode."""
        super().reset()
        self._last: tuple[int, float] | None = None
        """The last placement: its node and its execution delay."""

    def reward(self, observation: Observation) -> float:
        """Return the negated delay and queue of the last placement."""
        if self._last is None:
            return 0.0
        node, delay = self._last
        assert observation.counts is not None
        queue = float(max(observation.counts[node], 0)) if self.weighs_queue else 0.0
        return -(delay + queue) * (DELAY_SCALE if self.weighs_delay else 1.0)

    def remember(self, observation: Observation, action: int, reward: float) -> None:
        """Add the decision to the buffer."""
        assert observation.counts is not None
        counts = _shown(observation.counts)
        self.replay.add(source=observation.cluster, counts=counts, action=action, reward=reward)
        delay = 0.0
        if self.weighs_delay:
            assert observation.load is not None
            up = self.view.up[observation.cluster][observation.category][action]
            delay = up + observation.load.expected[observation.category][action]
        self._last = action, delay

    def states(self, places: Places) -> Floats:
        """Return the states of decisions in the buffer."""
        states = np.zeros((len(places), self.actor_kind.input_size(self.view)), np.float32)
        states[np.arange(len(places)), self.replay.columns["source"][places]] = 1
        states[:, len(self.view.clusters) :] = self.replay.columns["counts"][places]
        return states


class PlrlDelay(PlrlQueueLength):
    """PLRL(ED): penalised by the execution delay, whatever the queues."""

    needs = Level.FULL
    weighs_delay, weighs_queue = True, False


class PlrlDelayAndQueueLength(PlrlQueueLength):
    """PLRL(ED+QL): penalised by both."""

    needs = Level.FULL
    weighs_delay, weighs_queue = True, True
