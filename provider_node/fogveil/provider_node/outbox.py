"""What a provider publishes, in messages whose number and sizes follow from public facts.

Others can observe how many bytes a provider sends, and when: the broker, and in some modes whoever
asks the kernel. Were sizes to follow from what *finished*, they would tell completions. So a
message has a slot of fixed size for each job that *arrived*, which the agent, who placed it, knows.
Real content takes some of the slots; zeros fill the rest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TypeVar

from fogveil.protocol.message_order import chunks
from fogveil.v1.workload_pb2 import Aggregates, Feedback, Placement, Result

M = TypeVar("M", Aggregates, Feedback)
CLOUD = ""
"""The receiver of aggregates; the receivers of results are the sources processes, by name."""
LARGEST_JOB = 2**64 - 1
SPARE = 2
"""Bytes in each slot that content never takes: the least that padding can fill is two."""
RESULT_SLOT = Feedback(results=[Result(job=LARGEST_JOB, finished=1.0)]).ByteSize() + SPARE


def aggregate_slot(clusters: int, categories: int, *, demands_vary: bool) -> int:
    """Return the size of a slot for any aggregate of a scenario, which all its providers know."""
    largest = Placement(
        job=LARGEST_JOB,
        cluster=clusters - 1,
        category=categories - 1,
        arrival=1.0,
        demand=1.0 if demands_vary else None,
    )
    return Aggregates(aggregates=[largest]).ByteSize() + SPARE


def filler(size: int) -> list[bytes]:
    """Return padding that takes exactly `size` bytes of a message: none, or two or more.

    >>> [len(piece) for size in (0, 2, 129, 130, 131) for piece in filler(size)]
    [0, 127, 0, 126, 128]
    """
    if not size:
        return []
    for width in range(1, 5):  # of the length, which stands before the zeros, behind a tag
        zeros = size - 1 - width
        if zeros >= 0 and max(1, (zeros.bit_length() + 6) // 7) == width:
            return [bytes(zeros)]
    return [b"", *filler(size - 2)]  # a longer length would take one byte too many


class Outbox:
    """Collects content and slots for each receiver, and makes messages of them.

    Without slots messages have the size of their content.
    """

    def __init__(self, episode: int, aggregate_slot: int, result_slot: int) -> None:
        self._episode = episode
        self._aggregate_slot, self._result_slot = aggregate_slot, result_slot
        """Bytes; 0 pads nothing."""
        self._aggregates: list[Placement] = []
        self._results: defaultdict[str, list[Result]] = defaultdict(list)
        self._slots: Counter[str] = Counter()
        """For each receiver, those of the next message."""
        self._sent: Counter[str] = Counter()
        """Messages to each receiver."""

    def add_slots(self, receiver: str, number: int = 1) -> None:
        """Make the next message to a receiver larger by so many slots."""
        self._slots[receiver] += number

    def add_aggregate(self, aggregate: Placement) -> None:
        """Put an aggregate into the next message to the Cloud."""
        self._aggregates.append(aggregate)

    def add_result(self, owner: str, result: Result) -> None:
        """Put a result into the next message to a sources process."""
        self._results[owner].append(result)

    def take_aggregates(self) -> list[Aggregates]:
        """Return the messages to the Cloud that close a window."""
        items, self._aggregates = self._aggregates, []
        return self._messages(Aggregates, "aggregates", CLOUD, items, self._aggregate_slot)

    def take_feedback(self, owner: str) -> list[Feedback]:
        """Return the messages to a sources process that close a flush."""
        items = self._results.pop(owner, [])
        return self._messages(Feedback, "results", owner, items, self._result_slot)

    def empty_feedback(self, owner: str) -> list[Feedback]:
        """Return a message that closes a flush and keeps content and slots for a later one."""
        return [Feedback(episode=self._episode, sequence=self._next(owner))]

    def _messages(
        self,
        kind: type[M],
        field: str,
        receiver: str,
        items: Sequence[Placement | Result],
        slot: int,
    ) -> list[M]:
        messages = []
        # Split by slots: where a message ends must not depend on how much of it is real.
        for places, more in chunks(range(max(self._slots.pop(receiver, 0), len(items)))):
            message = kind(episode=self._episode, sequence=self._next(receiver), more=more)
            size = message.ByteSize() + len(places) * slot
            getattr(message, field).extend(items[places.start : places.stop])
            if slot:
                message.padding.extend(filler(size - message.ByteSize()))
            messages.append(message)
        return messages

    def _next(self, receiver: str) -> int:
        self._sent[receiver] += 1
        return self._sent[receiver]
