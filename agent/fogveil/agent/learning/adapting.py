"""Agents that go on learning while they work: always, or when the world has changed.

An adapting agent is the agent of the training with another schedule: it begins with weights, and
without a phase of random placements. Everything that changes what it does (the weights, the chance
of a random action, whether it learns) changes only where the number of its decisions is a multiple
of the training period. Windows of decisions taken ahead end there, so runs are the same in all
modes.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import Any, ClassVar, NamedTuple

from fogveil.agent.learning.agent_base import LearningAgent
from fogveil.agent.learning.drift_watch import Drift, DriftWatch
from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.relearning import AdaptationHyperparameters
from fogveil.agent.policy import AgentView, Observation

SIGNAL = "the sum of queued jobs"


def queued_jobs(observation: Observation) -> int:
    """Return the signal in which all agents look for drift: the queued jobs they are told of.

    For veil the residuals of its inference would be another one. In `paper` they do not show that
    a node's speed has halved or doubled: the inference explains it by its estimates.
    """
    if observation.total is not None:
        return observation.total
    assert observation.counts is not None
    return sum(count for count in observation.counts if count >= 0)


class Adapt(StrEnum):
    """When an agent learns at work."""

    ON = "on"
    """Always."""
    AUTO = "auto"
    """From a drift on, until it has learned for its training steps without another."""


class Firing(NamedTuple):
    """A drift that switched learning on, or prolonged it."""

    decision: int
    """Decisions taken when it was noticed."""
    time: float
    """Simulated time of the last of them."""
    signal: str
    """What was followed, and how it moved."""
    statistic: float
    threshold: float
    until: int | None = None
    """Decisions taken when learning was off again; None if it was not."""


class AdaptingAgent(LearningAgent):
    """What every learning agent gets that goes on learning at work."""

    adapt: ClassVar[Adapt]
    hyperparameters: AdaptationHyperparameters

    def __init__(self, view: AgentView, hyperparameters: Hyperparameters) -> None:
        assert isinstance(hyperparameters, AdaptationHyperparameters)
        self._watch = DriftWatch(hyperparameters)
        self._drift: Drift | None = None
        """A drift that was noticed since the last multiple of the training period."""
        self.firings: list[Firing] = []
        self.learning = self.adapt is Adapt.ON
        self._spell_steps = 0
        """Training steps since learning was switched on."""
        self._spell_length = hyperparameters.training_steps
        super().__init__(view, hyperparameters)

    @property
    def phase(self) -> str:
        """Whether it learns now."""
        return "adaptation" if self.learning else "evaluation"

    @property
    def epsilon(self) -> float:
        """The chance of a random action: none while it does not learn."""
        if not self.learning:
            return 0.0
        if self._is_filling:
            return self.hyperparameters.population_epsilon
        return self.hyperparameters.epsilon(self._spell_steps)

    @property
    def _is_filling(self) -> bool:
        return self.training_steps == 0 and self._spell_steps == 0

    def ahead_limits(self) -> tuple[int, int]:
        """Return how many decisions may be taken before their rewards arrive: now, and later."""
        period = self.hyperparameters.train_period
        return period - self.decisions % period, period

    def learn(self, observation: Observation, node: int) -> None:
        """Receive the reward observed with a decision; see whether the world has changed."""
        self._observed = observation
        super().learn(observation, node)

    def _train(self) -> None:
        hyperparameters = self.hyperparameters
        if self.adapt is Adapt.AUTO:
            self._drift = self._watch.add(queued_jobs(self._observed)) or self._drift
        if self.rewarded % hyperparameters.train_period:
            return
        if self._drift:
            self._note(self._drift, self._observed.time)
            self._drift = None
        if not self.learning or self.replay.held < max(hyperparameters.population_decisions, 2):
            return
        self._spell_steps += 1
        self._take_step()
        if self.training_steps % self._steps_between_targets == 0:
            self.learner.update_target()
        if self.adapt is Adapt.AUTO and self._spell_steps >= self._spell_length:
            self._switch_off()

    @property
    def _steps_between_targets(self) -> int:
        hyperparameters = self.hyperparameters
        return max(1, hyperparameters.target_update_period // hyperparameters.train_period)

    def _note(self, drift: Drift, time: float) -> None:
        """Switch learning on, or let it go on for longer; the test begins anew."""
        signal = f"{SIGNAL} {drift.direction}"
        self.firings.append(Firing(self.rewarded, time, signal, drift.statistic, drift.threshold))
        self._watch.reset()
        if self.learning:
            self._spell_length = self._spell_steps + self.hyperparameters.training_steps
            return
        self.learning = True
        self._spell_steps, self._spell_length = 0, self.hyperparameters.training_steps
        # What came before the drift teaches the world that was.
        self.replay.forget(self.hyperparameters.population_decisions)

    def _switch_off(self) -> None:
        self.learning = False
        self.firings = [
            each if each.until is not None else each._replace(until=self.rewarded)
            for each in self.firings
        ]
        self._watch.reset()


@cache
def adapting_kind(kind: type[LearningAgent], adapt: Adapt) -> type[AdaptingAgent]:
    """Return the class of an agent that learns at work as `kind` does in its training."""
    members: dict[str, Any] = {"adapt": adapt, "__module__": __name__}
    adapting: type[AdaptingAgent] = type(f"Adapting{kind.__name__}", (AdaptingAgent, kind), members)
    return adapting
