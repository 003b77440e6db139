"""What the learning agents share: phases, exploration, training steps, checkpoint state.

A learning agent is a policy: `place` and `learn` together are the paper's decision step (observe
state and reward, add the trajectory to the buffer, predict an action, train). They are two methods
because an agent that decides ahead receives the reward later; the others receive it at once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from fogveil.agent.availability import drawn_from, greatest
from fogveil.agent.learning.actor import Actor
from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.replay import Places, Replay
from fogveil.agent.policy import AgentView, Observation, Policy

if TYPE_CHECKING:
    from fogveil.agent.learning.ddqn import DoubleQ


class LearningAgent(Policy):
    """A double-DQN agent in one of three phases: buffer population, training, evaluation."""

    defaults: ClassVar[Hyperparameters] = Hyperparameters()
    actor_kind: ClassVar[type[Actor]]
    """The deployed form of the agent, which also acts during training."""

    def __init__(self, view: AgentView, hyperparameters: Hyperparameters | None = None) -> None:
        self.view = view
        self.hyperparameters = hyperparameters or self.defaults
        self.replay = self.make_replay()
        self.learner = self.make_learner()
        self.actor = self.actor_kind(view, self.learner.online.layers(), self.hyperparameters)
        self._random = np.random.Generator(np.random.Philox(view.seed))
        self.decisions = 0
        self.rewarded = 0
        """Decisions whose reward was received: behind `decisions` where it decides ahead."""
        self.training_steps = 0
        self.returned = 0.0
        """The return: the sum of the current episode's rewards."""
        self.loss = 0.0
        super().__init__(view)

    # --- what an agent defines -----------------------------------------------------------------

    @abstractmethod
    def make_replay(self) -> Replay:
        """Return an empty buffer for this agent's decisions."""

    @abstractmethod
    def states(self, places: Places) -> Any:
        """Return the states of decisions in the buffer, as an array or as SparseStates."""

    @abstractmethod
    def reward(self, observation: Observation) -> float:
        """Return the reward that this observation gives for the last action."""

    @abstractmethod
    def remember(self, observation: Observation, action: int, reward: float) -> None:
        """Add this decision, and the reward observed with it, to the buffer."""

    def rewards(self, now: Places, after: Places) -> npt.NDArray[np.number]:  # noqa: ARG002
        """Return the rewards of transitions: each was observed with the next decision."""
        return self.replay.columns["reward"][after]

    def make_learner(self) -> DoubleQ:
        """Return an untrained learner."""
        # Imported here because it loads torch, which acting does not need.
        from fogveil.agent.learning.ddqn import DoubleQ

        return DoubleQ(
            (
                self.actor_kind.input_size(self.view),
                *self.hyperparameters.layers,
                len(self.view.nodes),
            ),
            self.hyperparameters,
            self.view.seed % 2**63,
        )

    # --- the decision step ---------------------------------------------------------------------

    @property
    def phase(self) -> str:
        """The current phase, by the paper's name."""
        if self.decisions < self.hyperparameters.population_decisions:
            return "buffer population"
        done = self.training_steps >= self.hyperparameters.training_steps
        return "evaluation" if done else "training"

    @property
    def epsilon(self) -> float:
        """The chance of a random action."""
        if self.phase == "buffer population":
            return self.hyperparameters.population_epsilon
        return self.hyperparameters.epsilon(self.training_steps)

    def reset(self) -> None:
        """Begin an episode."""
        self.replay.begin_episode()
        self.actor.reset()
        self.returned = 0.0

    def update(self, view: AgentView) -> None:
        """Pass other latencies on to the actor."""
        super().update(view)
        self.actor.update(view)

    def place(self, observation: Observation) -> int:
        """Return an ε-greedy action; learn at once unless the agent decides ahead."""
        self.actor.observe(observation)
        # Both numbers are drawn every time, so that later draws do not depend on this choice.
        chance, pick = self._random.random(2)
        if chance < self.epsilon:
            action = drawn_from(pick, len(self.view.nodes), observation.available)
        else:
            action = greatest(self.actor.values(observation), observation.available)
        self.actor.placed(observation, action)
        self.decisions += 1
        if not self.decides_ahead:
            self.learn(observation, action)
        return action

    def learn(self, observation: Observation, node: int) -> None:
        """Receive the reward observed with a decision, add both to the buffer, train when due."""
        reward = self.reward(observation)
        self.returned += reward
        self.remember(observation, node, reward)
        self.rewarded += 1
        self._train()

    def ahead_limits(self) -> tuple[int, int]:
        """Return how many decisions may be taken before their rewards arrive: now, and later.

        The first window ends where the next training step changes the weights, later ones reach
        from one step to the next. Within these limits the weights are, bit for bit, those of
        learning after each decision. (0, 0) means no limit: the training is over.
        """
        hyperparameters = self.hyperparameters
        if self.training_steps >= hyperparameters.training_steps:
            return 0, 0
        steps = max(
            (self.rewarded - hyperparameters.population_decisions) // hyperparameters.train_period,
            0,
        )
        end = hyperparameters.population_decisions + (steps + 1) * hyperparameters.train_period
        return end - self.decisions, hyperparameters.train_period

    def _train(self) -> None:
        hyperparameters = self.hyperparameters
        since = self.rewarded - hyperparameters.population_decisions
        if since <= 0 or self.training_steps >= hyperparameters.training_steps:
            return
        if since % hyperparameters.train_period == 0 and not self._take_step():
            return
        if since % hyperparameters.target_update_period == 0:
            self.learner.update_target()

    def _take_step(self) -> bool:
        """Take a training step; return whether any reward is known to learn from."""
        self.training_steps += 1
        now, after = self.replay.sample(self.hyperparameters.batch_size, self._random)
        if len(now):
            self.loss = self.learner.train(
                self.states(np.concatenate((now, after))),
                self.replay.columns["action"][now],
                self.rewards(now, after),
            )
        return bool(len(now))

    # --- checkpoints ---------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the complete state after an episode, as arrays."""
        assert self.rewarded == self.decisions, "an episode ends when all rewards are received"
        return {
            **{f"learner_{name}": value for name, value in self.learner.state().items()},
            **{f"replay_{name}": value for name, value in self.replay.state().items()},
            "counters": np.array([self.decisions, self.training_steps], np.int64),
            "random": _generator_words(self._random),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""

        def part(name: str) -> dict[str, Any]:
            return {key.removeprefix(name): state[key] for key in state if key.startswith(name)}

        self.learner.restore(part("learner_"))
        self.replay.restore(part("replay_"))
        self.decisions, self.training_steps = (int(value) for value in state["counters"])
        self.rewarded = self.decisions
        _set_generator_words(self._random, state["random"])


def _generator_words(random: np.random.Generator) -> npt.NDArray[np.uint64]:
    state: Any = random.bit_generator.state
    inner = state["state"]
    rest = [state["buffer_pos"], state["has_uint32"], state["uinteger"]]
    return np.array([*inner["counter"], *inner["key"], *state["buffer"], *rest], np.uint64)


def _set_generator_words(random: np.random.Generator, words: npt.NDArray[np.uint64]) -> None:
    random.bit_generator.state = {
        "bit_generator": "Philox",
        "state": {"counter": words[:4], "key": words[4:6]},
        "buffer": words[6:10],
        "buffer_pos": int(words[10]),
        "has_uint32": int(words[11]),
        "uinteger": int(words[12]),
    }
