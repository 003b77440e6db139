"""Topics, packets and routing, which are without I/O, tested with random values."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fogveil.broker.mqtt_packets import (
    Acknowledgement,
    Connack,
    Connect,
    EmptyPacket,
    Framer,
    PacketType,
    ProtocolError,
    Publish,
    Suback,
    Subscribe,
    Unsubscribe,
    decode,
    encode,
)
from fogveil.broker.routing import CACHE_SIZE, Router, matches
from fogveil.broker.topics import Topics

untimed = settings(deadline=None)

# --- topics -------------------------------------------------------------------------------------

names = st.text(max_size=64)
TOPICS = Topics("5eed")


@untimed
@given(names, names)
def test_a_topic_names_its_sender(sources: str, provider: str) -> None:
    assert TOPICS.sender(TOPICS.workload(sources)) == sources
    assert TOPICS.sender(TOPICS.placement(provider)) == "agent"
    assert TOPICS.sender(TOPICS.aggregate(provider)) == provider
    assert TOPICS.sender(TOPICS.keys(provider)) == provider
    assert TOPICS.sender(TOPICS.feedback(sources, provider)) == provider


@untimed
@given(names, names)
def test_topics_are_valid_and_match_their_filters(sources: str, provider: str) -> None:
    workload, aggregate = TOPICS.workload(sources), TOPICS.aggregate(provider)
    feedback, keys = TOPICS.feedback(sources, provider), TOPICS.keys(provider)
    for topic in (workload, aggregate, feedback, keys, TOPICS.placement(provider)):
        assert topic.isascii()
        assert topic.isprintable()
        assert not set(topic) & set("+# ")
        assert topic.count("/") == (5 if topic is feedback else 4)
    assert matches(TOPICS.all_workloads, workload)
    assert matches(TOPICS.all_aggregates, aggregate)
    assert matches(TOPICS.all_keys, keys)
    assert matches(TOPICS.all_feedback(sources), feedback)
    assert not matches(TOPICS.all_feedback(sources + "x"), feedback)
    assert not matches(Topics("07e4").all_workloads, workload)


@untimed
@given(names, names)
def test_different_names_have_different_topics(one: str, other: str) -> None:
    assert (TOPICS.placement(one) == TOPICS.placement(other)) == (one == other)


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "fogveil/v1/5eed",
        "fogveil/v1/5eed/workload",
        "fogveil/v1/5eed/workload/a/b",
        "fogveil/v1/5eed/feedback/a",
        "fogveil/v1/5eed/gossip/a",
        "fogveil/v1/5eed/workload/%ff",
        "fogveil/v1/07e4/workload/a",
        "fogveil/v2/5eed/workload/a",
    ],
)
def test_foreign_topics_have_no_sender(topic: str) -> None:
    assert TOPICS.sender(topic) == ""


# --- packets ------------------------------------------------------------------------------------

numbers = st.integers(1, 2**16 - 1)
levels = st.text(st.characters(exclude_characters="+#/\0", codec="utf-8"), max_size=5)
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)
filters = st.builds(
    lambda some, last: "/".join((*some, last)),
    st.lists(levels | st.just("+"), max_size=3),
    levels.filter(bool) | st.sampled_from("+#"),
)
texts = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=20)
messages = st.builds(
    lambda topic, payload, qos, retain, duplicate, packet: Publish(
        topic, payload, qos, retain, duplicate, packet if qos else 0
    ),
    topics,
    st.binary(max_size=300),
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
    numbers,
)
wills = st.tuples(topics, st.binary(max_size=50), st.integers(0, 2), st.booleans()).map(
    lambda fields: Publish(*fields)
)
logins = st.tuples(texts, st.none() | st.binary(max_size=20)) | st.just((None, None))
connects = st.builds(
    lambda client_id, keepalive, clean, login, will: Connect(
        client_id, keepalive, clean, *login, will
    ),
    texts,
    st.integers(0, 2**16 - 1),
    st.booleans(),
    logins,
    st.none() | wills,
)
packets = st.one_of(
    messages,
    connects,
    st.builds(Connack, st.integers(0, 5), st.booleans()),
    st.builds(
        Subscribe,
        numbers,
        st.lists(st.tuples(filters, st.integers(0, 2)), min_size=1, max_size=4).map(tuple),
    ),
    st.builds(Suback, numbers, st.binary(min_size=1, max_size=4)),
    st.builds(Unsubscribe, numbers, st.lists(filters, min_size=1, max_size=4).map(tuple)),
    st.builds(Acknowledgement, st.sampled_from((PacketType.PUBACK, PacketType.UNSUBACK)), numbers),
    st.builds(
        EmptyPacket,
        st.sampled_from((PacketType.PINGREQ, PacketType.PINGRESP, PacketType.DISCONNECT)),
    ),
)


@untimed
@given(st.lists(packets, max_size=5), st.integers(1, 50))
def test_packets_are_parsed_from_pieces_of_any_size(sent: list, size: int) -> None:
    stream = b"".join(map(encode, sent))
    framer = Framer()
    received = [
        decode(header, body)
        for start in range(0, len(stream), size)
        for header, body in framer.feed(stream[start : start + size])
    ]
    assert received == sent


@untimed
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_parsed_or_refused(data: bytes) -> None:
    with suppress(ProtocolError):
        for header, body in Framer().feed(data):
            decode(header, body)


@untimed
@given(packets, st.data())
def test_a_damaged_packet_is_parsed_or_refused(packet: object, data: st.DataObject) -> None:
    damaged = bytearray(encode(packet))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ProtocolError):
        for header, body in Framer().feed(bytes(damaged)):
            # Whatever was parsed can be serialized.
            parsed = decode(header, body)
            if not (isinstance(parsed, Connect) and parsed.level != 4):
                again = encode(parsed)
                assert [decode(*frame) for frame in Framer().feed(again)] == [parsed]


@pytest.mark.parametrize("length", [0, 127, 128, 16383, 16384, 2097151, 2097152])
def test_lengths_of_one_to_four_bytes(length: int) -> None:
    packet = Publish("t", bytes(max(length - 3, 0)))
    assert [decode(*frame) for frame in Framer().feed(encode(packet))] == [packet]


def test_a_packet_over_the_limit_is_refused_before_it_is_read() -> None:
    assert list(Framer(limit=200).feed(b"\x30\xc8\x01")) == []
    with pytest.raises(ProtocolError, match="201 bytes is too large"):
        list(Framer(limit=200).feed(b"\x30\xc9\x01"))


# --- routing ------------------------------------------------------------------------------------


def reference_matches(wanted: list[str], levels: list[str]) -> bool:
    """Follow the standard's rule level by level."""
    if not wanted or not levels:
        return wanted in ([], ["#"]) and not levels
    if wanted[0] == "#":
        return True
    return wanted[0] in ("+", levels[0]) and reference_matches(wanted[1:], levels[1:])


few = st.sampled_from(["", "a", "b", "$s"])
some_topics = st.lists(few, min_size=1, max_size=4).map("/".join).filter(bool)
some_filters = st.builds(
    lambda first, last: "/".join((*first, last)),
    st.lists(few | st.just("+"), max_size=3),
    few | st.sampled_from("+#"),
).filter(bool)


@untimed
@given(some_filters, some_topics)
def test_matching_follows_the_standard(filter_: str, topic: str) -> None:
    hidden = topic.startswith("$") and filter_[0] in "+#"
    expected = not hidden and reference_matches(filter_.split("/"), topic.split("/"))
    assert matches(filter_, topic) == expected


@untimed
@given(
    st.lists(
        st.tuples(st.sampled_from("cd"), st.sampled_from("+-x"), some_filters, st.integers(0, 1))
    ),
    some_topics,
)
def test_each_receiver_once_with_its_highest_qos(steps: list, topic: str) -> None:
    router: Router[str] = Router()
    wanted: dict[tuple[str, str], int] = {}
    for client, action, filter_, qos in steps:
        router.receivers(topic)  # the cache must not go stale
        if action == "+":
            router.subscribe(client, filter_, qos)
            wanted[client, filter_] = qos
        elif action == "-":
            router.unsubscribe(client, filter_)
            wanted.pop((client, filter_), None)
        else:
            router.remove(client)
            wanted = {key: each for key, each in wanted.items() if key[0] != client}
    expected: dict[str, int] = {}
    for (client, filter_), qos in wanted.items():
        if matches(filter_, topic):
            expected[client] = max(qos, expected.get(client, 0))
    assert sorted(router.receivers(topic)) == sorted(expected.items())


def test_the_cache_is_bounded() -> None:
    router: Router[str] = Router()
    router.subscribe("client", "#", 0)
    for number in range(3 * CACHE_SIZE):
        assert router.receivers(str(number)) == [("client", 0)]
    assert len(router._receivers) <= CACHE_SIZE
