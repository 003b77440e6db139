"""What the clock is told: who takes part, and which episodes to run."""

from __future__ import annotations

from dataclasses import dataclass

from fogveil.core.membership import MembershipChange
from fogveil.protocol.roster import Roster
from fogveil.protocol.settings import Settings


@dataclass(frozen=True, kw_only=True)
class ClockSettings(Settings):
    """The clock's configuration: nothing about the participants but their names."""

    roster: Roster
    draws: tuple[int, ...] | None
    """The draw of each episode; None counts them up until the agent wants no more."""
    first_draw: int
    speed: float | None
    """Simulated time per second of the wall clock; None is as fast as it goes."""
    patience: float
    """Seconds in which everybody must have joined."""
    members: tuple[MembershipChange, ...] = ()
    """When Fog providers come and go."""
    tells_providers: bool = False
    """Whether providers have to know of each other's coming and going."""
    paced: bool = False
    """Whether the launcher paces it: it is then held until it is told to go on."""
