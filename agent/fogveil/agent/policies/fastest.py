"""The fastest service: least network and processing time, queues ignored."""

from __future__ import annotations

from fogveil.agent.policy import Level, Observation, Policy


class Fastest(Policy):
    """Choose the node of least latency plus mean service time, whatever its queue."""

    needs = Level.FULL

    def reset(self) -> None:
        """Drop the choices made for each (cluster, category)."""
        self._chosen: dict[tuple[int, int], int] = {}

    def place(self, observation: Observation) -> int:
        """Return the node that would be the fastest if all were idle."""
        kind = (observation.cluster, observation.category)
        if kind not in self._chosen:
            assert observation.load is not None
            parts = zip(
                self.view.up[observation.cluster][observation.category],
                observation.load.expected[observation.category],
                self.view.down[observation.cluster][observation.category],
                strict=True,
            )
            delays = [sum(part) for part in parts]
            self._chosen[kind] = delays.index(min(delays))
        return self._chosen[kind]
