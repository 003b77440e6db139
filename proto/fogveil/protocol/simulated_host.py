"""Where a participant runs inside a simulation: what it meets there in place of the machine.

Its code is that of a real process. Only where it would open a connection, listen, or speak to its
launcher, it asks whether it is inside a simulation.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol


class SimulatedHost(Protocol):
    """What a simulation gives a participant that runs in it."""

    def dial(self, address: str) -> Any:
        """Return a channel to whoever serves at an address."""

    def serve(self, register: tuple[Callable[[Any], None], ...]) -> tuple[Any, int]:
        """Serve some services; return the server and its port."""

    def connect_broker(self) -> Any:
        """Return a client of the broker."""

    def report(self, facts: dict[str, Any]) -> None:
        """Take a report to the launcher."""

    def on_launcher_line(self, handle: Callable[[bytes], None]) -> None:
        """Call a function with every line that the launcher sends."""


simulated_host: ContextVar[SimulatedHost | None] = ContextVar("simulated_host", default=None)
"""None in every real process."""
