"""The decision instants, which all nodes share: where nothing moves, a node need not be told."""

from __future__ import annotations

from math import inf


class Instants:
    """The last two decision instants."""

    __slots__ = ("before", "now")

    def __init__(self) -> None:
        self.now = -inf
        self.before = -inf

    def move(self, now: float) -> None:
        """Go on to the next instant."""
        self.before, self.now = self.now, now
