"""PARL, the paper's privacy-aware agent, to the letter: read it beside section IV.

State  s = ⟨c, w, d⟩: the IoT cluster c that emitted the workload, its category w, and the
normalised distribution d of recent placements (Algorithm 1, `vanishing_distribution`). No count,
no load, no resource.
Reward r = Q(t-1) - Q(t): the decrease of the jobs queued at all nodes, the Cloud included
(`queue_reward`).
So it needs level `total` and nothing more, and it can decide before the total arrives. The decision
step is in `LearningAgent.place` and `learn`, the phases (buffer population, training, evaluation)
in `LearningAgent.phase`, the table of hyper-parameters in `fogveil.agent.learning.hyperparameters`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fogveil.agent.learning.actor import Actor, Floats, run_layers
from fogveil.agent.learning.agent_base import LearningAgent
from fogveil.agent.learning.replay import Places, Replay
from fogveil.agent.learning.vanishing_distribution import VanishingDistribution
from fogveil.agent.policy import AgentView, Level, Observation

if TYPE_CHECKING:
    from fogveil.agent.learning.network import SparseStates


def queue_reward(before: int, now: int) -> int:
    """Return the paper's reward Q(t-1) - Q(t), from the jobs queued at all nodes.

    >>> queue_reward(before=5, now=7)
    -2
    """
    return before - now


class StateLayout:
    """The positions of c, w and d in a state, and the numbering of placements."""

    def __init__(self, view: AgentView) -> None:
        self.clusters, self.categories = len(view.clusters), len(view.categories)
        self.kinds = self.clusters * self.categories
        self.d = self.clusters + self.categories
        self.size = self.d + len(view.nodes) * self.kinds
        """One-hot cluster, one-hot category, and d of |A| x |C| x |W|."""

    def triple(self, action: int, cluster: int, category: int) -> int:
        """Return the number of the element of d for (action, cluster, category)."""
        return action * self.kinds + cluster * self.categories + category


class ParlActor(Actor):
    """The trained agent: its state is the recent placements and the workload at hand."""

    needs = Level.TOTAL
    decides_ahead = True

    @classmethod
    def input_size(cls, view: AgentView) -> int:
        """Return the size of ⟨c, w, d⟩."""
        return StateLayout(view).size

    def reset(self) -> None:
        """Begin an episode: d is zero."""
        self._layout = StateLayout(self.view)
        self._d = VanishingDistribution(self.hyperparameters.distribution_decay)
        self._recent: list[int] = []
        self._placements = 0

    def values(self, observation: Observation) -> Floats:
        """Return the actions' values, from the first layer's rows that the state touches."""
        layout, recent = self._layout, self._recent
        weights, bias = self.layers[0]
        rows = [observation.cluster, layout.clusters + observation.category]
        rows += [layout.d + triple for triple in recent]
        state = np.ones(len(rows), np.float32)
        state[2:] = self._d.table[min(self._placements, self._d.reach + 1)][: len(recent)]
        first = state @ weights[rows] + bias
        return run_layers(self.layers[1:], np.maximum(first, 0))

    def placed(self, observation: Observation, action: int) -> None:
        """Add the placement to d."""
        triple = self._layout.triple(action, observation.cluster, observation.category)
        self._recent.insert(0, triple)
        del self._recent[self._d.reach :]
        self._placements += 1


class Parl(LearningAgent):
    """The paper's double-DQN agent, learning."""

    needs = Level.TOTAL
    decides_ahead = True
    actor_kind = ParlActor

    def make_replay(self) -> Replay:
        """Return a buffer of (action, cluster, category) as one number, the action, the reward."""
        self._layout = StateLayout(self.view)
        self._d = VanishingDistribution(self.hyperparameters.distribution_decay)
        columns = {"triple": np.int32, "action": np.int16, "reward": np.int32}
        return Replay(self.hyperparameters.buffer_capacity, columns, self._d.reach)

    def reset(self) -> None:
        """Begin an episode: Q is unknown before its first decision."""
        super().reset()
        self._queued: int | None = None

    def reward(self, observation: Observation) -> int:
        """Return the queue reward; 0 at the first decision of an episode."""
        assert observation.total is not None
        before = observation.total if self._queued is None else self._queued
        self._queued = observation.total
        return queue_reward(before, observation.total)

    def remember(self, observation: Observation, action: int, reward: float) -> None:
        """Add the decision to the buffer."""
        triple = self._layout.triple(action, observation.cluster, observation.category)
        self.replay.add(triple=triple, action=action, reward=reward)

    def states(self, places: Places) -> SparseStates:
        """Return ⟨c, w, d⟩ of decisions in the buffer."""
        from fogveil.agent.learning.network import SparseStates

        layout, triples = self._layout, self.replay.columns["triple"]
        kind = triples[places] % layout.kinds
        at = np.empty((len(places), 2 + self._d.reach), np.int64)
        at[:, 0] = kind // layout.categories
        at[:, 1] = layout.clusters + kind % layout.categories
        at[:, 2:] = layout.d + triples[self.replay.before(places, self._d.steps_back)]
        amount = np.ones(at.shape, np.float32)
        amount[:, 2:] = self._d.table[np.minimum(self.replay.age[places], self._d.reach + 1)]
        return SparseStates(at, amount)
