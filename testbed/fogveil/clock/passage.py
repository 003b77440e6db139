"""The steps of an instant at which providers come or go: orders, each awaited before the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from fogveil.v1.clock_pb2 import JoinResponse


class Waiting(NamedTuple):
    """Orders, and what must hold before the next step."""

    orders: Sequence[tuple[str, JoinResponse]]
    until: Callable[[], bool]


class Passage:
    """Takes steps as soon as what they wait for holds.

    >>> arrived = []
    >>> passage = Passage(iter([Waiting([], lambda: bool(arrived)), Waiting([], lambda: True)]))
    >>> passage.advance(), passage.over
    ([], False)
    >>> arrived.append("an answer")
    >>> passage.advance(), passage.over
    ([], True)
    """

    def __init__(self, steps: Iterator[Waiting]) -> None:
        self._steps = steps
        self._waiting: Waiting | None = None
        self.over = False
        """Whether all steps are taken."""

    def advance(self) -> list[tuple[str, JoinResponse]]:
        """Return the orders of the steps that are due."""
        orders: list[tuple[str, JoinResponse]] = []
        while not self.over and (self._waiting is None or self._waiting.until()):
            self._waiting = next(self._steps, None)
            if self._waiting is None:
                self.over = True
            else:
                orders += self._waiting.orders
        return orders
