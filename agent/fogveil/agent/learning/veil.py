"""veil: a double DQN that observes counts, public latencies and its own placements.

One small network is shared by all nodes, so it works for any number of providers: it values a node
by what can be inferred of it. Its prior is the response that CI-SETR expects; it learns the error
of that expectation. The reward is the delay that a decision caused to its own job and to those
behind it (`marginal_cost`), negated. It is known only when the counts have revealed their finishes:
many decisions later, and not always the same number. Until then the decision waits in the buffer
and is not sampled.

All times are measured in units of a typical response, so that what was learned on one scenario
holds on others with other speeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fogveil.agent.inference.fog_belief import FogBelief
from fogveil.agent.inference.node_belief import Finished
from fogveil.agent.inference.total_belief import TotalBelief
from fogveil.agent.learning.actor import Actor, Floats, run_layers
from fogveil.agent.learning.agent_base import LearningAgent
from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.marginal_cost import MarginalDelay
from fogveil.agent.learning.node_features import FEATURES, HOPELESS, Feature, NodeFeatures
from fogveil.agent.learning.replay import Places, Replay
from fogveil.agent.policy import AgentView, Level, Observation

if TYPE_CHECKING:
    from fogveil.agent.learning.ddqn import DoubleQ

DEFAULTS = Hyperparameters(
    discount_factor=0.0,
    epsilon_first=0.2,
    buffer_capacity=100_000,
    buffer_population=0.05,
    population_epsilon=0.2,
    batch_size=64,
    layers=(64, 64),
    learning_rate=5e-4,
    training_steps=15_000,
)
"""What differs from the paper's table."""

BLOCK = 64
"""Nodes that are valued at a time: for more, BLAS starts threads, which mostly wait."""


class VeilActor(Actor):
    """The trained agent."""

    needs = Level.COUNT
    any_shape = True

    @classmethod
    def input_size(cls, view: AgentView) -> int:  # noqa: ARG003 (the same for any scenario)
        """Return the number of features of a node."""
        return FEATURES

    def reset(self) -> None:
        """Begin without knowledge of any node."""
        self._nodes = NodeFeatures(self.view, self.make_belief())

    def update(self, view: AgentView) -> None:
        """Go on with other latencies."""
        super().update(view)
        self._nodes.update(view)

    def make_belief(self) -> FogBelief | TotalBelief:
        """Return the beliefs before any observation."""
        return FogBelief(self.view)

    def observe(self, observation: Observation) -> None:
        """Update the beliefs by what was disclosed, and the features by the beliefs."""
        self.features = self._nodes.observe(observation)

    def values(self, observation: Observation) -> Floats:  # noqa: ARG002 (`observe` has used it)
        """Return the nodes' values: the negated expected response plus its learned correction."""
        features = self.features
        blocks = [features[first : first + BLOCK] for first in range(0, len(features), BLOCK)]
        corrections = [run_layers(self.layers, block)[:, 0] for block in blocks]
        return np.concatenate(corrections) - features[:, Feature.PRIOR]

    def placed(self, observation: Observation, action: int) -> None:
        """Add the placement to the beliefs: it explains the next counts."""
        self._nodes.placed(observation, action)

    @property
    def unit(self) -> float:
        """The typical response at the last decision."""
        return self._nodes.unit

    def finished(self) -> list[list[Finished]]:
        """Return per node the jobs that are known to be finished since the last decision."""
        return self._nodes.belief.finished


class _Pending(NamedTuple):
    """A decision whose reward is not known yet."""

    place: int
    """Its place in the buffer."""
    emitted: float
    down: float
    unit: float


class Veil(LearningAgent):
    """The agent that needs nothing but counts, learning."""

    needs = Level.COUNT
    actor_kind = VeilActor
    defaults = DEFAULTS
    actor: VeilActor

    def make_replay(self) -> Replay:
        """Return a buffer of all nodes' features, the action, and a reward that comes later."""
        features = np.dtype((np.float32, (len(self.view.nodes), FEATURES)))
        columns: dict[str, Any] = {"features": features, "action": np.int16, "reward": np.float32}
        return Replay(self.hyperparameters.buffer_capacity, columns)

    def make_learner(self) -> DoubleQ:
        """Return an untrained learner, which values the nodes by the prior alone."""
        from fogveil.agent.learning.ddqn import SharedDoubleQ

        sizes = FEATURES, *self.hyperparameters.layers, 1
        return SharedDoubleQ(
            sizes, self.hyperparameters, self.view.seed % 2**63, cost_feature=Feature.PRIOR
        )

    def reset(self) -> None:
        """Begin an episode; pending decisions of the last one stay without a reward."""
        super().reset()
        self._pending: dict[int, _Pending] = {}
        self._costs = [MarginalDelay(self.hyperparameters.reward_reach) for _ in self.view.nodes]

    @property
    def pending(self) -> dict[int, int]:
        """The decisions of this episode without a reward: job to place in the buffer."""
        return {job: pending.place for job, pending in self._pending.items()}

    def reward(self, observation: Observation) -> float:
        """Assign the rewards that the last counts made known; return their sum."""
        total = 0.0
        if observation.attempt > 1:  # what it cost where it was lost will never be known
            self._pending.pop(observation.job, None)
            for costs in self._costs:
                costs.forget(observation.job)
        for costs, finished in zip(self._costs, self.actor.finished(), strict=True):
            for job, cost in costs.settle(finished):
                if job not in self._pending:
                    continue
                place, emitted, down, unit = self._pending.pop(job)
                reward = -min((cost + down - emitted) / unit, HOPELESS)
                self.replay.columns["reward"][place] = reward
                self.replay.usable[place] = True
                total += reward
        return total

    def remember(self, observation: Observation, action: int, reward: float) -> None:  # noqa: ARG002
        """Add the decision to the buffer; its reward comes later."""
        place = self.replay.add(features=self.actor.features, action=action)
        self.replay.usable[place] = False
        down = self.view.down[observation.cluster][observation.category][action]
        self._pending[observation.job] = _Pending(place, observation.time, down, self.actor.unit)

    def rewards(self, now: Places, after: Places) -> Floats:  # noqa: ARG002
        """Return the rewards of decisions, which are stored with them."""
        rewards: Floats = self.replay.columns["reward"][now]
        return rewards

    def states(self, places: Places) -> Floats:
        """Return the features of all nodes at decisions, [decision, node, feature]."""
        states: Floats = self.replay.columns["features"][places]
        return states
