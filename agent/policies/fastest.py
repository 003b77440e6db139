"""The fastest service: least network and processing time, queues ignored."""

from __future__ import annotations

from agent.policy import Level, Observation, Policy


class Fastest(Policy):
    """Take the node with the smallest latency plus mean service time; it never looks at queues."""

    needs = Level.FULL

    def reset(self) -> None:
        """Forget the choices made for each (cluster, category)."""
        self._chosen: dict[tuple[int, int], int] = {}

    def place(self, seen: Observation) -> int:
        """Return the node that would be the fastest if all were idle."""
        kind = (seen.cluster, seen.category)
        if kind not in self._chosen:
            assert seen.load is not None
            ways = zip(
                self.view.up[seen.cluster][seen.category],
                seen.load.expected[seen.category],
                self.view.down[seen.cluster][seen.category],
                strict=True,
            )
            delays = [sum(way) for way in ways]
            self._chosen[kind] = delays.index(min(delays))
        return self._chosen[kind]
