"""An event loop in which time passes only when there is nothing else to do: at no cost."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Mapping
from typing import Any


class StandstillError(Exception):
    """Everything waits, and for nothing that will come."""


class _Leap(selectors.BaseSelector):
    """Waits for no file: in place of waiting it moves the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._files: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Take a file (the loop has one, to wake itself up), and never look at it."""
        key = self._files[fileobj] = selectors.SelectorKey(fileobj, fileobj, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Forget a file."""
        return self._files.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Let the time pass."""
        if timeout is None:
            raise StandstillError
        if timeout > 0:
            self.now += timeout
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """Return the files."""
        return self._files


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop under virtual time; it serves tasks and timers, and no files."""

    def __init__(self) -> None:
        self._leap = _Leap()
        super().__init__(self._leap)

    def time(self) -> float:
        """Return the virtual time in seconds, from 0."""
        return self._leap.now
