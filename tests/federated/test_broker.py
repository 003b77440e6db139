"""One contract for both brokers, tested over real connections."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from broker_support import KINDS, RawClient, run, wait_until

import broker.client
from broker.client import Relay
from broker.packets import (
    LIMIT,
    Acknowledgement,
    Connect,
    Kind,
    Publish,
    Signal,
    Unsubscribe,
    encode,
)
from broker.starting import RunningBroker, start_broker
from broker.topics import Topics
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


@pytest.fixture(params=KINDS)
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker that the test may harm."""
    running = start_broker(request.param, tmp_path)
    yield running
    if running.pid and running.alive():
        os.kill(running.pid, signal.SIGKILL)
    running.stop()


@pytest.fixture
def run_id() -> str:
    return os.urandom(8).hex()


async def take(relay: Relay, count: int) -> Messages:
    found: Messages = []
    if count:
        async for message in relay.messages():
            found.append(message)
            if len(found) == count:
                break
    return found


# --- relaying -----------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_message_arrives(shared: str, run_id: str, loop: Any) -> None:
    async def main() -> Messages:
        topics = Topics(run_id)
        async with Relay(shared, f"{run_id}-a") as agent, Relay(shared, f"{run_id}-s") as sources:
            await agent.subscribe(topics.all_workloads)
            sources.publish(topics.workload("sources"), b"work")
            return await take(agent, 1)

    assert run(main(), loop) == [(f"fogveil/v1/{run_id}/workload/sources", b"work")]


def test_order_is_kept(shared: str, run_id: str) -> None:
    async def main() -> Messages:
        async with Relay(shared, f"{run_id}-r") as reader, Relay(shared, f"{run_id}-w") as writer:
            await reader.subscribe(f"{run_id}/+")
            for number in range(3000):
                writer.publish(f"{run_id}/{number % 3}", str(number).encode())
            return await take(reader, 3000)

    assert [int(payload) for _, payload in run(main())] == list(range(3000))


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


@pytest.mark.parametrize("size", [2**20, LIMIT])
def test_large_payloads(shared: str, run_id: str, size: int) -> None:
    payload = os.urandom(size)

    async def main() -> Messages:
        async with Relay(shared, run_id) as relay:
            await relay.subscribe(run_id)
            relay.publish(run_id, payload)
            return await take(relay, 1)

    assert run(main()) == [(run_id, payload)]


def test_a_slow_reader_loses_nothing(shared: str, run_id: str) -> None:
    reader = RawClient(shared).connect(f"{run_id}-slow").subscribe(run_id)
    filler = bytes(4096)  # 5000 of them are more than any socket buffer holds

    async def main() -> list[int]:
        async with Relay(shared, f"{run_id}-w", keepalive=1) as writer:
            for number in range(5000):
                writer.publish(run_id, number.to_bytes(4, "big") + filler)
            drained = asyncio.create_task(writer.drained())
            # For longer than the writer trusts in a broker that is silent.
            await asyncio.sleep(2.5)
            received = await asyncio.to_thread(lambda: [reader.receive() for _ in range(5000)])
            await drained
        return [int.from_bytes(packet.payload[:4], "big") for packet in received]

    assert run(main()) == list(range(5000))
    reader.drop()


def test_a_slow_reader_that_goes_frees_its_writer(own: RunningBroker) -> None:
    reader = RawClient(own.address).connect("slow").subscribe("topic")

    async def main() -> None:
        async with Relay(own.address, "writer") as writer:
            for _ in range(40):
                writer.publish("topic", bytes(2**20))
            await asyncio.sleep(0.3)
            reader.drop()
            await writer.drained()

    run(main())


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


def test_drained_means_that_the_broker_has_it(shared: str, run_id: str) -> None:
    reader = RawClient(shared).connect(f"{run_id}-r").subscribe(run_id)

    async def main() -> None:
        async with Relay(shared, f"{run_id}-w") as writer:
            for _ in range(500):
                writer.publish(run_id, b"x")
            await writer.drained()

    run(main())
    received = [reader.receive() for _ in range(500)]
    assert received == [Publish(run_id, b"x")] * 500
    reader.drop()


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


def test_garbage_disturbs_nobody(shared: str, run_id: str) -> None:
    async def main() -> None:
        async with Relay(shared, f"{run_id}-good") as relay:
            await relay.subscribe(run_id)
            for number, garbage in enumerate([*GARBAGE.values(), *IMPOLITE.values()]):
                client = RawClient(shared)
                if garbage in IMPOLITE.values():
                    client.connect(f"{run_id}-{number}")
                client.socket.sendall(garbage)
                assert await asyncio.to_thread(client.is_closed_by_broker)
                client.drop()
                relay.publish(run_id, b"still here")
                assert await take(relay, 1) == [(run_id, b"still here")]

    run(main())


def test_half_a_packet_and_gone(shared: str, run_id: str) -> None:
    whole = encode(Publish(run_id, bytes(1000)))
    reader = RawClient(shared).connect(f"{run_id}-r").subscribe(run_id)
    for cut in (1, 2, 10, len(whole) - 1):
        client = RawClient(shared).connect(f"{run_id}-w")
        client.socket.sendall(whole[:cut])
        client.drop()
    client = RawClient(shared).connect(f"{run_id}-w")
    for byte in whole:
        client.socket.sendall(bytes((byte,)))
    assert reader.receive() == Publish(run_id, bytes(1000))
    client.drop()
    reader.drop()


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


def test_a_killed_broker_is_noticed(own: RunningBroker) -> None:
    async def main() -> None:
        async with Relay(own.address, "one") as relay:
            await relay.subscribe("topic")
            relay.publish("topic", b"before")
            await take(relay, 1)
            assert own.pid is not None
            os.kill(own.pid, signal.SIGKILL)
            with pytest.raises(SurroundingsError, match=f"the broker {own.address} was lost"):
                await take(relay, 1)
            relay.publish("topic", b"after")
            with pytest.raises(SurroundingsError, match="was lost"):
                await relay.drained()
            with pytest.raises(SurroundingsError, match="was lost"):
                await relay.subscribe("other")

    run(main())
    wait_until(lambda: not own.alive())


def test_what_arrived_before_the_loss_is_not_lost(own: RunningBroker) -> None:
    async def main() -> Messages:
        async with Relay(own.address, "one") as relay:
            await relay.subscribe("topic")
            for _ in range(100):
                relay.publish("topic", b"x")
            await relay.drained()
            await asyncio.sleep(0.1)
            own.stop()
            found = await take(relay, 100)
            with pytest.raises(SurroundingsError, match="was lost"):
                await take(relay, 1)
            return found

    assert run(main()) == [("topic", b"x")] * 100


def test_a_stopped_broker_is_noticed(own: RunningBroker) -> None:
    async def main() -> None:
        async with Relay(own.address, "one", keepalive=1) as relay:
            assert own.pid is not None
            os.kill(own.pid, signal.SIGSTOP)
            with pytest.raises(SurroundingsError, match="no sign of life for 1.5 s"):
                await take(relay, 1)
            with pytest.raises(SurroundingsError, match="no sign of life"):
                await relay.drained()

    run(main())


def test_leaving_a_stopped_broker_takes_no_harm(
    own: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker.client, "LEAVE_WITHIN", 0.3)

    async def main() -> None:
        async with Relay(own.address, "one") as relay:
            assert own.pid is not None
            os.kill(own.pid, signal.SIGSTOP)
            for _ in range(8):
                relay.publish("topic", bytes(2**20))

    run(main())


def test_a_participant_held_up_does_not_blame_the_broker(shared: str, run_id: str) -> None:
    async def main() -> Messages:
        async with Relay(shared, run_id, keepalive=1) as relay:
            await relay.subscribe(run_id)
            await asyncio.sleep(0)
            time.sleep(2.2)  # noqa: ASYNC251 (what a long computation does to an event loop)
            relay.publish(run_id, b"x")
            return await take(relay, 1)

    assert run(main()) == [(run_id, b"x")]
