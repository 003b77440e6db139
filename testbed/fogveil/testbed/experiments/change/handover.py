"""A policy until the world changes, and another one, which was trained for that, from then on."""

from __future__ import annotations

from pathlib import Path

import fogveil.agent.policies as policies
from fogveil.agent.policy import AgentView, Level, Observation, Policy


class Handover(Policy):
    """Place by what was trained before; from an instant on by what was trained for the change."""

    needs = Level.TOTAL

    def __init__(self, view: AgentView, before: str, after: Path, at: float) -> None:
        self._before = policies.load(before, view)
        self._after = policies.load(str(after), view)
        self._at = at
        super().__init__(view)

    def reset(self) -> None:
        """Begin a new episode."""
        self._before.reset()
        self._after.reset()

    def update(self, view: AgentView) -> None:
        """Go on with other latencies."""
        super().update(view)
        self._before.update(view)
        self._after.update(view)

    def place(self, observation: Observation) -> int:
        """Return the choice of whichever agent is at work."""
        at_work = self._before if observation.time < self._at else self._after
        seen = observation.without_disclosure() if at_work.decides_ahead else observation
        node = at_work.place(seen)
        if at_work.decides_ahead:
            at_work.learn(observation, node)
        return node
