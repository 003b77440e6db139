"""Policies that place while the attacker watches, with open eyes: shown what they do not need.

A testbed's agent is shown only what its policy declares, and gets this file as its policy's. So it
stands for itself: it imports nothing of the testbed.
"""

from __future__ import annotations

from agent.policies.nearest import Nearest
from agent.policies.random import Random
from agent.policies.round_robin import RoundRobin
from agent.policy import Level, Observation, Policy
from fogveil.disclosure import CountKind

BURSTS = {CountKind.WAITING: 6, CountKind.IN_SYSTEM: 3}
"""Jobs in a burst. A lone job never shows in a waiting count: it takes more to see one."""


class Prober(Policy):
    """Places in order to learn: a burst of jobs to one node, then to the next, and so on.

    A line forms at the node; how fast it shrinks tells how fast the node is. The more jobs stand
    in one line, the more service times lie between its first and its last look, and the less the
    time between two looks blurs their sum. In a total the burst stands out against the rest.
    """

    def reset(self) -> None:
        """Begin with the first node."""
        self._placed = 0

    def place(self, seen: Observation) -> int:
        """Return the node whose turn it is."""
        del seen
        turn = self._placed // BURSTS[self.view.count]
        self._placed += 1
        return turn % len(self.view.nodes)


BLIND = {None: Prober, "random": Random, "round-robin": RoundRobin, "nearest": Nearest}
"""By name; None is the one that places in order to learn."""


def class_name(name: str | None, level: Level) -> str:
    """Return what the class is called that places like this one and sees so much."""
    return f"{BLIND[name].__name__}At{level.word.title()}"


for _name, _kind in BLIND.items():
    for _level in (Level.COUNT, Level.TOTAL):
        globals()[class_name(_name, _level)] = type(
            class_name(_name, _level), (_kind,), {"needs": _level}
        )
