"""Messages in the order they were sent: duplicates are dropped, gaps are waited for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from fogveil.errors import LostError

log = logging.getLogger("fogveil")

PATIENCE = 30.0
"""Seconds to wait for what was announced; a broken connection is noticed much sooner."""
BEFORE_ALL = -1
"""The episode in which nothing is taken."""
MOST_EARLY = 1024
"""Messages that are kept until those before them come."""
MOST_IN_ONE = 16384
"""Workloads, jobs or results in one message, which stays well below what is relayed."""


class Sequence:
    """Puts the messages of one sender and one episode into order.

    They are numbered from 1: 0 is what the protocol reads where nothing was written, so that bytes
    which are a message by accident take nobody's place.

    >>> inbox = Sequence("agent")
    >>> inbox.begin(episode=1)
    >>> inbox.take(1, 2, "second"), inbox.take(1, 1, "first"), inbox.take(1, 2, "again")
    ([], ['first', 'second'], [])
    """

    def __init__(self, sender: str) -> None:
        self.sender = sender
        self.begin(BEFORE_ALL)

    def begin(self, episode: int) -> None:
        """Expect the first message of an episode."""
        self._episode = episode
        self._next = 1
        self._early: dict[int, Any] = {}

    @property
    def taken(self) -> int:
        """How many messages came, in order and without a gap."""
        return self._next - 1

    def take(self, episode: int, sequence: int, message: Any) -> list[Any]:
        """Take a message in; return those that are due now."""
        fault = self._fault(episode, sequence)
        if fault:
            log.warning(
                "dropped message %d of episode %d from %s: %s",
                *(sequence, episode, self.sender, fault),
            )
            return []
        self._early[sequence] = message
        due = []
        while self._next in self._early:
            due.append(self._early.pop(self._next))
            self._next += 1
        return due

    def _fault(self, episode: int, sequence: int) -> str | None:
        if self._episode == BEFORE_ALL:
            return "no episode has begun"
        if episode != self._episode:
            return f"this is episode {self._episode}"
        if sequence < self._next or sequence in self._early:
            return "it came before"
        if sequence >= self._next + MOST_EARLY:
            return f"message {self._next} is still to come"
        return None


class Tally:
    """Counts what arrives, and lets somebody wait for a number of it."""

    def __init__(self, what: str, sender: str) -> None:
        self._what, self._sender = what, sender
        self._wanted = 0
        self._reached = asyncio.Event()
        self.count = 0

    def reset(self) -> None:
        """Start again from nothing."""
        self.count = 0

    def add(self, number: int) -> None:
        """Note that so many arrived."""
        self.count += number
        if self.count >= self._wanted:
            self._reached.set()

    async def reach(self, number: int, patience: float = PATIENCE) -> None:
        """Wait until so many have arrived in all."""
        if self.count >= number:
            return
        self._wanted = number
        self._reached.clear()
        try:
            async with asyncio.timeout(patience):
                await self._reached.wait()
        except TimeoutError:
            raise LostError(
                self._sender,
                f"waited {patience:g} s for {self._what} {number} from {self._sender} "
                f"and got {self.count}",
            ) from None


Item = TypeVar("Item")


def parts(items: list[Item]) -> Iterator[tuple[list[Item], bool]]:
    """Cut what may be too much for one message; say of each part whether more follow.

    Of nothing there is one part, too.
    """
    for at in range(0, max(len(items), 1), MOST_IN_ONE):
        yield items[at : at + MOST_IN_ONE], at + MOST_IN_ONE < len(items)


M = TypeVar("M", bound=Message)


def decode(kind: type[M], payload: bytes, sender: str) -> M | None:
    """Read a message; bytes that are none are dropped with a word, and the run goes on."""
    message = kind()
    try:
        message.ParseFromString(payload)
    except DecodeError:
        log.warning("dropped %d bytes from %s: no %s", len(payload), sender, kind.__name__)
        return None
    return message
