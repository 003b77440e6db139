"""Merging the recordings of both ends of each channel: each crossing once, its ends compared."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from math import inf
from typing import Any

from fogveil.protocol.recording import DELIVERY, MESSAGES, STATUS
from fogveil.testbed.privacy.inspect.crossing import Crossing
from fogveil.testbed.privacy.inspect.recordings import RecordedCrossing, Recordings

HOLD = 2.0
"""Seconds for which a crossing waits for its other end before it is yielded without it."""
POLL = 0.2
"""Seconds between two reads of recordings that grow."""
FLUSH_DELAY = 0.5
"""Seconds within which every participant has flushed an entry: older ones can be put in order."""

Key = tuple[str, str, str, str, str]


@dataclass(eq=False)
class MergedCrossing:
    """A crossing as its two ends recorded it."""

    number: int
    """Its sequence number among those of the same sender, receiver, method and kind, from 1."""
    sent: Crossing | None = None
    received: Crossing | None = None
    awaits_both: bool = True
    """Whether to yield it only when both ends are there; only messages are recorded by both."""

    @property
    def crossing(self) -> Crossing:
        """The crossing as its sender recorded it, or else as its receiver did."""
        crossing = self.sent or self.received
        assert crossing is not None
        return crossing

    @property
    def has_both_ends(self) -> bool:
        """Whether both ends recorded it."""
        return self.sent is not None and self.received is not None

    @property
    def difference(self) -> str:
        """How the recordings of both ends differ, or ""."""
        if not self.sent or not self.received or self.sent.payload == self.received.payload:
            return ""
        return (
            f"{self.crossing.sender} recorded {self.sent.payload.hex() or 'nothing'}, "
            f"{self.crossing.receiver} recorded {self.received.payload.hex() or 'nothing'}"
        )

    def __str__(self) -> str:
        crossing = self.crossing
        return (
            f"{crossing.sender} → {crossing.receiver} {crossing.method_name} {crossing.kind} "
            f"#{self.number}"
        )


@dataclass
class MergeReport:
    """Totals of a merge, and what is wrong with the recordings."""

    crossings: int = 0
    messages: int = 0
    size: int = 0
    """Bytes of all messages."""
    two_sided: int = 0
    """Messages that both ends recorded."""
    differing: list[MergedCrossing] = field(default_factory=list)
    """Messages that the two ends recorded with different bytes."""
    one_sided: list[MergedCrossing] = field(default_factory=list)
    """Messages that one end did not record, although it should have."""
    cut_off: int = 0
    """Messages that one end had not recorded, or not flushed, when the testbed was stopped."""
    unexplained: list[MergedCrossing] = field(default_factory=list)
    """Messages with bytes that no field of the protocol explains."""
    missing: list[str] = field(default_factory=list)
    """Participants of a complete run whose whole recording is missing."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.differing or self.one_sided or self.unexplained or self.missing)


class Merger:
    """Takes recorded crossings in order of time, and yields each crossing once."""

    def __init__(self, recorders: Callable[[], set[str]]) -> None:
        self._recorders = recorders
        """Returns the participants that record."""
        self._known: set[str] = set()
        self._counters: dict[Key, int] = {}
        self._unmatched: dict[tuple[Key, bool], deque[MergedCrossing]] = {}
        """Crossings with one end, by key and by whether the sender's end is the missing one."""
        self._pending: deque[MergedCrossing] = deque()
        self._latest = 0.0
        self._last_by: dict[str, float] = {}
        """The time of each participant's last entry."""
        self.report = MergeReport()

    def add(self, recorder: str, crossing: Crossing) -> None:
        """Add an entry of one participant's recording."""
        self._latest = self._last_by[recorder] = crossing.at
        by_sender = recorder == crossing.sender
        key = _key(crossing)
        waiting = self._unmatched.get((key, by_sender))
        if waiting:
            merged = waiting.popleft()
        else:
            self._counters[key] = number = self._counters.get(key, 0) + 1
            two_ends = self._has_two_recorders(crossing)
            merged = MergedCrossing(number, awaits_both=two_ends and crossing.kind in MESSAGES)
            self._pending.append(merged)
            if two_ends:
                self._unmatched.setdefault((key, not by_sender), deque()).append(merged)
        if by_sender:
            merged.sent = crossing
        else:
            merged.received = crossing
        self._update_report(merged, crossing)

    def _has_two_recorders(self, crossing: Crossing) -> bool:
        if crossing.kind == DELIVERY:
            return False  # the broker does not record
        ends = {crossing.sender, crossing.receiver}
        if not ends <= self._known:
            self._known = self._recorders()
        return ends <= self._known and len(ends) > 1

    def _update_report(self, merged: MergedCrossing, crossing: Crossing) -> None:
        report = self.report
        if not merged.has_both_ends:
            report.crossings += 1
            report.messages += crossing.is_message
            report.size += len(crossing.payload)
            if crossing.unexplained:
                report.unexplained.append(merged)
        elif crossing.kind in MESSAGES:
            report.two_sided += 1
            if merged.difference:
                report.differing.append(merged)

    def ready(self, now: float | None = None) -> Iterator[MergedCrossing]:
        """Yield what can be shown, in order; `now` is by default the time of the last entry."""
        now = self._latest if now is None else now
        pending = self._pending
        while pending and (
            pending[0].has_both_ends
            or not pending[0].awaits_both
            or now - pending[0].crossing.at > HOLD
        ):
            yield pending.popleft()

    def finish(self, *, complete: bool) -> Iterator[MergedCrossing]:
        """Yield the rest, and report the messages that only one end recorded.

        Of a run that is not `complete`, those at the end of a recording are cut off, not wrong.
        """
        yield from self._pending
        self._pending.clear()
        for (key, sender_missing), one_sided in self._unmatched.items():
            if key[3] not in MESSAGES:
                continue  # gRPC itself generates metadata and statuses, at one end only
            for merged in one_sided:
                crossing = merged.crossing
                last = self._last_by.get(crossing.sender, 0.0)
                cut_off = not sender_missing or crossing.at >= last
                if cut_off and not complete:
                    self.report.cut_off += 1
                else:
                    self.report.one_sided.append(merged)


def _key(crossing: Crossing) -> Key:
    """Return what the entries of both ends have in common; order distinguishes messages."""
    content: Any = ""
    if crossing.kind not in MESSAGES:
        content = crossing.text
        if crossing.kind == STATUS and isinstance(content, list):
            content = content[:2]  # the server's entry also has the trailers
    kind = crossing.kind
    return crossing.sender, crossing.receiver, crossing.method, kind, json.dumps(content)


def merged_crossings(
    recordings: Recordings, merger: Merger, *, follow: bool
) -> Iterator[MergedCrossing]:
    """Yield all crossings of a run; with `follow`, until the testbed ends."""
    deferred: list[RecordedCrossing] = []
    while True:
        # Tested before reading, so that the last read sees everything that was written.
        running = follow and recordings.is_running()
        until = time.time() - FLUSH_DELAY if running else inf
        entries = merge(deferred, recordings.read_new(), key=_time)
        deferred, added = [], 0
        for recorder, crossing in entries:
            if crossing.at > until:
                deferred.append((recorder, crossing))
                continue
            added += 1
            merger.add(recorder, crossing)
            yield from merger.ready()
        if running:
            yield from merger.ready(until)
            time.sleep(POLL)
        elif not (follow and added):
            break
    complete = recordings.is_complete()
    if complete:
        merger.report.missing = sorted(recordings.missing)
    yield from merger.finish(complete=complete)


def _time(recorded: RecordedCrossing) -> float:
    return recorded[1].at
