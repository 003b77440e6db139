"""How fast simulated time may go against the wall clock, and whether it is held."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from math import isfinite


@dataclass(frozen=True)
class PaceOrder:
    """What the launcher tells a clock that it paces: one line of JSON."""

    speed: float | None
    """Simulated time per second; None is as fast as it goes."""
    held: bool
    steps: int = 0
    """Windows to grant although it is held."""

    @classmethod
    def parse(cls, line: bytes) -> PaceOrder | None:
        """Return the order in a line; None for anything else."""
        try:
            order = cls(**json.loads(line))
            fits = order.speed is None or (isfinite(order.speed) and order.speed > 0)
            fits = fits and order.steps >= 0
        except (ValueError, TypeError):
            return None
        return order if fits else None

    def line(self) -> bytes:
        """Return the order as a line."""
        return (json.dumps(vars(self)) + "\n").encode()


class Pace:
    """Makes grants wait: for the wall clock, and while the clock is held."""

    def __init__(self, speed: float | None, *, held: bool) -> None:
        self._order = PaceOrder(speed, held)
        self._steps = 0
        self._changed = asyncio.Event()
        self._base = time.monotonic(), 0.0
        """A moment of the wall clock, and the simulated time that belongs to it."""
        self.time = 0.0
        """Simulated time up to which grants went through."""

    @property
    def stepwise(self) -> bool:
        """Whether somebody watches: windows are then single decisions."""
        return self._order.held or self._order.speed is not None

    def change(self, order: PaceOrder) -> None:
        """Follow another order from now on."""
        self._order, self._steps = order, order.steps
        self._base = time.monotonic(), self.time
        self._changed.set()

    def begin(self) -> None:
        """Begin an episode."""
        self.time, self._base = 0.0, (time.monotonic(), 0.0)

    def resume(self, time_: float) -> None:
        """Go on from a simulated time."""
        self.time, self._base = time_, (time.monotonic(), time_)

    async def wait(self, until: float) -> None:
        """Wait until a grant up to a simulated time may go through."""
        while not self._due(until):
            self._changed.clear()
            delay = None if self._order.held else self._moment(until) - time.monotonic()
            try:
                await asyncio.wait_for(self._changed.wait(), delay)
            except TimeoutError:
                continue
        if self._order.held and until > self.time:
            self._steps -= 1
        self.time = max(self.time, until)

    def _due(self, until: float) -> bool:
        if until <= self.time:  # of a window that has begun
            return True
        if self._order.held:
            return self._steps > 0
        return self._order.speed is None or self._moment(until) <= time.monotonic()

    def _moment(self, until: float) -> float:
        wall, simulated = self._base
        return wall + (until - simulated) / (self._order.speed or 1.0)
