"""The freshness check: what is drawn at random never recurs, in one run of an audit or in others.

Keys that follow from a name or a secret look random in one run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from google.protobuf.message import DecodeError

from fogveil.broker.mqtt_packets import Connect
from fogveil.broker.topics import Topics
from fogveil.protocol.identity import AGENT
from fogveil.testbed.privacy.audit.findings import Finding, Verdict, judge
from fogveil.testbed.privacy.audit.mqtt_check import TOKEN
from fogveil.testbed.privacy.audit.reference import WATCH_TOTAL
from fogveil.testbed.privacy.audit.traffic import Traffic
from fogveil.testbed.privacy.audit.wire_log import WireLog
from fogveil.v1.total_pb2 import KeyAnnouncement, TotalServiceWatchResponse

FEWEST_SHARES = 4
"""So many shares in a row are the same by chance once in 2^128."""


class Drawn(NamedTuple):
    """A value that somebody drew at random."""

    kind: str
    value: bytes
    where: str


class DrawnValues:
    """Collects the random values of every run of an audit."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, bytes], str] = {}
        self._kinds: Counter[str] = Counter()
        self._faults: list[str] = []
        self._runs = 0

    def add(self, log: WireLog) -> None:
        """Add what was drawn in a run."""
        self._runs += 1
        traffic = Traffic(log)
        for kind, value, where in (*_tls(log), *_client_ids(traffic), *_totals(traffic)):
            place = f"{where} of run {self._runs}"
            known = self._first.setdefault((kind, value), place)
            self._kinds[kind] += 1
            if known != place:
                self._faults.append(f"the {kind} of {place} was that of {known} before")

    def finding(self) -> Finding:
        """Judge all values so far."""
        promise = "freshness: what is drawn at random is drawn anew"
        kinds = ", ".join(f"{number:,} x {kind}" for kind, number in sorted(self._kinds.items()))
        text = f"no value of {self._runs} runs is like another one: {kinds}"
        if self._runs == 1 and not self._faults:
            only = "within one run nothing recurs, and there was no other to compare it with"
            return Finding(promise, Verdict.NOT_SHOWN, only)
        return judge(promise, text, self._faults, self._kinds.total())


def _tls(log: WireLog) -> Iterator[Drawn]:
    for connection in log.connections:
        for name, tls in (
            (connection.caller, connection.caller_tls),
            (connection.callee, connection.callee_tls),
        ):
            for number, (kind, value) in enumerate(tls.said.drawn(), 1):
                yield Drawn(f"{kind} in TLS", value, f"{name} in {connection} ({number})")


def _client_ids(traffic: Traffic) -> Iterator[Drawn]:
    for each in traffic.mqtt:
        for read in each.up.packets:
            if isinstance(read.packet, Connect):
                token = re.search(f"{TOKEN}$", read.packet.client_id)
                if token:
                    yield Drawn("end of an MQTT client id", token[0].encode(), str(each.connection))


def _totals(traffic: Traffic) -> Iterator[Drawn]:
    """Yield the keys of level `total`, and the first shares, which recur where masks do."""
    topics = Topics(traffic.log.run)
    for (name, topic), packets in traffic.published.items():
        for packet in packets if topic == topics.keys(name) else ():
            message = KeyAnnouncement()
            try:
                message.ParseFromString(packet.payload)
            except DecodeError:
                continue  # the delivery check names it
            yield Drawn("mask key", message.public_key, name)
            yield Drawn("signature of a key", message.signature, name)
    for (name, receiver, method), messages in traffic.messages.items():
        if receiver == AGENT and method == WATCH_TOTAL:
            shares = _first_shares([message.payload for message in messages])
            if len(shares) == FEWEST_SHARES:
                yield Drawn("masked counts", repr(shares).encode(), name)


def _first_shares(payloads: list[bytes]) -> list[int]:
    shares: list[int] = []
    for payload in payloads[:FEWEST_SHARES]:
        try:
            shares += TotalServiceWatchResponse.FromString(payload).shares
        except DecodeError:
            break  # the message check names it
    return shares[:FEWEST_SHARES]
