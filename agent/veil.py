"""veil: a double DQN that sees counts at decision instants, public latencies and its own past.

One small network is shared by all nodes, so it knows no number of providers: it values a node by
what can be inferred of it. Its prior is the response that CI-SETR expects; what it learns is how
that expectation errs. The reward is the delay that its decision caused to everybody, negated: to
its own job and to those behind it (`agent.marginal`). It is known only when the counts give their
finishes away: many decisions later, and not always the same number. Until then the decision waits
in the buffer and is not sampled.

All times are measured in units of a typical response, so that what was learned on one scenario
holds on others with other speeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from agent.acting import Actor, Floats, run_layers
from agent.inference.fog_belief import FogBelief
from agent.inference.node_belief import Finished
from agent.learned import LearningAgent
from agent.learning.hyperparameters import Hyperparameters
from agent.learning.replay import Places, Replay
from agent.marginal import MarginalDelay
from agent.policy import AgentView, Level, Observation

if TYPE_CHECKING:
    from agent.learning.ddqn import DoubleQ

FEATURES = 15
MEMORY = 30.0
"""Typical responses over which a node's load is averaged."""
LARGEST = 4.0
"""Features are clipped here: beyond it a node is hopeless anyway."""


HOPELESS = 40.0
"""So many typical responses: no node is worse than this."""


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


class NodeFeatures:
    """Turns what is believed of the nodes into the network's inputs, [node, feature]."""

    def __init__(self, view: AgentView) -> None:
        self._view = view
        self.belief = FogBelief(view)
        up, down = np.array(view.up), np.array(view.down)
        self._way = float((up + down).mean())
        self._work = np.zeros(len(view.nodes))
        self._then = 0.0

    def observe(self, seen: Observation) -> Floats:
        """Take the counts of a decision instant and return the features; the first is the prior."""
        assert seen.counts is not None
        belief, view = self.belief, self._view
        belief.observe(seen.time, seen.counts)
        workload = seen.job, seen.cluster, seen.category
        responses = np.array(belief.responses(*workload))
        overtaken = np.array(belief.overtaken(*workload))
        service = np.array(belief.service)
        self.unit = self._way + float(service.mean())
        own = service[:, seen.category]
        self._own = own
        memory = MEMORY * self.unit
        self._work *= np.exp((self._then - seen.time) / memory)
        self._then = seen.time
        # What was placed lately, against the time since then: the episode may be young.
        load = self._work / (memory * -np.expm1(-(seen.time + 1e-9) / memory))
        spread = np.array(belief.means.deviations)[:, seen.category]
        up = np.array(view.up[seen.cluster][seen.category])
        down = np.array(view.down[seen.cluster][seen.category])
        prior = responses + overtaken * own
        gap = prior - prior.min()
        counts = np.array(seen.counts, float)
        features = np.empty((len(counts), FEATURES), np.float32)
        columns = (
            *(prior / self.unit, gap / self.unit, own / self.unit, up / self.unit),
            *(down / self.unit, np.array(belief.backlogs) / self.unit, counts / 8),
            *(np.array(belief.in_transit) / 4, spread, spread * own / self.unit),
            *(belief.means.factor_variance, counts.mean() / 8, overtaken * own / self.unit),
            *(load, load.mean()),
        )
        for place, column in enumerate(columns):
            features[:, place] = column
        # The prior is a cost and keeps the order of hopeless nodes; it is clipped more mildly.
        np.clip(features[:, 1:], 0.0, LARGEST, out=features[:, 1:])
        np.minimum(features[:, 0], HOPELESS, out=features[:, 0])
        return features

    def placed(self, seen: Observation, action: int) -> None:
        """Take note of the placement: it is what the next counts are explained by."""
        self._work[action] += self._own[action]
        self.belief.placed(action, seen.job, seen.cluster, seen.category)


class VeilActor(Actor):
    """The trained agent."""

    needs = Level.COUNT
    any_shape = True

    def reset(self) -> None:
        """Begin with no knowledge of any node."""
        self._nodes = NodeFeatures(self.view)

    def look(self, seen: Observation) -> None:
        """Explain the counts by the own placements."""
        self.features = self._nodes.observe(seen)

    def values(self, seen: Observation) -> Floats:  # noqa: ARG002 (`look` took it in)
        """Value the nodes: the expected response, negated, plus what was learned about it."""
        learned: Floats = run_layers(self.layers, self.features)[:, 0]
        return learned - self.features[:, 0]

    def chose(self, seen: Observation, action: int) -> None:
        """Remember the placement: it is what the next counts are explained by."""
        self._nodes.placed(seen, action)

    def input_size(self) -> int:
        """Return the number of features of a node."""
        return FEATURES

    @property
    def unit(self) -> float:
        """The typical response at the last decision."""
        return self._nodes.unit

    def finished(self) -> list[list[Finished]]:
        """Return, node by node, the jobs that the last counts showed to be finished."""
        return [node.finished for node in self._nodes.belief.nodes]


class _Pending(NamedTuple):
    """A decision whose reward is not known yet."""

    place: int
    emitted: float
    down: float
    unit: float


class Veil(LearningAgent):
    """The boundary-only agent, learning."""

    needs = Level.COUNT
    actor_kind = VeilActor
    defaults = DEFAULTS
    actor: VeilActor

    def make_replay(self) -> Replay:
        """A decision is the features of all nodes, the action and a reward that comes later."""
        features = np.dtype((np.float32, (len(self.view.nodes), FEATURES)))
        columns: dict[str, Any] = {"features": features, "action": np.int16, "reward": np.float32}
        return Replay(self.given.buffer_capacity, columns)

    def make_learner(self) -> DoubleQ:
        """Return an untrained learner, which acts on the prior alone."""
        from agent.learning.ddqn import SharedDoubleQ

        return SharedDoubleQ(
            (self.inputs(), *self.given.layers, 1), self.given, self.view.seed % 2**63
        )

    def inputs(self) -> int:
        """Return the number of features of a node."""
        return FEATURES

    def reset(self) -> None:
        """Begin an episode; decisions of the last one whose reward never came stay unused."""
        super().reset()
        self._pending: dict[int, _Pending] = {}
        self._costs = [MarginalDelay() for _ in self.view.nodes]

    def reward(self, seen: Observation) -> float:  # noqa: ARG002 (`look` took it in)
        """Settle the decisions whose cost to everybody the counts have given away."""
        settled = 0.0
        for costs, finished in zip(self._costs, self.actor.finished(), strict=True):
            for job, cost in costs.settle(finished):
                place, emitted, down, unit = self._pending.pop(job)
                reward = -min((cost + down - emitted) / unit, HOPELESS)
                self.replay.columns["reward"][place] = reward
                self.replay.usable[place] = True
                settled += reward
        return settled

    def remember(self, seen: Observation, action: int, reward: float) -> None:  # noqa: ARG002
        """Add the decision to the buffer; its reward is to come."""
        place = self.replay.add(features=self.actor.features, action=action)
        self.replay.usable[place] = False
        down = self.view.down[seen.cluster][seen.category][action]
        self._pending[seen.job] = _Pending(place, seen.time, down, self.actor.unit)

    def rewards(self, now: Places, after: Places) -> Floats:  # noqa: ARG002
        """Return the rewards of decisions, which are kept with them."""
        rewards: Floats = self.replay.columns["reward"][now]
        return rewards

    def states(self, places: Places) -> Floats:
        """Return the features of all nodes at decisions."""
        states: Floats = self.replay.columns["features"][places]
        return states
