"""One contract for both brokers, tested over real connections: plain ones, and over TLS."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from broker_support import VENUES, Venue, run, take, wait_until

import broker.client
from broker.packets import LIMIT, Connect, Publish, encode
from fogveil.errors import SurroundingsError

Messages = list[tuple[str, bytes]]


@pytest.fixture(scope="module", params=VENUES)
def standing(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Venue]:
    venue = Venue.start(request.param, tmp_path_factory.mktemp("broker"))
    assert venue.broker.kind == request.param.removesuffix("-tls")
    assert venue.address.startswith("mqtts://" if "-tls" in request.param else "mqtt://")
    yield venue
    assert venue.broker.alive()
    venue.broker.stop()


@pytest.fixture
def shared(standing: Venue) -> Venue:
    """A broker that all tests share, as runs may do."""
    return standing.again()


@pytest.fixture(params=VENUES)
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Venue]:
    """A broker that the test may harm."""
    venue = Venue.start(request.param, tmp_path)
    yield venue
    running = venue.broker
    if running.pid and running.alive():
        os.kill(running.pid, signal.SIGKILL)
    running.stop()


def signal_to(venue: Venue, number: int) -> None:
    assert venue.broker.pid is not None
    os.kill(venue.broker.pid, number)


# --- relaying -----------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_message_arrives(shared: Venue, loop: Any) -> None:
    async def main() -> Messages:
        async with shared.relay("reader") as reader, shared.relay("writer") as writer:
            await reader.subscribe(shared.filter)
            writer.publish(shared.topic, b"work")
            return await take(reader, 1)

    assert run(main(), loop) == [(shared.topic, b"work")]


def test_order_is_kept(shared: Venue) -> None:
    async def main() -> Messages:
        async with shared.relay("reader") as reader, shared.relay("writer") as writer:
            await reader.subscribe(shared.filter)
            for number in range(3000):
                topic = shared.topics[number % len(shared.topics)]
                writer.publish(topic, str(number).encode())
            return await take(reader, 3000)

    assert [int(payload) for _, payload in run(main())] == list(range(3000))


def test_many_messages_in_one_piece(shared: Venue) -> None:
    """Under TLS they come in one record, which the event loop hears of once."""
    writer = shared.client("writer")

    async def main() -> Messages:
        async with shared.relay("reader", keepalive=100) as reader:  # no ping comes to its help
            await reader.subscribe(shared.filter)
            writer.socket.sendall(encode(Publish(shared.topic, b"x")) * 300)
            return await take(reader, 300)

    assert run(main()) == [(shared.topic, b"x")] * 300
    writer.drop()


@pytest.mark.parametrize("size", [2**20, LIMIT])
def test_large_payloads(shared: Venue, size: int) -> None:
    payload = os.urandom(size)

    async def main() -> Messages:
        async with shared.relay("reader") as reader, shared.relay("writer") as writer:
            await reader.subscribe(shared.filter)
            writer.publish(shared.topic, payload)
            return await take(reader, 1)

    assert run(main()) == [(shared.topic, payload)]


def test_a_slow_reader_loses_nothing(shared: Venue) -> None:
    reader = shared.client("reader").subscribe(shared.filter)
    filler = bytes(4096)  # 5000 of them are more than any socket buffer holds

    async def main() -> list[int]:
        async with shared.relay("writer", keepalive=1) as writer:
            for number in range(5000):
                writer.publish(shared.topic, number.to_bytes(4, "big") + filler)
            drained = asyncio.create_task(writer.drained())
            # For longer than the writer trusts in a broker that is silent.
            await asyncio.sleep(2.5)
            received = await asyncio.to_thread(lambda: [reader.receive() for _ in range(5000)])
            await drained
        return [int.from_bytes(packet.payload[:4], "big") for packet in received]

    assert run(main()) == list(range(5000))
    reader.drop()


def test_a_slow_reader_that_goes_frees_its_writer(own: Venue) -> None:
    reader = own.client("reader").subscribe(own.filter)

    async def main() -> None:
        async with own.relay("writer") as writer:
            for _ in range(40):
                writer.publish(own.topic, bytes(2**20))
            await asyncio.sleep(0.3)
            reader.drop()
            await writer.drained()

    run(main())


def test_drained_means_that_the_broker_has_it(shared: Venue) -> None:
    reader = shared.client("reader").subscribe(shared.filter)

    async def main() -> None:
        async with shared.relay("writer") as writer:
            for _ in range(500):
                writer.publish(shared.topic, b"x")
            await writer.drained()

    run(main())
    received = [reader.receive() for _ in range(500)]
    assert received == [Publish(shared.topic, b"x")] * 500
    reader.drop()


# --- what goes wrong ----------------------------------------------------------------------------

GARBAGE = {
    "other protocol": b"GET / HTTP/1.1\r\nHost: fog\r\n\r\n",
    "zeros": bytes(100),
    "endless length": b"\x10\xff\xff\xff\xff\xff",
    "publish before connect": encode(Publish("a", b"b")),
    "larger than agreed": b"\x10\xff\xff\xff\x7f" + bytes(1000),
    "connect with too few bytes": b"\x10\x02\x00\x04",
    "other version": encode(Connect("x", level=99)),
}
IMPOLITE = {
    "reserved type": b"\xf0\x00",
    "wildcard in a topic": encode(Publish("a/#", b"")),
    "empty topic": encode(Publish("", b"")),
    "topic beyond the packet": b"\x30\x03\xff\xffa",
    "no utf-8": b"\x30\x04\x00\x02\xff\xfe",
    "subscription to nothing": b"\x82\x02\x00\x01",
    "wrong filter": b"\x82\x08\x00\x01\x00\x03a#b\x00",
    "second connect": encode(Connect("again")),
    "QoS 3": b"\x36\x05\x00\x01a\x00\x01",
}


def test_garbage_disturbs_nobody(shared: Venue) -> None:
    async def main() -> None:
        async with shared.relay("reader") as reader, shared.relay("writer") as writer:
            await reader.subscribe(shared.filter)
            for garbage in [*GARBAGE.values(), *IMPOLITE.values()]:
                polite = garbage in IMPOLITE.values()
                client = shared.client("bystander") if polite else shared.raw("bystander")
                client.socket.sendall(garbage)
                assert await asyncio.to_thread(client.is_closed_by_broker)
                client.drop()
                writer.publish(shared.topic, b"still here")
                assert await take(reader, 1) == [(shared.topic, b"still here")]

    run(main())


def test_half_a_packet_and_gone(shared: Venue) -> None:
    whole = encode(Publish(shared.topic, bytes(1000)))
    reader = shared.client("reader").subscribe(shared.filter)
    for cut in (1, 2, 10, len(whole) - 1):
        client = shared.client("writer")
        client.socket.sendall(whole[:cut])
        client.drop()
    client = shared.client("writer")
    for byte in whole:
        client.socket.sendall(bytes((byte,)))
    assert reader.receive() == Publish(shared.topic, bytes(1000))
    client.drop()
    reader.drop()


def test_a_killed_broker_is_noticed(own: Venue) -> None:
    async def main() -> None:
        async with own.relay("reader") as reader, own.relay("writer") as writer:
            await reader.subscribe(own.filter)
            writer.publish(own.topic, b"before")
            await take(reader, 1)
            signal_to(own, signal.SIGKILL)
            with pytest.raises(SurroundingsError, match=f"the broker {own.address} was lost"):
                await take(reader, 1)
            writer.publish(own.topic, b"after")
            with pytest.raises(SurroundingsError, match="was lost"):
                await writer.drained()
            with pytest.raises(SurroundingsError, match="was lost"):
                await reader.subscribe("other")

    run(main())
    wait_until(lambda: not own.broker.alive())


def test_what_arrived_before_the_loss_is_not_lost(own: Venue) -> None:
    async def main() -> Messages:
        async with own.relay("reader") as reader, own.relay("writer") as writer:
            await reader.subscribe(own.filter)
            for _ in range(100):
                writer.publish(own.topic, b"x")
            await writer.drained()
            await asyncio.sleep(0.1)
            own.broker.stop()
            found = await take(reader, 100)
            with pytest.raises(SurroundingsError, match="was lost"):
                await take(reader, 1)
            return found

    assert run(main()) == [(own.topic, b"x")] * 100


def test_a_stopped_broker_is_noticed(own: Venue) -> None:
    async def main() -> None:
        async with own.relay("reader", keepalive=1) as relay:
            signal_to(own, signal.SIGSTOP)
            with pytest.raises(SurroundingsError, match="no sign of life for 1.5 s"):
                await take(relay, 1)
            with pytest.raises(SurroundingsError, match="no sign of life"):
                await relay.drained()

    run(main())


def test_leaving_a_stopped_broker_takes_no_harm(
    own: Venue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker.client, "LEAVE_WITHIN", 0.3)

    async def main() -> None:
        async with own.relay("writer") as relay:
            signal_to(own, signal.SIGSTOP)
            for _ in range(8):
                relay.publish(own.topic, bytes(2**20))

    run(main())
