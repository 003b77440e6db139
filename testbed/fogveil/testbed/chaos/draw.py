"""Draws plans of faults from seeds."""

from __future__ import annotations

import random

from fogveil.protocol.identity import AGENT, BROKER, CLOCK
from fogveil.protocol.roster import Roster
from fogveil.testbed.chaos.faults import (
    CUT,
    DELAY,
    DISCONNECT,
    DOUBLE,
    DROP,
    KILL,
    ON_MESSAGES,
    REORDER,
    STALL,
    TORN,
    Fault,
    FaultPlan,
    publishers,
)

SIMULATED_KINDS = (KILL, TORN, STALL, CUT, *ON_MESSAGES)
REAL_KINDS = (KILL, STALL)
DOCKER_KINDS = (KILL, STALL, DISCONNECT)
MOST_FAULTS = 5
TOGETHER = 0.4
"""How probable it is that a fault comes at or soon after another one, while that is mended."""
LOSSES_OF_ONE = 2
"""Faults at most of which one participant may be lost: a third within seconds ends a run."""
STALLS = (0.2, 1.0, 4.0, 9.0, 15.0)
"""Seconds: shorter and longer than it takes to notice."""


def draw_plan(
    seed: int, roster: Roster, kinds: tuple[str, ...], most: int = MOST_FAULTS
) -> FaultPlan:
    """Return the plan of a seed."""
    chance = random.Random(f"chaos {seed}")  # noqa: S311 (no secret)
    faults: list[Fault] = []
    losses: dict[str, int] = {}
    for _ in range(chance.randint(1, most)):
        fault = _draw(chance, roster, kinds, faults)
        if fault.kind not in ON_MESSAGES:
            losses[fault.who] = losses.get(fault.who, 0) + 1
            if losses[fault.who] > LOSSES_OF_ONE:
                continue
        faults.append(fault)
    return FaultPlan(seed, tuple(faults))


def _draw(
    chance: random.Random, roster: Roster, kinds: tuple[str, ...], faults: list[Fault]
) -> Fault:
    kind = chance.choice(kinds)
    at, delay = round(chance.random(), 4), 0.0
    if faults and chance.random() < TOGETHER:
        at = chance.choice(faults).at
        delay = round(chance.choice((0.0, chance.uniform(0.0, 0.1), chance.uniform(0.0, 3.0))), 3)
    participants = (AGENT, *roster.fogs, roster.cloud, *roster.sources)
    anybody = (*participants, CLOCK, BROKER)
    if kind == TORN:
        return Fault(at, kind, CLOCK, delay)
    if kind == KILL:
        return Fault(at, kind, chance.choice(anybody), delay)
    if kind in (STALL, DISCONNECT):
        return Fault(at, kind, chance.choice(anybody), delay, seconds=chance.choice(STALLS))
    if kind == CUT:
        stream = chance.choice(("clock", "boundary", "mqtt"))
        if stream == "boundary":
            return Fault(
                at, kind, chance.choice((*roster.fogs, roster.cloud)), delay, stream=stream
            )
        return Fault(at, kind, chance.choice(participants), delay, stream=stream)
    number = chance.choice((1, 1, 2, 5))
    seconds = 0.0
    if kind in (DELAY, REORDER):
        seconds = round(chance.choice((0.01, 0.1, 1.0, 5.0)) * chance.random(), 4)
    assert kind in (DROP, DOUBLE, DELAY, REORDER)
    return Fault(at, kind, chance.choice(publishers(roster)), delay, seconds, number=number)
