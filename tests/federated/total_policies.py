"""Policies of level `total` for scenarios in which providers come and go."""

from __future__ import annotations

from fogveil.agent.policy import Level, Policy


class LooksAtTotal(Policy):
    """Every decision depends on the total."""

    needs = Level.TOTAL

    def place(self, seen):
        nodes = seen.available or range(len(self.view.nodes))
        return nodes[(seen.total + seen.job) % len(nodes)]


class AheadOfTotals(Policy):
    """Is told the total later; may learn no more than that from it at once."""

    needs = Level.TOTAL
    decides_ahead = True

    def reset(self):
        self.decided = []

    def place(self, seen):
        assert seen.total is None
        nodes = seen.available or range(len(self.view.nodes))
        self.decided.append((seen.job, nodes[7 * seen.job % len(nodes)]))
        return self.decided[-1][1]

    def learn(self, seen, node):
        assert (seen.job, node) == self.decided.pop(0)
        assert seen.total >= 0
