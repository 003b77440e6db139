"""The disclosure levels: how much a provider tells, and how much a policy asks for."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Level(IntEnum):
    """Each level gives all that the levels below it give.

    A provider chooses the level it discloses; a policy declares the level it needs and is
    shown exactly that, even where the providers would tell it more.
    """

    NONE = 0
    """Nothing: the policy decides from public facts and its own decisions."""
    TOTAL = 1
    """The sum of all counts, the Cloud's included."""
    COUNT = 2
    """Each node's queued-job count."""
    FULL = 3
    """Resources and load as well: for oracles and the privacy-lacking methods."""

    @property
    def word(self) -> str:
        """The level as scenarios and messages spell it."""
        return self.name.lower()

    @classmethod
    def parse(cls, word: str) -> Level:
        """Read a level from its spelling in a scenario."""
        return cls[word.upper()]


class CountKind(StrEnum):
    """What a queued-job count counts: one choice for all methods of a run."""

    WAITING = "waiting"
    """Jobs that wait, without the one in service (the paper's word)."""
    IN_SYSTEM = "in_system"
    """Jobs that wait or are in service."""
