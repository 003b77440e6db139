"""An agent that learns at work inside the agent's process: what it keeps in its own folder."""

from __future__ import annotations

import logging
from typing import Any

from fogveil.agent.drift_record import agent_path, checkpoint_path, describe_firing, write_drifts
from fogveil.agent.learning.adaptation import Adaptation, AdaptationRequest, parse_adapt
from fogveil.agent.policy import AgentView
from fogveil.agent.settings import AdaptationSettings, AgentSettings

log = logging.getLogger("agent")


class AdaptationHost:
    """The adapting agent of one episode; loading it reads all that it needs of the package."""

    def __init__(
        self,
        settings: AgentSettings,
        adaptation: AdaptationSettings,
        spec: str,
        view: AgentView,
        episode: int,
    ) -> None:
        request = AdaptationRequest(parse_adapt(adaptation.adapt), adaptation.changes)
        self._adaptation = Adaptation(spec, view, request)
        self._folder, self._episode = settings.folder, episode
        self._logged = 0
        self.agent = self._adaptation.agent

    def status(self) -> dict[str, Any]:
        """Return what is shown of it while it runs; log the drifts that it has noticed since."""
        agent = self.agent
        for firing in agent.firings[self._logged :]:
            log.info("%s", describe_firing(firing))
        self._logged = len(agent.firings)
        self._adaptation.save_weights_now_and_then(agent_path(self._folder, self._episode))
        return {
            "phase": agent.phase,
            "epsilon": agent.epsilon,
            "loss": agent.loss,
            "trained": agent.decisions,
        }

    def end(self) -> None:
        """Keep what it has learned, and when drifts were noticed."""
        folder, episode = self._folder, self._episode
        write_drifts(folder, episode, self.agent.firings)
        self._adaptation.save(agent_path(folder, episode), checkpoint_path(folder, episode))
