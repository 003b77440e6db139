"""The fastest service: least network and processing time, queues ignored."""

from __future__ import annotations

from fogveil.agent.availability import least
from fogveil.agent.policy import AgentView, Level, Observation, Policy


class Fastest(Policy):
    """Choose the node of least latency plus mean service time, whatever its queue."""

    needs = Level.FULL

    def reset(self) -> None:
        """Drop the choices made for each (cluster, category)."""
        self._chosen: dict[tuple[int, int], int] = {}
        self._chosen_by: object = None
        """The speeds and the nodes among which was chosen."""

    def update(self, view: AgentView) -> None:
        """Choose anew by other latencies."""
        super().update(view)
        self._chosen.clear()

    def place(self, observation: Observation) -> int:
        """Return the node that would be the fastest if all were idle."""
        kind = (observation.cluster, observation.category)
        assert observation.load is not None
        known = observation.load.expected, observation.available
        if known != self._chosen_by:
            self._chosen.clear()
            self._chosen_by = known
        if kind not in self._chosen:
            parts = zip(
                self.view.up[observation.cluster][observation.category],
                observation.load.expected[observation.category],
                self.view.down[observation.cluster][observation.category],
                strict=True,
            )
            delays = [sum(part) for part in parts]
            self._chosen[kind] = least(delays, observation.available)
        return self._chosen[kind]
