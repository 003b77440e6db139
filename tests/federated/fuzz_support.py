"""What the fuzz tests draw, and the model of what should come of it."""

from __future__ import annotations

from collections import Counter
from math import inf, isfinite, nan

import pytest
from google.protobuf.message import DecodeError
from hypothesis import event
from hypothesis import strategies as st
from scripted import EPISODE

from fogveil.core.errors import MisbehaviourError
from fogveil.protocol.message_order import MOST_EARLY

CLUSTERS = CATEGORIES = 2
"""Of scenario tiny."""
FOGS = ("fog-1", "fog-2", "fog-3")


# --- what is drawn -------------------------------------------------------------------------------


def mostly(usual, seldom):
    """Draw the usual five times out of six; `one_of` would draw each as often as the other."""
    return st.sampled_from([usual] * 5 + [seldom]).flatmap(lambda strategy: strategy)


times = mostly(
    st.integers(1, 400).map(lambda eighths: eighths / 8),  # so that events coincide
    st.sampled_from([-1.0, -2.0, nan, inf, -inf, 0.0, 1e300]),
)
places = mostly(st.integers(0, 1), st.integers(2, 2**32 - 1))
"""Of a cluster or a category: tiny has two of each."""
job_ids = mostly(st.integers(0, 15), st.integers(0, 2**64 - 1))


def streams(kind, senders, early=12, fill=lambda drawn: None, **fields):
    """Draw what arrives before the first window, and between it and the last one.

    Each sender numbers its messages. Some are damaged on the way, some are overtaken by others,
    some arrive again. `fill` completes what was drawn, where messages depend on each other; at
    most `early` messages arrive before the first window.
    """
    message = st.fixed_dictionaries(
        {
            "sender": senders,
            "episode": mostly(st.just(EPISODE), st.integers(0, 9)),
            "off": mostly(
                st.just(0), st.sampled_from([MOST_EARLY + 20, MOST_EARLY + 30, -99, -1, 1])
            ),
            "damage": mostly(st.just(_unharmed), damage),
            "late": st.sampled_from([0, 0, 0, 2, 5]),
            "again": mostly(st.none(), st.integers(0, 4)),
            "fields": st.fixed_dictionaries(fields),
        }
    )

    def deliver(drawn):
        fill(drawn)
        sent: Counter[str] = Counter()
        arrivals = []
        for place, each in enumerate(drawn):
            sender, fields = each["sender"], each["fields"]
            sent[sender] += 1
            sequence = max(sent[sender] + each["off"], 0)
            body = kind(episode=each["episode"], sequence=sequence, **fields).SerializeToString()
            arrivals.append((place + each["late"], sender, each["damage"](body)))
            if each["again"] is not None:
                body = kind(episode=EPISODE, sequence=sent[sender], **fields).SerializeToString()
                arrivals.append((place + each["again"], sender, body))
        arrivals.sort(key=lambda arrival: arrival[0])
        return [(sender, body) for _, sender, body in arrivals]

    arrivals = st.lists(message, min_size=8, max_size=24).map(deliver)
    return st.tuples(arrivals, st.integers(0, early)).map(lambda t: (t[0][: t[1]], t[0][t[1] :]))


def _unharmed(body: bytes) -> bytes:
    return body


damage = st.one_of(
    st.integers(0, 40).map(lambda size: lambda body: body[:size]),
    st.tuples(st.integers(0, 80), st.binary(min_size=1, max_size=1)).map(
        lambda change: lambda body: body[: change[0]] + change[1] + body[change[0] + 1 :]
    ),
    st.binary(max_size=60).map(lambda other: lambda _body: other),
)


# --- what should come of it ----------------------------------------------------------------------


class Model:
    """Messages in order, by the protocol's description; counts the cases it comes across."""

    def __init__(self, kind, senders, cases: Counter[str]) -> None:
        self._kind = kind
        self._cases = cases
        self._messages: dict[str, dict[int, object]] = {sender: {} for sender in senders}
        self._taken = dict.fromkeys(senders, 0)

    def note(self, case: str) -> None:
        self._cases[case] += 1
        event(case)

    def due(self, sender: str, body: bytes) -> list:
        """Return the messages that are due once this one has arrived."""
        if sender not in self._messages:
            return self._drop("unknown sender")
        try:
            message = self._kind.FromString(body)
        except DecodeError:
            return self._drop("no message")
        kept, number = self._messages[sender], message.sequence
        if message.episode != EPISODE:
            return self._drop("another episode")
        if number in kept or number == 0:
            return self._drop("number used before" if number else "no number")
        if number > self._taken[sender] + MOST_EARLY:
            return self._drop("far too early")
        kept[number] = message
        self.note("in order" if number == self._taken[sender] + 1 else "early")
        due = []
        while self._taken[sender] + 1 in kept:
            self._taken[sender] += 1
            due.append(kept[self._taken[sender]])
        if len(due) > 1:
            self.note("gap closed")
        return due

    def _drop(self, case: str) -> list:
        self.note(case)
        return []

    @staticmethod
    def job_fault(job, known, time: float, *, past: bool) -> str | None:
        """Return why a job cannot be, if it cannot."""
        if job.job in known:
            return "job known"
        if job.cluster >= CLUSTERS or job.category >= CATEGORIES:
            return "unknown cluster or category"
        if not isfinite(time):
            return "no time"
        return "in the past" if past else None


class EndedError(Exception):
    """A participant named the sender of something that cannot be: its run is over."""


def receive_from(process, topic, sender, body, fault) -> None:
    """Let a process receive a message; one with a fault ends its run with the sender's name."""
    if fault is None:
        process.receive(topic, body)
        return
    with pytest.raises(MisbehaviourError) as error:
        process.receive(topic, body)
    assert error.value.who == sender
    raise EndedError


ORDER = {
    *("no message", "another episode", "no number", "number used before", "far too early"),
    *("in order", "early", "gap closed"),
}
"""What can happen to any message."""
WHOLE = "nothing was wrong"
"""A run with jobs that went on to its end."""
JOB = {"job accepted", "job known", "unknown cluster or category", "no time", "in the past"}
"""What can happen to a job in a message."""
