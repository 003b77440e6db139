"""PARL, the paper's privacy-aware agent, to the letter: read it beside section IV.

State  s = ⟨c, w, d⟩: the IoT cluster c that emitted the workload, its category w, and the
normalised distribution d of recent placements (Algorithm 1). No count, no load, no resource.
Reward r = Q(t-1) - Q(t): the decrease of the jobs queued at all nodes, the Cloud included.
So it needs level `total` and nothing more, and it can decide before it is told. What a decision
step does stands in `LearningAgent.place` and `learn`; the table of hyper-parameters in
`agent.learning.hyperparameters`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agent.acting import Actor, Floats, run_layers
from agent.learned import LearningAgent
from agent.learning.replay import Places, Replay
from agent.policy import AgentView, Level, Observation
from agent.vanishing import REACH, STEPS_BACK, vanishing_weights

if TYPE_CHECKING:
    from agent.learning.network import SparseStates


class StateLayout:
    """Where c, w and d stand in a state, and how a placement is numbered."""

    def __init__(self, view: AgentView) -> None:
        self.clusters, self.categories = len(view.clusters), len(view.categories)
        self.kinds = self.clusters * self.categories
        self.d = self.clusters + self.categories
        self.size = self.d + len(view.nodes) * self.kinds

    def triple(self, action: int, cluster: int, category: int) -> int:
        """Number the element of d for (action, cluster, category)."""
        return action * self.kinds + cluster * self.categories + category


class ParlActor(Actor):
    """The trained agent: keeps the last placements, values the actions."""

    needs = Level.TOTAL
    decides_ahead = True

    def reset(self) -> None:
        """Begin an episode: d is zero."""
        self._layout = StateLayout(self.view)
        self._recent: list[int] = []
        self._age = 0

    def input_size(self) -> int:
        """One-hot cluster, one-hot category, and d of |A| x |C| x |W|."""
        return self._layout.size

    def values(self, seen: Observation) -> Floats:
        """Value the actions, reading only the rows of the first layer that the state touches."""
        layout, recent = self._layout, self._recent
        weights, bias = self.layers[0]
        rows = [seen.cluster, layout.clusters + seen.category]
        rows += [layout.d + triple for triple in recent]
        shares = np.ones(len(rows), np.float32)
        shares[2:] = _WEIGHTS[min(self._age, REACH + 1)][: len(recent)]
        first = shares @ weights[rows] + bias
        return run_layers(self.layers[1:], np.maximum(first, 0))

    def chose(self, seen: Observation, action: int) -> None:
        """Add the placement to d."""
        self._recent.insert(0, self._layout.triple(action, seen.cluster, seen.category))
        del self._recent[REACH:]
        self._age += 1


_WEIGHTS = vanishing_weights(np.arange(REACH + 2))


class Parl(LearningAgent):
    """The paper's double-DQN agent, learning."""

    needs = Level.TOTAL
    decides_ahead = True
    actor_kind = ParlActor

    def make_replay(self) -> Replay:
        """A decision is one small number (action, cluster and category together) and a reward."""
        self._layout = StateLayout(self.view)
        columns = {"triple": np.int32, "action": np.int16, "reward": np.int32}
        return Replay(self.given.buffer_capacity, columns, REACH)

    def inputs(self) -> int:
        """One-hot cluster, one-hot category, and d of |A| x |C| x |W|."""
        return self._layout.size

    def reset(self) -> None:
        """Begin an episode: nothing was queued."""
        super().reset()
        self._queued: int | None = None

    def reward(self, seen: Observation) -> int:
        """Return Q(t-1) - Q(t); the first decision of an episode rewards nothing."""
        assert seen.total is not None
        before = seen.total if self._queued is None else self._queued
        self._queued = seen.total
        return before - seen.total

    def remember(self, seen: Observation, action: int, reward: float) -> None:
        """Add the decision to the buffer."""
        triple = self._layout.triple(action, seen.cluster, seen.category)
        self.replay.add(triple=triple, action=action, reward=reward)

    def states(self, places: Places) -> SparseStates:
        """Rebuild ⟨c, w, d⟩ from the decisions in the buffer."""
        from agent.learning.network import SparseStates

        layout, triples = self._layout, self.replay.columns["triple"]
        kind = triples[places] % layout.kinds
        at = np.empty((len(places), 2 + REACH), np.int64)
        at[:, 0] = kind // layout.categories
        at[:, 1] = layout.clusters + kind % layout.categories
        at[:, 2:] = layout.d + triples[self.replay.before(places, STEPS_BACK)]
        amount = np.ones((len(places), 2 + REACH), np.float32)
        amount[:, 2:] = _WEIGHTS[np.minimum(self.replay.age[places], REACH + 1)]
        return SparseStates(at, amount)
