"""MQTT in general, over plain connections, with arbitrary names and topics."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from broker_support import KINDS, RawClient, run, take, wait_until

from fogveil.broker.client import BrokerClient
from fogveil.broker.launcher import start_broker
from fogveil.broker.mqtt_packets import (
    PAYLOAD_LIMIT,
    Acknowledgement,
    EmptyPacket,
    PacketType,
    Publish,
    Unsubscribe,
)
from fogveil.core.errors import InfrastructureError

Messages = list[tuple[str, bytes]]


@pytest.fixture(scope="module", params=KINDS)
def address(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[str]:
    """The address of a broker that all tests share, as several runs may."""
    broker = start_broker(request.param, tmp_path_factory.mktemp("broker"))
    assert broker.kind == request.param
    yield broker.address
    assert broker.alive()
    broker.stop()


@pytest.fixture
def run_id() -> str:
    return os.urandom(8).hex()


# --- relaying -----------------------------------------------------------------------------------


def test_every_subscriber_gets_a_copy(address: str, run_id: str) -> None:
    async def reader(number: int, ready: asyncio.Barrier) -> Messages:
        async with BrokerClient(address, f"{run_id}-{number}") as client:
            await client.subscribe(f"{run_id}/all", f"{run_id}/{number}")
            await ready.wait()
            return await take(client, 2)

    async def main() -> list[Messages]:
        ready = asyncio.Barrier(13)
        readers = [asyncio.create_task(reader(number, ready)) for number in range(12)]
        async with BrokerClient(address, f"{run_id}-w") as writer:
            await ready.wait()
            writer.publish(f"{run_id}/all", b"")
            for number in range(12):
                writer.publish(f"{run_id}/{number}", b"x")
            return list(await asyncio.gather(*readers))

    assert run(main()) == [
        [(f"{run_id}/all", b""), (f"{run_id}/{number}", b"x")] for number in range(12)
    ]


def test_wildcards(address: str, run_id: str) -> None:
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
        RawClient(address).connect(f"{run_id}-{number}").subscribe(filter_)
        for number, filter_ in enumerate(filters)
    ]
    writer = RawClient(address).connect(f"{run_id}-w")
    for name in sent:
        writer.send(Publish(f"{run_id}/{name}", b"x"))
    writer.send(Publish(f"${run_id}/hidden", b"x"))
    writer.receive_until_pong()
    for client, names in zip(clients, expected, strict=True):
        received = [packet.topic for packet in client.receive_until_pong()]
        relative = [topic.removeprefix(f"{run_id}/") for topic in received if run_id in topic]
        assert sorted(relative) == sorted(names)
        client.drop()
    writer.drop()


def test_no_message_after_unsubscribing(address: str, run_id: str) -> None:
    client = RawClient(address).connect(run_id).subscribe(f"{run_id}/a", f"{run_id}/b")
    client.send(Unsubscribe(2, (f"{run_id}/a",)))
    assert client.receive() == Acknowledgement(PacketType.UNSUBACK, 2)
    client.send(Publish(f"{run_id}/a", b"no"))
    client.send(Publish(f"{run_id}/b", b"yes"))
    wait_until(lambda: client.receive_until_pong() == [Publish(f"{run_id}/b", b"yes")])
    client.drop()


def test_an_oversized_message_is_dropped(
    address: str, run_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> Messages:
        async with (
            BrokerClient(address, f"{run_id}-r", payload_limit=1000) as reader,
            BrokerClient(address, f"{run_id}-w") as writer,
        ):
            await reader.subscribe(run_id)
            writer.publish(run_id, bytes(1001))
            writer.publish(run_id, b"small")
            return await take(reader, 1)

    with caplog.at_level(logging.WARNING, "broker"):
        assert run(main()) == [(run_id, b"small")]
    assert "dropped a message of 1001 bytes" in caplog.text


def test_an_oversized_message_is_not_sent(address: str, run_id: str) -> None:
    async def main() -> None:
        async with BrokerClient(address, run_id) as client:
            with pytest.raises(InfrastructureError, match=f"{PAYLOAD_LIMIT + 1} bytes, more than"):
                client.publish(run_id, bytes(PAYLOAD_LIMIT + 1))
            await client.drain()

    run(main())


def test_the_second_client_of_a_name_displaces_the_first(address: str, run_id: str) -> None:
    async def main() -> Messages:
        async with BrokerClient(address, run_id) as first:
            await first.subscribe(f"{run_id}/a")
            async with BrokerClient(address, run_id) as second:
                with pytest.raises(InfrastructureError, match="was lost: it closed the connection"):
                    await take(first, 1)
                await second.subscribe(f"{run_id}/b")
                second.publish(f"{run_id}/a", b"without a subscriber")
                second.publish(f"{run_id}/b", b"for the second")
                return await take(second, 1)

    assert run(main()) == [(f"{run_id}/b", b"for the second")]


def test_a_blocked_participant_does_not_lose_the_broker(address: str, run_id: str) -> None:
    async def main() -> Messages:
        async with BrokerClient(address, run_id, keepalive=1) as client:
            await client.subscribe(run_id)
            await asyncio.sleep(0)
            time.sleep(2.2)  # noqa: ASYNC251 (as a long computation blocks an event loop)
            client.publish(run_id, b"x")
            return await take(client, 1)

    assert run(main()) == [(run_id, b"x")]


# --- MQTT that runs do not use ------------------------------------------------------------------


def test_acknowledged_messages(address: str, run_id: str) -> None:
    reader = RawClient(address).connect(f"{run_id}-r").subscribe(run_id, qos=1)
    writer = RawClient(address).connect(f"{run_id}-w")
    writer.send(Publish(run_id, b"x", qos=1, packet_id=77))
    assert writer.receive() == Acknowledgement(PacketType.PUBACK, 77)
    received = reader.receive()
    assert received == Publish(run_id, b"x", qos=1, packet_id=received.packet_id)
    reader.send(Acknowledgement(PacketType.PUBACK, received.packet_id))
    assert reader.receive_until_pong() == []
    reader.drop()
    writer.drop()


def test_retained_messages(address: str, run_id: str) -> None:
    writer = RawClient(address).connect(f"{run_id}-w")
    for name, payload in (("a", b"1"), ("a", b"2"), ("b", b"3"), ("b", b"")):
        writer.send(Publish(f"{run_id}/{name}", payload, retain=True))
    writer.receive_until_pong()
    reader = RawClient(address).connect(f"{run_id}-r").subscribe(f"{run_id}/#")
    assert reader.receive() == Publish(f"{run_id}/a", b"2", retain=True)
    assert reader.receive_until_pong() == []
    writer.send(Publish(f"{run_id}/a", b"", retain=True))
    # A client that has subscribed already gets it without the retain flag.
    assert reader.receive() == Publish(f"{run_id}/a", b"")
    reader.drop()
    writer.drop()


def test_wills(address: str, run_id: str) -> None:
    reader = RawClient(address).connect(f"{run_id}-r").subscribe(f"{run_id}/+")
    for name in ("lost", "left", "replaced"):
        client = RawClient(address).connect(
            f"{run_id}-{name}", will=Publish(f"{run_id}/{name}", b"!")
        )
        if name == "left":
            client.send(EmptyPacket(PacketType.DISCONNECT))
            assert client.is_closed_by_broker()
        if name == "replaced":
            RawClient(address).connect(f"{run_id}-{name}").drop()
            assert client.is_closed_by_broker()
        client.drop()
    assert {reader.receive().topic for _ in range(2)} == {f"{run_id}/lost", f"{run_id}/replaced"}
    assert reader.receive_until_pong() == []
    reader.drop()


def test_a_silent_client_is_disconnected(address: str, run_id: str) -> None:
    client = RawClient(address).connect(run_id, keepalive=1)
    assert client.is_closed_by_broker()
    client.drop()
