"""Policies that place while the attacker watches, with open eyes: shown what they do not need.

A testbed's agent is shown only what its policy declares, and gets this file as its policy's. So it
stands for itself: it imports nothing of the testbed.
"""

from __future__ import annotations

from agent.inference.probing import Bursts
from agent.policies.nearest import Nearest
from agent.policies.random import Random
from agent.policies.round_robin import RoundRobin
from agent.policy import Level, Observation, Policy


class Prober(Policy):
    """Places in order to learn, and not to serve well."""

    def reset(self) -> None:
        """Begin with the first node."""
        self._bursts = Bursts(self.view)

    def place(self, seen: Observation) -> int:
        """Return the node whose turn it is."""
        del seen
        return self._bursts.next()


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
