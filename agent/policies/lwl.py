"""Least work left."""

from __future__ import annotations

from agent.policy import Level, Observation, Policy


class LeastWorkLeft(Policy):
    """Know the work that has arrived at each node, but not the jobs underway to it."""

    needs = Level.FULL

    def place(self, seen: Observation) -> int:
        """Return the node that would send this workload back first, were nothing underway."""
        assert seen.load is not None
        ways = zip(
            self.view.up[seen.cluster][seen.category],
            seen.load.backlog,
            seen.load.expected[seen.category],
            self.view.down[seen.cluster][seen.category],
            strict=True,
        )
        delays = [max(up, backlog) + service + down for up, backlog, service, down in ways]
        return delays.index(min(delays))
