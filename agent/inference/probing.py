"""Placing in order to learn: a burst of jobs to one node, then to the next, and so on."""

from __future__ import annotations

from collections.abc import Callable

from agent.policy import AgentView
from fogveil.disclosure import CountKind

BURSTS = {CountKind.WAITING: 6, CountKind.IN_SYSTEM: 3}
"""Jobs in a burst. A lone job never shows in a waiting count: it takes more to see one."""


class Bursts:
    """Whose turn it is.

    A line forms at the node; how fast it shrinks tells how fast the node is. The more jobs stand
    in one line, the more service times lie between its first and its last look, and the less the
    time between two looks blurs their sum. In a total the burst stands out against the rest.
    """

    def __init__(self, view: AgentView, most: int | None = None) -> None:
        self._burst, self._nodes = BURSTS[view.count], len(view.nodes)
        if most is not None:
            self._burst = min(most, self._burst)
        self._placed, self._node = 0, -1

    def next(self, choose: Callable[[], int | None] = lambda: None) -> int:
        """Return the node for the next job; whose burst begins, `choose` may say."""
        if self._placed % self._burst == 0:
            chosen = choose()
            self._node = (self._node + 1) % self._nodes if chosen is None else chosen
        self._placed += 1
        return self._node
