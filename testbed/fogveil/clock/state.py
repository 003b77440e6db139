"""What the clock keeps of sources and of the window that the agent decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple


class ProtocolError(Exception):
    """A participant sent a message that the protocol does not allow."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name} {what}")
        self.name = name


class Demand(NamedTuple):
    """What the launcher has to do with a participant's process."""

    what: Literal["crash", "restart"]
    name: str


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
