"""An outsider at a broker without access control: what it publishes does not change a run."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from broker_support import RawClient
from federated_support import run_and_disturb

from fogveil.broker.mqtt_packets import PAYLOAD_LIMIT, Publish
from fogveil.broker.topics import Topics
from fogveil.v1.workload_pb2 import (
    Aggregates,
    Feedback,
    Placement,
    Placements,
    Result,
    Workload,
    Workloads,
)

FOGS = ("fog-1", "fog-2", "fog-3")
KINDS = {
    "workload": Workloads,
    "placement": Placements,
    "aggregate": Aggregates,
    "feedback": Feedback,
}


def message_types(topics: Topics) -> dict[str, type]:
    """Return every topic of the run, with the type of its messages."""
    types = {topics.workload("sources"): Workloads}
    types |= {topics.placement(name): Placements for name in FOGS}
    types |= {topics.aggregate(name): Aggregates for name in FOGS}
    types |= {topics.feedback("sources", name): Feedback for name in (*FOGS, "cloud")}
    return types


def invalid_payloads(kind: type) -> list[bytes]:
    """Return payloads of other episodes, with wrong sequence numbers, and malformed ones."""
    fields = {
        Workloads: {"workloads": [Workload(job=1, emitted=1.0)]},
        Placements: {"placements": [Placement(job=99_999, arrival=2000.0)]},
        Aggregates: {"aggregates": [Placement(job=99_999, arrival=2000.0)]},
        Feedback: {"results": [Result(job=1, finished=1.0)]},
    }[kind]
    messages = [kind(episode=episode, sequence=1, **fields) for episode in (1, 7, 2**32 - 1)]
    # The first messages of the sources and the agent have arrived by then.
    repeated = (1,) if kind in (Workloads, Placements) else ()
    messages += [kind(episode=0, sequence=n, **fields) for n in (0, *repeated, 2**20, 2**32 - 1)]
    whole = kind(episode=7, sequence=3, **fields).SerializeToString()
    garbage = [
        b"",
        b"\x00",
        b"\xff" * 40,
        b"\x0a\xff\xff\xff\xff\x0f",
        bytes(range(256)),
        whole[:-3],
    ]
    return [*(message.SerializeToString() for message in messages), *garbage, whole[:-3]]


@pytest.mark.parametrize("broker", ["builtin", "mosquitto"])
def test_what_an_outsider_publishes_changes_nothing(tmp_path, broker):
    clients = []

    def listen(testbed):
        clients.append(RawClient(testbed.broker.address).connect("listener"))
        clients[0].subscribe(f"fogveil/v1/{testbed.run}/#")

    def act(testbed):
        topics, listener = Topics(testbed.run), clients[0]
        real = [(packet.topic, packet.payload) for packet in listener.receive_until_pong()]
        assert len(real) > 50
        listener.drop()
        publisher = RawClient(testbed.broker.address).connect("publisher")
        # The same messages again: in the wrong order, truncated, and of the next episode.
        for topic, payload in reversed(real):
            kind = KINDS[topic.split("/")[3]]
            later = kind.FromString(payload)
            later.episode = 1
            for again in (payload, payload[: len(payload) // 2], later.SerializeToString()):
                publisher.send(Publish(topic, again))
        for topic, kind in message_types(topics).items():
            for payload in invalid_payloads(kind):
                publisher.send(Publish(topic, payload))
        for name in ("nobody", "%ff", "%", "a%2Fb"):
            publisher.send(Publish(f"fogveil/v1/{testbed.run}/workload/{name}", b"x"))
            publisher.send(Publish(f"fogveil/v1/{testbed.run}/aggregate/{name}", b"x"))
            publisher.send(Publish(f"fogveil/v1/{testbed.run}/feedback/sources/{name}", b"x"))
        for topic in (topics.workload("sources"), topics.placement("fog-1")):
            publisher.send(Publish(topic, b"\xff" * PAYLOAD_LIMIT))
        assert publisher.receive_until_pong() == []
        publisher.drop()
        oversized = RawClient(testbed.broker.address).connect("oversized")
        with suppress(OSError):
            oversized.send(Publish(topics.workload("sources"), bytes(PAYLOAD_LIMIT + 2**20)))
        assert oversized.is_closed_by_broker()
        oversized.drop()

    log = run_and_disturb(tmp_path, act, early=listen, broker=broker, secure=False)
    assert "Traceback" not in log
    dropped = [line for line in log.splitlines() if "WARNING: dropped" in line]
    for who in ("agent", "fog-1", "fog-2", "fog-3", "cloud", "sources"):
        assert any(re.search(rf"\b{who} \| WARNING", line) for line in dropped), who
    for sentence in (
        "it is a duplicate",
        "this is episode 0",
        "is still missing",
        "bytes from sources: not a Workloads",
        "bytes from agent: not a Placements",
        "bytes from fog-2: not a Aggregates",
        "bytes from cloud: not a Feedback",
        "/workload/nobody: its sender emits no workloads",
        "/workload/%ff: its sender emits no workloads",
        "/aggregate/%ff: no Fog provider publishes there",
        "/feedback/sources/%ff: no provider publishes there",
        f"dropped {PAYLOAD_LIMIT} bytes from sources",
    ):
        assert any(sentence in line for line in dropped), sentence
