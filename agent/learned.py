"""What the learning agents share: phases, exploration, training steps, and what they remember.

A learning agent is a policy: `place` and `learn` together are the paper's decision step (observe
state and reward, add the trajectory to the buffer, predict an action, train). They are two because
an agent that decides ahead learns of the reward later, and the others at once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from agent.acting import Actor
from agent.learning.hyperparameters import Hyperparameters
from agent.learning.replay import Places, Replay
from agent.policy import AgentView, Observation, Policy

if TYPE_CHECKING:
    from agent.learning.ddqn import DoubleQ


class LearningAgent(Policy):
    """A double-DQN agent in one of three phases: buffer population, training, evaluation."""

    defaults: ClassVar[Hyperparameters] = Hyperparameters()
    actor_kind: ClassVar[type[Actor]]
    """How the agent acts when it is trained; it acts so while it learns, too."""

    def __init__(self, view: AgentView, given: Hyperparameters | None = None) -> None:
        self.view = view
        self.given = given or self.defaults
        self.replay = self.make_replay()
        self.learner = self.make_learner()
        self.actor = self.actor_kind(view, self.learner.online.layers())
        self._random = np.random.Generator(np.random.Philox(view.seed))
        self.decisions = 0
        self.learned = 0
        """Decisions whose reward was taken in: behind `decisions` where it decides ahead."""
        self.training_steps = 0
        self.returned = 0.0
        """Sum of the rewards of the current episode."""
        self.loss = 0.0
        super().__init__(view)

    # --- what an agent defines -----------------------------------------------------------------

    @abstractmethod
    def make_replay(self) -> Replay:
        """Return an empty buffer for this agent's decisions."""

    @abstractmethod
    def inputs(self) -> int:
        """Return the size of a state."""

    @abstractmethod
    def states(self, places: Places) -> Any:
        """Rebuild the states of decisions from the buffer, as an array or as SparseStates."""

    @abstractmethod
    def reward(self, seen: Observation) -> float:
        """Return the reward of the last action, observed now."""

    @abstractmethod
    def remember(self, seen: Observation, action: int, reward: float) -> None:
        """Add this decision, and the reward that came with it, to the buffer."""

    def rewards(self, now: Places, after: Places) -> npt.NDArray[np.number]:  # noqa: ARG002
        """Return the rewards of transitions: they came with the next decision."""
        return self.replay.columns["reward"][after]

    def make_learner(self) -> DoubleQ:
        """Return an untrained learner."""
        from agent.learning.ddqn import DoubleQ  # with it comes torch, which acting does not need

        return DoubleQ(
            (self.inputs(), *self.given.layers, len(self.view.nodes)),
            self.given,
            self.view.seed % 2**63,
        )

    # --- the decision step ---------------------------------------------------------------------

    @property
    def phase(self) -> str:
        """The phase by the paper's names."""
        if self.decisions < self.given.population_decisions:
            return "buffer population"
        done = self.training_steps >= self.given.training_steps
        return "evaluation" if done else "training"

    @property
    def epsilon(self) -> float:
        """The chance of a random action."""
        if self.phase == "buffer population":
            return self.given.population_epsilon
        return self.given.epsilon(self.training_steps)

    def reset(self) -> None:
        """Begin an episode."""
        self.replay.begin_episode()
        self.actor.reset()
        self.returned = 0.0

    def place(self, seen: Observation) -> int:
        """Choose an action, at random or the best; learn at once unless it decides ahead."""
        self.actor.look(seen)
        # Both numbers are drawn every time, so that a run does not depend on what they decide.
        chance, pick = self._random.random(2)
        if chance < self.epsilon:
            action = int(pick * len(self.view.nodes))
        else:
            action = int(self.actor.values(seen).argmax())
        self.actor.chose(seen, action)
        self.decisions += 1
        if not self.decides_ahead:
            self.learn(seen, action)
        return action

    def learn(self, seen: Observation, node: int) -> None:
        """Take in the reward that came with a decision, remember both, train when it is time."""
        reward = self.reward(seen)
        self.returned += reward
        self.remember(seen, node, reward)
        self.learned += 1
        self._train()

    def ahead(self) -> tuple[int, int]:
        """Return how many decisions may be taken now before any is learned of, and how many later.

        The first number ends where the next training step changes the weights, the second is from
        one step to the next. Kept to, they give the weights of learning after each decision, bit
        for bit. (0, 0) is no limit: the training is over.
        """
        given = self.given
        if self.training_steps >= given.training_steps:
            return 0, 0
        steps = max((self.learned - given.population_decisions) // given.train_period, 0)
        end = given.population_decisions + (steps + 1) * given.train_period
        return end - self.decisions, given.train_period

    def _train(self) -> None:
        given, since = self.given, self.learned - self.given.population_decisions
        if since <= 0 or self.training_steps >= given.training_steps:
            return
        if since % given.train_period == 0:
            self.training_steps += 1
            now, after = self.replay.sample(given.batch_size, self._random)
            if not len(now):  # no reward is known yet
                return
            self.loss = self.learner.train(
                self.states(np.concatenate((now, after))),
                self.replay.columns["action"][now],
                self.rewards(now, after),
            )
        if since % given.target_update_period == 0:
            self.learner.update_target()

    # --- checkpoints ---------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return all that is needed to go on after an episode, as arrays."""
        assert self.learned == self.decisions, "an episode ends when all is learned of"
        counters = np.array([self.decisions, self.training_steps], np.int64)
        words = _generator_words(self._random)
        return {
            **{f"learner_{name}": value for name, value in self.learner.state().items()},
            **{f"replay_{name}": value for name, value in self.replay.state().items()},
            "counters": counters,
            "random": words,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""

        def part(name: str) -> dict[str, Any]:
            return {key.removeprefix(name): state[key] for key in state if key.startswith(name)}

        self.learner.restore(part("learner_"))
        self.replay.restore(part("replay_"))
        self.decisions, self.training_steps = (int(value) for value in state["counters"])
        self.learned = self.decisions
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
