"""Messages in the order they were sent: duplicates are dropped, gaps are waited for.

Where a run goes on after a loss, messages come again: they must be those that came before.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

from google.protobuf.message import DecodeError, Message

from fogveil.core.errors import LostError, MisbehaviourError
from fogveil.protocol.identity import AGENT

log = logging.getLogger("fogveil")

PATIENCE = 30.0
"""Seconds to wait for what was announced; a broken connection is noticed much sooner."""
RECOVERY_PATIENCE = 180.0
"""Seconds to wait for it where its sender may have to be started again first."""
ASK_EVERY = 0.3
"""Seconds without what was announced after which it is asked for again."""
NO_EPISODE = -1
MOST_EARLY = 1024
"""Messages that are kept until those before them arrive."""
CHUNK = 16384
"""Workloads, jobs or results per message at most: far below what a broker relays."""


MOST_DROPPED = 10_000
"""Messages of one sender that are dropped in an episode: an honest one sends none that is."""
MOST_EARLY_BYTES = 64 * 2**20
"""Bytes of one sender's messages that are kept until those before them arrive."""


class _Dropped:
    """What this process has dropped."""

    by_sender: ClassVar[Counter[str]] = Counter()
    ends_run = True


def bear_floods() -> None:
    """From now on, drop a sender's useless messages without end: the run goes on."""
    _Dropped.ends_run = False


def _drop(sender: str, layout: str, *values: object) -> None:
    """Log that a message was dropped; LostError where a sender does not stop, if that ends runs."""
    _Dropped.by_sender[sender] += 1
    dropped = _Dropped.by_sender[sender]
    if dropped <= MOST_DROPPED:
        log.warning(layout, *values)
        return
    sentence = (
        f"{sender} sent more than {MOST_DROPPED:,} messages that are malformed, repeated or "
        "out of order"
    )
    if _Dropped.ends_run:
        raise LostError(sender, sentence)
    if dropped == MOST_DROPPED + 1:
        log.warning("%s: those that follow are dropped in silence", sentence)


class OrderedInbox:
    """Restores the order of one sender's messages within an episode.

    Sequence numbers start at 1. Protobuf reads a missing number as 0, so bytes that parse by
    accident never take the place of a message.

    >>> inbox = OrderedInbox("agent")
    >>> inbox.begin(episode=1)
    >>> inbox.take(1, 2, "second"), inbox.take(1, 1, "first"), inbox.take(1, 2, "again")
    ([], ['first', 'second'], [])
    """

    def __init__(self, sender: str, *, repeats: bool = False) -> None:
        """Expect no episode yet; `repeats` says whether messages may rightly come again."""
        self.sender = sender
        self._repeats = repeats
        self.begin(NO_EPISODE)

    def begin(self, episode: int) -> None:
        """Expect the first message of an episode."""
        self._episode = episode
        self._next = 1
        self._early: dict[int, Any] = {}
        self._early_bytes = 0
        self._digests: dict[int, int] = {}
        """Of the messages that came, by number, where they may come again."""
        _Dropped.by_sender.pop(self.sender, None)

    @property
    def taken(self) -> int:
        """How many messages have arrived in order, without a gap."""
        return self._next - 1

    def take(self, episode: int, sequence: int, message: Any, content: bytes = b"") -> list[Any]:
        """Take a message; return those that are due now, in order.

        One that came before is compared by its content, where messages may come again.
        """
        if self._repeats and self._is_repeated(episode, sequence, content):
            return []
        reason = self._drop_reason(episode, sequence)
        if reason:
            _drop(
                self.sender,
                "dropped message %d of episode %d from %s: %s",
                *(sequence, episode, self.sender, reason),
            )
            return []
        if sequence != self._next and isinstance(message, Message):
            size = message.ByteSize()
            if self._early_bytes + size > MOST_EARLY_BYTES and self._repeats:
                self._digests.pop(sequence, None)
                return []  # it is asked for again when it is next
            self._early_bytes += size
            if self._early_bytes > MOST_EARLY_BYTES:
                raise LostError(
                    self.sender,
                    f"{self.sender} sent {self._early_bytes:,} bytes after message {self._next}, "
                    "which is missing",
                )
        self._early[sequence] = message
        due = []
        while self._next in self._early:
            due.append(self._early.pop(self._next))
            self._next += 1
        if not self._early:
            self._early_bytes = 0
        return due

    def _is_repeated(self, episode: int, sequence: int, content: bytes) -> bool:
        """Return whether a message was taken before, or is of an episode that is not ours yet."""
        if episode == self._episode and sequence not in self._digests:
            if 0 < sequence < self._next + MOST_EARLY:
                self._digests[sequence] = hash(content)
            return False
        if episode == self._episode and self._digests[sequence] != hash(content):
            raise MisbehaviourError(self.sender, _differing(self.sender, sequence))
        return True

    def _drop_reason(self, episode: int, sequence: int) -> str | None:
        if self._episode == NO_EPISODE:
            return "no episode has begun"
        if episode != self._episode:
            return f"this is episode {self._episode}"
        if sequence < self._next or sequence in self._early:
            return "it is a duplicate"
        if sequence >= self._next + MOST_EARLY:
            return f"message {self._next} is still missing"
        return None


def _differing(sender: str, sequence: int) -> str:
    if sender == AGENT:
        return (
            "the policy is not deterministic: the agent, which was lost and is back, "
            f"has changed its message {sequence}"
        )
    return f"{sender} sent message {sequence} again, and it differs from what it sent before"


class ArrivalCounter:
    """Counts arrivals, and lets one task wait for a number of them.

    With `ask` it asks for them again and again: what was sent may be lost.
    """

    def __init__(self, what: str, sender: str, ask: Callable[[str], None] | None = None) -> None:
        self._what, self._sender, self._ask = what, sender, ask
        self._awaited = 0
        self._reached = asyncio.Event()
        self.count = 0

    def reset(self) -> None:
        """Start again from zero."""
        self.count = 0

    def add(self, number: int) -> None:
        """Count arrivals."""
        self.count += number
        if self.count >= self._awaited:
            self._reached.set()

    async def wait_for(self, number: int, patience: float | None = None) -> None:
        """Wait until so many have arrived in all; LostError if that takes too long."""
        if self.count >= number:
            return
        if patience is None:
            patience = RECOVERY_PATIENCE if self._ask else PATIENCE
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        self._awaited = number
        self._reached.clear()
        while self.count < number:
            left = deadline - loop.time()
            if left <= 0:
                raise LostError(
                    self._sender,
                    f"waited {patience:g} s for {self._what} {number} from {self._sender} "
                    f"and got {self.count}",
                )
            try:
                async with asyncio.timeout(min(left, ASK_EVERY) if self._ask else left):
                    await self._reached.wait()
            except TimeoutError:
                if self._ask:
                    self._ask(self._sender)


Items = TypeVar("Items", list[Any], range)


def chunks(items: Items) -> Iterator[tuple[Items, bool]]:
    """Cut items into message-sized chunks, each with whether more follow; one even if empty."""
    for start in range(0, max(len(items), 1), CHUNK):
        yield items[start : start + CHUNK], start + CHUNK < len(items)


M = TypeVar("M", bound=Message)


def parse_message(kind: type[M], payload: bytes, sender: str) -> M | None:
    """Parse a message; bytes that are none are logged and dropped, and the run goes on."""
    message = kind()
    try:
        message.ParseFromString(payload)
    except DecodeError:
        _drop(sender, "dropped %d bytes from %s: not a %s", len(payload), sender, kind.__name__)
        return None
    return message
