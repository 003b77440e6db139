"""An outsider at a broker that lets everybody do everything: what is no message changes nothing."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from broker_support import RawClient
from federated_support import run_and_disturb

from broker.packets import LIMIT, Publish
from broker.topics import Topics
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


def everywhere(topics: Topics) -> dict[str, type]:
    """Return every topic of the run, with what is sent there."""
    found = {topics.workload("sources"): Workloads}
    found |= {topics.placement(name): Placements for name in FOGS}
    found |= {topics.aggregate(name): Aggregates for name in FOGS}
    found |= {topics.feedback("sources", name): Feedback for name in (*FOGS, "cloud")}
    return found


def nonsense(kind: type) -> list[bytes]:
    """Return what an outsider may publish on a topic, of an episode that is not and of this one."""
    late = {
        Workloads: {"workloads": [Workload(job=1, emitted=1.0)]},
        Placements: {"placements": [Placement(job=99_999, arrival=2000.0)]},
        Aggregates: {"aggregates": [Placement(job=99_999, arrival=2000.0)]},
        Feedback: {"results": [Result(job=1, finished=1.0)]},
    }[kind]
    messages = [kind(episode=episode, sequence=1, **late) for episode in (1, 7, 2**32 - 1)]
    # The first messages of sources and agent have come by then.
    first = (1,) if kind in (Workloads, Placements) else ()
    messages += [kind(episode=0, sequence=n, **late) for n in (0, *first, 2**20, 2**32 - 1)]
    whole = kind(episode=7, sequence=3, **late).SerializeToString()
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
    heard = []

    def listen(testbed):
        heard.append(RawClient(testbed.broker.address).connect("ear"))
        heard[0].subscribe(f"fogveil/v1/{testbed.run}/#")

    def act(testbed):
        topics, ear = Topics(testbed.run), heard[0]
        real = [(packet.topic, packet.payload) for packet in ear.receive_until_fence()]
        assert len(real) > 50
        ear.drop()
        mouth = RawClient(testbed.broker.address).connect("mouth")
        # Once more, all in the wrong order; cut off; and of the next episode.
        for topic, payload in reversed(real):
            kind = KINDS[topic.split("/")[3]]
            later = kind.FromString(payload)
            later.episode = 1
            for again in (payload, payload[: len(payload) // 2], later.SerializeToString()):
                mouth.send(Publish(topic, again))
        for topic, kind in everywhere(topics).items():
            for payload in nonsense(kind):
                mouth.send(Publish(topic, payload))
        for name in ("nobody", "%ff", "%", "a%2Fb"):
            mouth.send(Publish(f"fogveil/v1/{testbed.run}/workload/{name}", b"x"))
            mouth.send(Publish(f"fogveil/v1/{testbed.run}/aggregate/{name}", b"x"))
            mouth.send(Publish(f"fogveil/v1/{testbed.run}/feedback/sources/{name}", b"x"))
        for topic in (topics.workload("sources"), topics.placement("fog-1")):
            mouth.send(Publish(topic, b"\xff" * LIMIT))
        assert mouth.receive_until_fence() == []
        mouth.drop()
        shouting = RawClient(testbed.broker.address).connect("too loud")
        with suppress(OSError):
            shouting.send(Publish(topics.workload("sources"), bytes(LIMIT + 2**20)))
        assert shouting.is_closed_by_broker()
        shouting.drop()

    log = run_and_disturb(tmp_path, act, early=listen, broker=broker, secure=False)
    assert "Traceback" not in log
    dropped = [line for line in log.splitlines() if "WARNING: dropped" in line]
    for who in ("agent", "fog-1", "fog-2", "fog-3", "cloud", "sources"):
        assert any(re.search(rf"\b{who} \| WARNING", line) for line in dropped), who
    for sentence in (
        "it came before",
        "this is episode 0",
        "is still to come",
        "bytes from sources: no Workloads",
        "bytes from agent: no Placements",
        "bytes from fog-2: no Aggregates",
        "bytes from cloud: no Feedback",
        "/workload/nobody, where nobody emits workloads",
        "/workload/%ff, where nobody emits workloads",
        "/aggregate/%ff, where nobody sends aggregates",
        "/feedback/sources/%ff, where nobody sends results",
        f"dropped {LIMIT} bytes from sources",
    ):
        assert any(sentence in line for line in dropped), sentence
