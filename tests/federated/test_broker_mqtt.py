"""MQTT in general, over plain connections, with names and topics as tests choose them."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from broker_support import KINDS, RawClient, run, take, wait_until

from broker.client import Relay
from broker.packets import LIMIT, Acknowledgement, Kind, Publish, Signal, Unsubscribe
from broker.starting import start_broker
from fogveil.errors import SurroundingsError

Messages = list[tuple[str, bytes]]


@pytest.fixture(scope="module", params=KINDS)
def shared(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[str]:
    """The address of a broker that all tests share, as runs may do."""
    running = start_broker(request.param, tmp_path_factory.mktemp("broker"))
    assert running.kind == request.param
    yield running.address
    assert running.alive()
    running.stop()


@pytest.fixture
def run_id() -> str:
    return os.urandom(8).hex()


# --- relaying -----------------------------------------------------------------------------------


def test_every_subscriber_gets_its_copy(shared: str, run_id: str) -> None:
    async def reader(number: int, ready: asyncio.Barrier) -> Messages:
        async with Relay(shared, f"{run_id}-{number}") as relay:
            await relay.subscribe(f"{run_id}/all", f"{run_id}/{number}")
            await ready.wait()
            return await take(relay, 2)

    async def main() -> list[Messages]:
        ready = asyncio.Barrier(13)
        readers = [asyncio.create_task(reader(number, ready)) for number in range(12)]
        async with Relay(shared, f"{run_id}-w") as writer:
            await ready.wait()
            writer.publish(f"{run_id}/all", b"")
            for number in range(12):
                writer.publish(f"{run_id}/{number}", b"x")
            return list(await asyncio.gather(*readers))

    assert run(main()) == [
        [(f"{run_id}/all", b""), (f"{run_id}/{number}", b"x")] for number in range(12)
    ]


def test_wildcards(shared: str, run_id: str) -> None:
    filters = (f"{run_id}/+/end", f"{run_id}/deep/#", f"${run_id}/+", "#", "+/plain")
    sent = ("one/end", "one/two/end", "deep", "deep/a/b", "end", "plain")
    expected = [
        {"one/end"},
        {"deep", "deep/a/b"},
        {f"${run_id}/hidden"},
        set(sent),  # and nothing whose name begins with $
        {"plain"},
    ]
    clients = [
        RawClient(shared).connect(f"{run_id}-{number}").subscribe(filter_)
        for number, filter_ in enumerate(filters)
    ]
    writer = RawClient(shared).connect(f"{run_id}-w")
    for name in sent:
        writer.send(Publish(f"{run_id}/{name}", b"x"))
    writer.send(Publish(f"${run_id}/hidden", b"x"))
    writer.receive_until_fence()
    for client, names in zip(clients, expected, strict=True):
        received = [packet.topic for packet in client.receive_until_fence()]
        mine = [topic.removeprefix(f"{run_id}/") for topic in received if run_id in topic]
        assert sorted(mine) == sorted(names)
        client.drop()
    writer.drop()


def test_no_message_after_unsubscribing(shared: str, run_id: str) -> None:
    client = RawClient(shared).connect(run_id).subscribe(f"{run_id}/a", f"{run_id}/b")
    client.send(Unsubscribe(2, (f"{run_id}/a",)))
    assert client.receive() == Acknowledgement(Kind.UNSUBACK, 2)
    client.send(Publish(f"{run_id}/a", b"no"))
    client.send(Publish(f"{run_id}/b", b"yes"))
    wait_until(lambda: client.receive_until_fence() == [Publish(f"{run_id}/b", b"yes")])
    client.drop()


def test_an_oversized_message_is_dropped_and_all_goes_on(
    shared: str, run_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> Messages:
        async with (
            Relay(shared, f"{run_id}-r", limit=1000) as reader,
            Relay(shared, f"{run_id}-w") as writer,
        ):
            await reader.subscribe(run_id)
            writer.publish(run_id, bytes(1001))
            writer.publish(run_id, b"small")
            return await take(reader, 1)

    with caplog.at_level(logging.WARNING, "broker"):
        assert run(main()) == [(run_id, b"small")]
    assert "dropped a message of 1001 bytes" in caplog.text


def test_what_would_not_be_relayed_is_not_sent(shared: str, run_id: str) -> None:
    async def main() -> None:
        async with Relay(shared, run_id) as relay:
            with pytest.raises(SurroundingsError, match=f"{LIMIT + 1} bytes, more than"):
                relay.publish(run_id, bytes(LIMIT + 1))
            await relay.drained()

    run(main())


def test_the_second_client_of_one_name_stays(shared: str, run_id: str) -> None:
    async def main() -> Messages:
        async with Relay(shared, run_id) as first:
            await first.subscribe(f"{run_id}/a")
            async with Relay(shared, run_id) as second:
                with pytest.raises(SurroundingsError, match="was lost: it closed the connection"):
                    await take(first, 1)
                await second.subscribe(f"{run_id}/b")
                second.publish(f"{run_id}/a", b"for nobody")
                second.publish(f"{run_id}/b", b"for me")
                return await take(second, 1)

    assert run(main()) == [(f"{run_id}/b", b"for me")]


def test_a_participant_held_up_does_not_blame_the_broker(shared: str, run_id: str) -> None:
    async def main() -> Messages:
        async with Relay(shared, run_id, keepalive=1) as relay:
            await relay.subscribe(run_id)
            await asyncio.sleep(0)
            time.sleep(2.2)  # noqa: ASYNC251 (what a long computation does to an event loop)
            relay.publish(run_id, b"x")
            return await take(relay, 1)

    assert run(main()) == [(run_id, b"x")]


# --- MQTT beyond what runs need -----------------------------------------------------------------


def test_acknowledged_messages(shared: str, run_id: str) -> None:
    reader = RawClient(shared).connect(f"{run_id}-r").subscribe(run_id, qos=1)
    writer = RawClient(shared).connect(f"{run_id}-w")
    writer.send(Publish(run_id, b"x", qos=1, packet=77))
    assert writer.receive() == Acknowledgement(Kind.PUBACK, 77)
    received = reader.receive()
    assert received == Publish(run_id, b"x", qos=1, packet=received.packet)
    reader.send(Acknowledgement(Kind.PUBACK, received.packet))
    assert reader.receive_until_fence() == []
    reader.drop()
    writer.drop()


def test_retained_messages(shared: str, run_id: str) -> None:
    writer = RawClient(shared).connect(f"{run_id}-w")
    for name, payload in (("a", b"1"), ("a", b"2"), ("b", b"3"), ("b", b"")):
        writer.send(Publish(f"{run_id}/{name}", payload, retain=True))
    writer.receive_until_fence()
    reader = RawClient(shared).connect(f"{run_id}-r").subscribe(f"{run_id}/#")
    assert reader.receive() == Publish(f"{run_id}/a", b"2", retain=True)
    assert reader.receive_until_fence() == []
    writer.send(Publish(f"{run_id}/a", b"", retain=True))
    # Who has subscribed already gets it as any other message.
    assert reader.receive() == Publish(f"{run_id}/a", b"")
    reader.drop()
    writer.drop()


def test_wills(shared: str, run_id: str) -> None:
    reader = RawClient(shared).connect(f"{run_id}-r").subscribe(f"{run_id}/+")
    for name in ("lost", "left", "replaced"):
        client = RawClient(shared).connect(
            f"{run_id}-{name}", will=Publish(f"{run_id}/{name}", b"!")
        )
        if name == "left":
            client.send(Signal(Kind.DISCONNECT))
            assert client.is_closed_by_broker()
        if name == "replaced":
            RawClient(shared).connect(f"{run_id}-{name}").drop()
            assert client.is_closed_by_broker()
        client.drop()
    assert {reader.receive().topic for _ in range(2)} == {f"{run_id}/lost", f"{run_id}/replaced"}
    assert reader.receive_until_fence() == []
    reader.drop()


def test_a_silent_client_is_dropped(shared: str, run_id: str) -> None:
    client = RawClient(shared).connect(run_id, keepalive=1)
    assert client.is_closed_by_broker()
    client.drop()
