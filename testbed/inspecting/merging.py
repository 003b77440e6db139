"""Merging what both ends of each channel recorded: one crossing is shown once, and compared."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from math import inf
from typing import Any

from fogveil.recording import DELIVERY, MESSAGES, STATUS
from testbed.inspecting.recordings import Noted, Recordings
from testbed.traffic import Crossing

HOLD = 2.0
"""Seconds that a crossing waits for its other end before it is shown without."""
POLL = 0.2
"""Seconds between looks at recordings that grow."""
SLACK = 0.5
"""Seconds within which everybody writes down what it noted: so notes come in the order of time."""

Key = tuple[str, str, str, str, str]


@dataclass(eq=False)
class Crossed:
    """A crossing as its two ends noted it."""

    place: int
    """The how-manieth of its sender, receiver, method and kind, from 1 on."""
    sent: Crossing | None = None
    received: Crossing | None = None
    awaited: bool = True
    """Whether it is shown only when both ends have noted it: messages alone are noted by both."""

    @property
    def one(self) -> Crossing:
        """The crossing; of its two ends, the sender's note."""
        found = self.sent or self.received
        assert found is not None
        return found

    @property
    def whole(self) -> bool:
        """Whether both ends have noted it."""
        return self.sent is not None and self.received is not None

    @property
    def differs(self) -> str:
        """How the notes of both ends differ, or ""."""
        if not self.sent or not self.received or self.sent.payload == self.received.payload:
            return ""
        return (
            f"{self.one.sender} noted {self.sent.payload.hex() or 'nothing'}, "
            f"{self.one.receiver} noted {self.received.payload.hex() or 'nothing'}"
        )

    def __str__(self) -> str:
        one = self.one
        return f"{one.sender} → {one.receiver} {one.spelled} {one.kind} number {self.place}"


@dataclass
class Verdict:
    """What the comparison of both ends, and of bytes and fields, has found."""

    crossings: int = 0
    messages: int = 0
    size: int = 0
    """Bytes of all messages."""
    both: int = 0
    """Messages that both ends have noted."""
    differing: list[Crossed] = field(default_factory=list)
    lonely: list[Crossed] = field(default_factory=list)
    """Messages that one end has not noted, although it should have."""
    unfinished: int = 0
    """Messages that one end had not noted, or not written down, when the testbed was stopped."""
    unexplained: list[Crossed] = field(default_factory=list)
    """Messages with bytes that no field of the protocol explains."""
    silent: list[str] = field(default_factory=list)
    """Participants of a run that came to its end whose whole recording is missing."""

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.differing or self.lonely or self.unexplained or self.silent)


class Merger:
    """Takes notes in the order of time, and hands out each crossing once."""

    def __init__(self, parties: Callable[[], set[str]]) -> None:
        self._parties = parties
        self._known: set[str] = set()
        self._places: dict[Key, list[int]] = {}
        self._half: dict[tuple[Key, bool], deque[Crossed]] = {}
        """Crossings by whether it is their sender's note that is still missing."""
        self._order: deque[Crossed] = deque()
        self._latest = 0.0
        self._last: dict[str, float] = {}
        """When each participant noted something for the last time."""
        self.verdict = Verdict()

    def take(self, by: str, crossing: Crossing) -> None:
        """Add a note."""
        self._latest = self._last[by] = crossing.at
        sending = by == crossing.sender
        key = _key(crossing)
        waiting = self._half.get((key, sending))
        if waiting:
            crossed = waiting.popleft()
        else:
            places = self._places.setdefault(key, [0])
            places[0] += 1
            both = self._has_two_ends(crossing)
            crossed = Crossed(places[0], awaited=both and crossing.kind in MESSAGES)
            self._order.append(crossed)
            if both:
                self._half.setdefault((key, not sending), deque()).append(crossed)
        if sending:
            crossed.sent = crossing
        else:
            crossed.received = crossing
        self._judge(crossed, crossing)

    def _has_two_ends(self, crossing: Crossing) -> bool:
        if crossing.kind == DELIVERY:
            return False  # the broker keeps no recording
        ends = {crossing.sender, crossing.receiver}
        if not ends <= self._known:
            self._known = self._parties()
        return ends <= self._known and len(ends) > 1

    def _judge(self, crossed: Crossed, crossing: Crossing) -> None:
        verdict = self.verdict
        if not crossed.whole:
            verdict.crossings += 1
            verdict.messages += crossing.is_message
            verdict.size += len(crossing.payload)
            if crossing.unexplained:
                verdict.unexplained.append(crossed)
        elif crossing.kind in MESSAGES:
            verdict.both += 1
            if crossed.differs:
                verdict.differing.append(crossed)

    def ready(self, now: float | None = None) -> Iterator[Crossed]:
        """Yield what can be shown, in order; without `now`, time is what the notes say."""
        now = self._latest if now is None else now
        order = self._order
        while order and (order[0].whole or not order[0].awaited or now - order[0].one.at > HOLD):
            yield order.popleft()

    def rest(self, *, complete: bool) -> Iterator[Crossed]:
        """Yield what is left, and judge what only one end has noted."""
        yield from self._order
        self._order.clear()
        for (key, sender_missing), halves in self._half.items():
            if key[3] not in MESSAGES:
                continue  # what goes beside messages is made by gRPC itself at one end
            for half in halves:
                cut_off = not sender_missing or half.one.at >= self._last.get(half.one.sender, 0.0)
                if cut_off and not complete:
                    self.verdict.unfinished += 1
                else:
                    self.verdict.lonely.append(half)


def _key(crossing: Crossing) -> Key:
    """Return what notes of both ends have in common; messages are told apart by their order."""
    content: Any = ""
    if crossing.kind not in MESSAGES:
        content = crossing.text
        if crossing.kind == STATUS and isinstance(content, list):
            content = content[:2]  # the server's note has the trailers, too
    kind = crossing.kind
    return crossing.sender, crossing.receiver, crossing.method, kind, json.dumps(content)


def crossings(recordings: Recordings, merger: Merger, *, follow: bool) -> Iterator[Crossed]:
    """Yield all crossings of a run; where they are followed, until the testbed ends."""
    later: list[Noted] = []
    while True:
        # Asked before the reading: what was written until the end is read then.
        working = follow and recordings.at_work()
        until = time.time() - SLACK if working else inf
        fresh = merge(later, recordings.new(), key=_at)
        later, taken = [], 0
        for by, crossing in fresh:
            if crossing.at > until:
                later.append((by, crossing))
                continue
            taken += 1
            merger.take(by, crossing)
            yield from merger.ready()
        if working:
            yield from merger.ready(until)
            time.sleep(POLL)
        elif not (follow and taken):
            break
    complete = recordings.complete()
    if complete:
        merger.verdict.silent = sorted(recordings.missing)
    yield from merger.rest(complete=complete)


def _at(noted: Noted) -> float:
    return noted[1].at
