"""An agent in training inside the agent's process: checkpoints in its folder, progress reports."""

from __future__ import annotations

from typing import Any

from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.registry import find_agent
from fogveil.agent.learning.training_state import TrainingState, library_versions
from fogveil.agent.learning.transfer import Transfer
from fogveil.agent.settings import AgentSettings, TrainingSettings
from fogveil.protocol.participant import report


class TrainingHost:
    """Trains one agent episode after episode, from the folder's checkpoint if there is one."""

    def __init__(self, settings: AgentSettings, training: TrainingSettings) -> None:
        hyperparameters = Hyperparameters(**training.hyperparameters)
        transfer = None
        if training.start:
            transfer = Transfer(settings.folder / training.start, replay=training.replay)
        self._state = TrainingState(
            settings.view, training.agent, hyperparameters, settings.folder, transfer
        )
        self._state.resume()
        self._checkpoint_period = training.every
        self.agent = self._state.agent

    def begin(self) -> None:
        """Begin an episode."""
        self._state.begin()

    def end(self) -> bool:
        """Report the episode's figures, save, and return whether the training is over."""
        figures = self._state.end()
        finished = self._state.finished
        if finished or self._state.episodes % self._checkpoint_period == 0:
            self._state.save()
        if finished:
            self._state.save_agent()
        report(episode=figures._asdict())
        return finished

    def status(self) -> dict[str, Any]:
        """Return what a progress bar shows."""
        agent = self.agent
        return {
            "phase": agent.phase,
            "epsilon": agent.epsilon,
            "loss": agent.loss,
            "trained": agent.decisions,
        }


def preload(training: TrainingSettings) -> None:
    """Read all that a training needs of the package's files, while the process still may."""
    from fogveil.agent.learning import adam, ddqn, network

    del adam, ddqn, network
    find_agent(training.agent)
    library_versions()
