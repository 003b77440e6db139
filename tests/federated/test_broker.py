"""The contract of both brokers, over real connections, plain and with TLS."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from broker_support import SETUPS, BrokerSetup, run, take, wait_until

from fogveil.broker.mqtt_packets import PAYLOAD_LIMIT, Connect, Publish, encode
from fogveil.core.errors import InfrastructureError

Messages = list[tuple[str, bytes]]


@pytest.fixture(scope="module", params=SETUPS)
def module_setup(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[BrokerSetup]:
    setup = BrokerSetup.start(request.param, tmp_path_factory.mktemp("broker"))
    assert setup.broker.kind == request.param.removesuffix("-tls")
    assert setup.address.startswith("mqtts://" if "-tls" in request.param else "mqtt://")
    yield setup
    assert setup.broker.alive()
    setup.broker.stop()


@pytest.fixture
def shared(module_setup: BrokerSetup) -> BrokerSetup:
    """A broker that all tests share, as several runs may."""
    return module_setup.again()


@pytest.fixture(params=SETUPS)
def disposable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerSetup]:
    """A broker that the test may kill."""
    setup = BrokerSetup.start(request.param, tmp_path)
    yield setup
    broker = setup.broker
    if broker.pid and broker.alive():
        os.kill(broker.pid, signal.SIGKILL)
    broker.stop()


def send_signal(setup: BrokerSetup, number: int) -> None:
    assert setup.broker.pid is not None
    os.kill(setup.broker.pid, number)


# --- relaying -----------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_message_arrives(shared: BrokerSetup, loop: Any) -> None:
    async def main() -> Messages:
        async with shared.client("reader") as reader, shared.client("writer") as writer:
            await reader.subscribe(shared.filter)
            writer.publish(shared.topic, b"work")
            return await take(reader, 1)

    assert run(main(), loop) == [(shared.topic, b"work")]


def test_order_is_kept(shared: BrokerSetup) -> None:
    async def main() -> Messages:
        async with shared.client("reader") as reader, shared.client("writer") as writer:
            await reader.subscribe(shared.filter)
            for number in range(3000):
                topic = shared.topics[number % len(shared.topics)]
                writer.publish(topic, str(number).encode())
            return await take(reader, 3000)

    assert [int(payload) for _, payload in run(main())] == list(range(3000))


def test_many_messages_in_one_segment_are_all_read(shared: BrokerSetup) -> None:
    """Under TLS they come in one record, for which the event loop calls back once."""
    writer = shared.raw_client("writer")

    async def main() -> Messages:
        async with shared.client("reader", keepalive=100) as reader:  # no heartbeat helps
            await reader.subscribe(shared.filter)
            writer.socket.sendall(encode(Publish(shared.topic, b"x")) * 300)
            return await take(reader, 300)

    assert run(main()) == [(shared.topic, b"x")] * 300
    writer.drop()


@pytest.mark.parametrize("size", [2**20, PAYLOAD_LIMIT])
def test_large_payloads(shared: BrokerSetup, size: int) -> None:
    payload = os.urandom(size)

    async def main() -> Messages:
        async with shared.client("reader") as reader, shared.client("writer") as writer:
            await reader.subscribe(shared.filter)
            writer.publish(shared.topic, payload)
            return await take(reader, 1)

    assert run(main()) == [(shared.topic, payload)]


def test_a_slow_reader_loses_nothing(shared: BrokerSetup) -> None:
    reader = shared.raw_client("reader").subscribe(shared.filter)
    filler = bytes(4096)  # 5000 of them are more than any socket buffer holds

    async def main() -> list[int]:
        async with shared.client("writer", keepalive=1) as writer:
            for number in range(5000):
                writer.publish(shared.topic, number.to_bytes(4, "big") + filler)
            drained = asyncio.create_task(writer.drain())
            # Longer than the writer tolerates a broker that is silent.
            await asyncio.sleep(2.5)
            received = await asyncio.to_thread(lambda: [reader.receive() for _ in range(5000)])
            await drained
        return [int.from_bytes(packet.payload[:4], "big") for packet in received]

    assert run(main()) == list(range(5000))
    reader.drop()


def test_a_slow_reader_that_disconnects_releases_its_writer(disposable: BrokerSetup) -> None:
    reader = disposable.raw_client("reader").subscribe(disposable.filter)

    async def main() -> None:
        async with disposable.client("writer") as writer:
            for _ in range(40):
                writer.publish(disposable.topic, bytes(2**20))
            await asyncio.sleep(0.3)
            reader.drop()
            await writer.drain()

    run(main())


def test_drain_waits_until_the_broker_has_received_everything(shared: BrokerSetup) -> None:
    reader = shared.raw_client("reader").subscribe(shared.filter)

    async def main() -> None:
        async with shared.client("writer") as writer:
            for _ in range(500):
                writer.publish(shared.topic, b"x")
            await writer.drain()

    run(main())
    received = [reader.receive() for _ in range(500)]
    assert received == [Publish(shared.topic, b"x")] * 500
    reader.drop()


# --- failures -----------------------------------------------------------------------------------

GARBAGE = {
    "other protocol": b"GET / HTTP/1.1\r\nHost: fog\r\n\r\n",
    "zeros": bytes(100),
    "endless length": b"\x10\xff\xff\xff\xff\xff",
    "publish before connect": encode(Publish("a", b"b")),
    "larger than the limit": b"\x10\xff\xff\xff\x7f" + bytes(1000),
    "connect with too few bytes": b"\x10\x02\x00\x04",
    "other version": encode(Connect("x", level=99)),
}
VIOLATIONS = {
    "reserved type": b"\xf0\x00",
    "wildcard in a topic": encode(Publish("a/#", b"")),
    "empty topic": encode(Publish("", b"")),
    "topic beyond the packet": b"\x30\x03\xff\xffa",
    "invalid UTF-8": b"\x30\x04\x00\x02\xff\xfe",
    "subscription to nothing": b"\x82\x02\x00\x01",
    "wrong filter": b"\x82\x08\x00\x01\x00\x03a#b\x00",
    "second connect": encode(Connect("again")),
    "QoS 3": b"\x36\x05\x00\x01a\x00\x01",
}


def test_garbage_closes_only_its_own_connection(shared: BrokerSetup) -> None:
    async def main() -> None:
        async with shared.client("reader") as reader, shared.client("writer") as writer:
            await reader.subscribe(shared.filter)
            for garbage in [*GARBAGE.values(), *VIOLATIONS.values()]:
                connected = garbage in VIOLATIONS.values()
                client = shared.raw_client("bystander") if connected else shared.raw("bystander")
                client.socket.sendall(garbage)
                assert await asyncio.to_thread(client.is_closed_by_broker)
                client.drop()
                writer.publish(shared.topic, b"still here")
                assert await take(reader, 1) == [(shared.topic, b"still here")]

    run(main())


def test_incomplete_packets(shared: BrokerSetup) -> None:
    whole = encode(Publish(shared.topic, bytes(1000)))
    reader = shared.raw_client("reader").subscribe(shared.filter)
    for cut in (1, 2, 10, len(whole) - 1):
        client = shared.raw_client("writer")
        client.socket.sendall(whole[:cut])
        client.drop()
    client = shared.raw_client("writer")
    for byte in whole:
        client.socket.sendall(bytes((byte,)))
    assert reader.receive() == Publish(shared.topic, bytes(1000))
    client.drop()
    reader.drop()


def test_a_killed_broker_is_detected(disposable: BrokerSetup) -> None:
    async def main() -> None:
        async with disposable.client("reader") as reader, disposable.client("writer") as writer:
            await reader.subscribe(disposable.filter)
            writer.publish(disposable.topic, b"before")
            await take(reader, 1)
            send_signal(disposable, signal.SIGKILL)
            with pytest.raises(
                InfrastructureError, match=f"the broker {disposable.address} was lost"
            ):
                await take(reader, 1)
            writer.publish(disposable.topic, b"after")
            with pytest.raises(InfrastructureError, match="was lost"):
                await writer.drain()
            with pytest.raises(InfrastructureError, match="was lost"):
                await reader.subscribe("other")

    run(main())
    wait_until(lambda: not disposable.broker.alive())


def test_messages_received_before_the_loss_are_delivered(disposable: BrokerSetup) -> None:
    async def main() -> Messages:
        async with disposable.client("reader") as reader, disposable.client("writer") as writer:
            await reader.subscribe(disposable.filter)
            for _ in range(100):
                writer.publish(disposable.topic, b"x")
            await writer.drain()
            await reader.drain()  # its answer comes after all messages
            disposable.broker.stop()
            messages = await take(reader, 100)
            with pytest.raises(InfrastructureError, match="was lost"):
                await take(reader, 1)
            return messages

    assert run(main()) == [(disposable.topic, b"x")] * 100


def test_a_stopped_broker_is_detected(disposable: BrokerSetup) -> None:
    async def main() -> None:
        async with disposable.client("reader", keepalive=1) as client:
            send_signal(disposable, signal.SIGSTOP)
            with pytest.raises(InfrastructureError, match="no sign of life for 1.5 s"):
                await take(client, 1)
            with pytest.raises(InfrastructureError, match="no sign of life"):
                await client.drain()

    run(main())


def test_disconnecting_from_a_stopped_broker_ends(
    disposable: BrokerSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fogveil.broker.client.DISCONNECT_TIMEOUT", 0.3)

    async def main() -> None:
        async with disposable.client("writer") as client:
            send_signal(disposable, signal.SIGSTOP)
            for _ in range(8):
                client.publish(disposable.topic, bytes(2**20))

    run(main())
