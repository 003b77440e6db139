"""The simulated network: what is sent arrives later, in the order of its wire, or never."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

SHORTEST, LONGEST = 0.0002, 0.003
"""Seconds that a message takes."""
NOTICED_AFTER = (4.0, 6.5)
"""Seconds after which a connection is given up whose other end is silent."""


class Machine(Protocol):
    """What is connected: a process that may be ended, or be stopped for a while."""

    name: str
    alive: bool
    frozen_until: float
    """Nothing reaches it before, and nothing leaves it."""


class Connection(Protocol):
    """What ends when a machine ends, or its cable is cut."""

    kind: str
    ends: tuple[Machine, Machine]

    def lose(self, *, in_flight: bool, seen_by: Iterable[Machine] | None = None) -> None:
        """Break off; what is in flight may still arrive. By default both ends see it."""


class Network:
    """All connections, and what messages suffer on their way."""

    def __init__(self, seed: int, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.chance = random.Random(f"network {seed}")  # noqa: S311 (no secret)
        self.machines: dict[str, Any] = {}
        """Whoever runs, by name."""
        self.connections: dict[Connection, None] = {}
        self.steps = 0
        """Messages that arrived."""
        self.on_step: Callable[[int], None] = lambda _steps: None
        self.meddling: dict[str, deque[tuple[str, float]]] = {}
        """What befalls the messages that somebody publishes next: the kind of fault, seconds."""

    @property
    def now(self) -> float:
        """The virtual time."""
        return self.loop.time()

    def latency(self) -> float:
        """Draw how long a message takes."""
        return self.chance.uniform(SHORTEST, LONGEST)

    def step(self) -> None:
        """Count a message that arrived."""
        self.steps += 1
        self.on_step(self.steps)

    def connections_of(self, machine: Machine, kind: str | None = None) -> list[Connection]:
        """Return the connections of a machine, of one kind if that is given."""
        return [
            each
            for each in self.connections
            if machine in each.ends and (kind is None or each.kind == kind)
        ]

    def vanish(self, machine: Machine) -> None:
        """Break off everything of a machine whose process has ended."""
        in_flight = self.chance.random() < 0.5  # noqa: PLR2004 (as likely as not)
        for connection in self.connections_of(machine):
            connection.lose(in_flight=in_flight)

    def freeze(self, machine: Machine, seconds: float) -> None:
        """Stop a machine for a while; whoever waits for it gives up in time."""
        machine.frozen_until = max(machine.frozen_until, self.now + seconds)
        patience = self.chance.uniform(*NOTICED_AFTER)
        if seconds > patience:
            self.loop.call_later(patience, self._give_up, machine)

    def _give_up(self, machine: Machine) -> None:
        for connection in self.connections_of(machine) if machine.alive else ():
            others = [end for end in connection.ends if end is not machine]
            connection.lose(in_flight=False, seen_by=others)


class Wire:
    """One direction of a connection."""

    def __init__(
        self, network: Network, ends: tuple[Machine, Machine], deliver: Callable[[Any], None]
    ) -> None:
        self._network, self._ends, self._deliver = network, ends, deliver
        self._queue: deque[Any] = deque()
        self._last = 0.0
        self.closed = False

    def put(self, item: Any) -> None:
        """Send something."""
        if not self.closed and self._ends[0].alive:
            self._put(item)

    def put_last(self, item: Any, *, in_flight: bool) -> None:
        """Let this arrive at the end, whoever is alive, with or without what is in flight."""
        if not in_flight:
            self._queue.clear()
        if not self.closed:
            self._put(item)

    def _put(self, item: Any) -> None:
        self._queue.append(item)
        network = self._network
        self._last = max(self._last, network.now + network.latency())
        network.loop.call_at(self._last, self._arrive)

    def _arrive(self) -> None:
        if self.closed or not self._queue:
            return
        thaw = max(end.frozen_until if end.alive else 0.0 for end in self._ends)
        if thaw > self._network.now:
            self._network.loop.call_at(thaw, self._arrive)
            return
        item = self._queue.popleft()
        if self._ends[1].alive:
            self._deliver(item)
        self._network.step()
