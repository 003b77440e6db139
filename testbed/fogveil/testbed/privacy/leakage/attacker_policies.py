"""Policies of attackers in a testbed: they place without observations, but are shown them.

A testbed's agent is shown only what its policy declares to need, and runs this file as the file of
its policy. So it imports nothing of the testbed.
"""

from __future__ import annotations

from fogveil.agent.inference.probes import Bursts
from fogveil.agent.policies.nearest import Nearest
from fogveil.agent.policies.random import Random
from fogveil.agent.policies.round_robin import RoundRobin
from fogveil.agent.policy import Level, Observation, Policy


class Prober(Policy):
    """Places in order to learn, not to serve well."""

    def reset(self) -> None:
        """Start with the first node."""
        self._bursts = Bursts(self.view)

    def place(self, seen: Observation) -> int:
        """Return the node to probe next."""
        del seen
        return self._bursts.next()


def observer_name(policy: type[Policy], level: Level) -> str:
    """Return the name of the class that places like a policy and is shown this level."""
    return f"{policy.__name__}At{level.word.title()}"


def _observers(policy: type[Policy]) -> list[type[Policy]]:
    """Return the policy as one that is shown the counts, and as one that is shown the total."""
    return [
        type(observer_name(policy, level), (policy,), {"needs": level})
        for level in (Level.COUNT, Level.TOTAL)
    ]


# The agent's process finds them here by name.
ProberAtCount, ProberAtTotal = _observers(Prober)
RandomAtCount, RandomAtTotal = _observers(Random)
RoundRobinAtCount, RoundRobinAtTotal = _observers(RoundRobin)
NearestAtCount, NearestAtTotal = _observers(Nearest)

OBSERVED: dict[str | None, type[Policy]] = {
    None: Prober,
    "random": Random,
    "round-robin": RoundRobin,
    "nearest": Nearest,
}
"""The policies that have observers, by name; None is the prober."""
