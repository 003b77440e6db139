"""What the clock keeps of sources and of the window that the agent decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fogveil.v1.clock_pb2 import Grant, JoinResponse


class ProtocolError(Exception):
    """A participant sent a message that the protocol does not allow."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name} {what}")
        self.name = name


class Demand(NamedTuple):
    """What the launcher has to do with a participant's process."""

    what: Literal["crash", "restart"]
    name: str


class Standing(NamedTuple):
    """What lasts from one episode to the next: all that a clock needs to begin one."""

    episode: int
    """The one before."""
    decisions: int
    epoch: int
    adding_up: tuple[int, ...]
    largest: int


class Source:
    """The state of one sources process."""

    def __init__(self) -> None:
        self.next: list[float] = []
        self.complete = False
        self.busy = True
        """It has not yet announced its next emissions."""


@dataclass
class Window:
    """Decisions that the agent was granted."""

    instants: list[float]
    expect: list[int]
    """Workloads of each sources process up to the last instant."""


def grant(
    until: float,
    observe_at: Sequence[float] = (),
    expect: Sequence[int] = (),
    *,
    forward: bool = False,
    flush: bool = False,
    last: bool = False,
) -> JoinResponse:
    """Return an order to go through a window."""
    return JoinResponse(
        grant=Grant(
            until=until,
            observe_at=observe_at,
            expect=expect,
            forward=forward,
            flush=flush,
            last=last,
        )
    )
