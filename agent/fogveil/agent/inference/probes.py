"""Placement that probes the nodes: a burst of jobs to one node, then to the next, and so on."""

from __future__ import annotations

from fogveil.agent.policy import AgentView
from fogveil.core.disclosure import CountKind

BURSTS = {CountKind.WAITING: 6, CountKind.IN_SYSTEM: 3}
"""Jobs in a burst. A single job never shows in a waiting count: more are needed."""


class Bursts:
    """The node of each probe.

    A queue forms at the node; how fast it shrinks reveals how fast the node is. The longer the
    queue, the more service times lie between its first and last observation, and the less the
    time between two observations blurs their sum. In a total the burst stands out from the rest.
    """

    def __init__(self, view: AgentView) -> None:
        self._burst, self._nodes = BURSTS[view.count], len(view.nodes)
        self._placed = 0

    def next(self) -> int:
        """Return the node for the next job."""
        node = self._placed // self._burst % self._nodes
        self._placed += 1
        return node
