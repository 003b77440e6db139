"""Who decides while the attacker watches: an ordinary policy, or one that places to learn."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import agent.policies as policies
from agent.choosing import choose, learn
from agent.policy import AgentView, Level, Observation, Policy
from fogveil.disclosure import CountKind
from fogveil.errors import InputError
from testbed.embedded import Embedded
from testbed.leakage.transcript import Transcript
from testbed.world import World

ORDINARY = {Level.COUNT: "ci-setr", Level.TOTAL: "random"}
"""What an honest agent would use that sees this much: the best rule, and the paper's beginning."""
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


def attacker(name: str | None, level: Level, view: AgentView) -> Policy:
    """Make the policy that decides; None is the active one."""
    if name is None:
        return Prober(view)
    needs = policies.find(name).needs
    if needs not in (Level.NONE, level):
        raise InputError(
            f"policy {name} needs disclosure level {needs.word!r}, but the attacker is to see "
            f"{level.word!r}: expected a policy that needs this level, or none"
        )
    return policies.load(name, view)


def watch(world: World, level: Level, policy: Policy, decisions: int) -> Transcript:
    """Run the embedded engine for some decisions; return what an agent at this level holds then."""
    # Sources go on for as long as it takes, whatever horizon the scenario has; a trace ends.
    endless = replace(world, sources=replace(world.sources, horizon=inf))
    engine = Embedded(endless, level)
    kind = type(policy)
    held: list[tuple[Observation, int]] = []
    while len(held) < decisions:
        seen = engine.next_decision()
        if seen is None:
            raise InputError(
                f"--decisions {decisions}: the scenario's trace has only {len(held)} workloads"
            )
        blind = kind.needs is Level.NONE or kind.decides_ahead
        node = choose(policy, seen.blind() if blind else seen, len(world.nodes))
        if kind.decides_ahead and kind.needs is not Level.NONE:
            learn(policy, seen, node)
        engine.place(node)
        held.append((seen, node))
    return Transcript(world.agent, tuple(held))
