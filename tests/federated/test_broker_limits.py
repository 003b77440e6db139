"""What one participant, or an outsider, can make the broker and the others hold is bounded."""

from __future__ import annotations

import asyncio
import resource
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from broker_support import RawClient, wait_until
from federated_support import embedded_hash, fogveil, make_scenario

from fogveil.broker import builtin, mosquitto, routing
from fogveil.broker.launcher import cut_off_clients, start_broker
from fogveil.broker.mqtt_packets import (
    PAYLOAD_LIMIT,
    Connack,
    Connect,
    ProtocolError,
    Publish,
    Subscribe,
    encode,
)
from fogveil.broker.routing import Router
from fogveil.core.errors import LostError
from fogveil.protocol import message_order
from fogveil.protocol.message_order import OrderedInbox, parse_message
from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.join_records import join
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.launch.run_folder import LOG
from fogveil.testbed.scenario.world import build_world
from fogveil.v1.workload_pb2 import Placement, Placements

FLOOD = 700 * 2**20
"""Bytes by which the first version's mosquitto grew in three seconds."""


def resident(pid: int) -> int:
    """Return the bytes of memory that a process has."""
    text = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(text.partition("VmRSS:")[2].split()[0])


def flood(client: RawClient, data: bytes, size: int) -> None:
    """Send as much as is taken, up to a size."""
    client.socket.settimeout(2.0)
    with suppress(OSError):  # closed, or not read any more
        for _ in range(size // len(data)):
            client.socket.sendall(data)


@pytest.mark.parametrize("kind", ["mosquitto", "builtin"])
def test_a_receiver_that_does_not_keep_up_costs_the_broker_bounded_memory(tmp_path, kind):
    """The first version's mosquitto kept everything: 700 MB after three seconds."""
    broker = start_broker(kind, tmp_path)
    try:
        slow = RawClient(broker.address).connect("slow").subscribe("t")
        sender = RawClient(broker.address).connect("sender")
        flood(sender, encode(Publish("t", bytes(PAYLOAD_LIMIT))), FLOOD)
        assert resident(broker.pid) < mosquitto.MEMORY_LIMIT + 64 * 2**20
        if kind == "mosquitto":  # the built-in broker reads no more from it until the other reads
            wait_until(lambda: cut_off_clients(tmp_path) == ["sender"])
        honest = RawClient(broker.address).connect("honest")
        assert honest.receive_until_pong() == []
        for client in (slow, sender, honest):
            client.drop()
    finally:
        broker.stop()


def test_a_client_that_requests_more_than_it_reads_is_cut_off(tmp_path):
    """The first version's built-in broker queued a retained message for every subscription."""
    broker = start_broker("builtin", tmp_path)
    try:
        client = RawClient(broker.address).connect("greedy")
        client.send(Publish("t", bytes(PAYLOAD_LIMIT), retain=True))
        flood(client, encode(Subscribe(1, (("t", 0),))) * 4000, 4000 * 8)
        wait_until(lambda: cut_off_clients(tmp_path) == ["greedy"])
        assert resident(broker.pid) < 2 * builtin.REQUESTED_LIMIT + 128 * 2**20
        client.drop()
    finally:
        broker.stop()


def test_retained_messages_are_bounded(monkeypatch):
    monkeypatch.setattr(routing, "RETAINED_LIMIT", 100)
    router: Router[str] = Router()
    for _ in range(9):  # one topic has one
        router.retain(Publish("a", bytes(60)))
    with pytest.raises(ProtocolError, match="retains as much as it can"):
        router.retain(Publish("b", bytes(60)))
    router.retain(Publish("a", b""))
    router.retain(Publish("b", bytes(60)))
    assert [message.topic for message in router.retained("#")] == ["b"]


def test_of_too_many_silent_connections_the_oldest_is_closed(monkeypatch):
    """The first version kept all of them until their time was over."""
    monkeypatch.setattr(builtin, "MOST_SILENT", 3)

    async def attack() -> None:
        broker = builtin.Broker()
        port = await broker.listen("127.0.0.1", 0)
        streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        for reader, _ in streams[:2]:
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        reader, writer = streams[2]
        writer.write(encode(Connect("honest")))
        assert await reader.readexactly(4) == encode(Connack(0))
        await broker.close()
        for _, writer in streams:
            writer.close()

    asyncio.run(asyncio.wait_for(attack(), 20.0))


# --- receivers ------------------------------------------------------------------------------------


def test_a_sender_of_useless_messages_without_end_is_named(monkeypatch):
    """The first version dropped them for ever, with a line in the log for each."""
    monkeypatch.setattr(message_order, "MOST_DROPPED", 10)
    inbox = OrderedInbox("fog-1")
    for episode in (1, 2):  # each has a budget of its own
        inbox.begin(episode)
        for _ in range(5):
            assert inbox.take(7, 1, None) == []
            assert parse_message(Placements, b"\xff", "fog-1") is None
    with pytest.raises(LostError, match="^fog-1 sent more than 10 messages that are malformed"):
        parse_message(Placements, b"\xff", "fog-1")
    assert parse_message(Placements, b"\xff", "fog-2") is None


def test_messages_that_wait_for_earlier_ones_are_bounded(monkeypatch):
    """The first version kept 1,024 of them, of up to 4 MiB."""
    monkeypatch.setattr(message_order, "MOST_EARLY_BYTES", 5000)
    inbox = OrderedInbox("fog-1")
    inbox.begin(1)
    message = Placements(placements=[Placement(job=2**40, arrival=1.5)] * 100)
    for sequence in (2, 3):
        inbox.take(1, sequence, message)
    assert len(inbox.take(1, 1, message)) == 3
    with pytest.raises(LostError, match="^fog-1 sent .* bytes after message 4, which is missing"):
        [inbox.take(1, sequence, message) for sequence in range(5, 50)]


@pytest.mark.parametrize("broker", ["mosquitto", "builtin"])
def test_a_participant_that_floods_another_ends_the_run_by_name(tmp_path, broker):
    """The first version lost no message and named nobody: the broker grew, the run crept."""
    (tmp_path / "mine.py").write_text(
        "import gc, json, pathlib\n"
        "from fogveil.agent.policy import Policy\n"
        "from fogveil.broker.client import BrokerClient\n"
        "from fogveil.broker.topics import Topics\n"
        "class P(Policy):\n"
        "    def place(self, seen):\n"
        "        if seen.job == 5:\n"
        "            run = json.loads(pathlib.Path('config.json').read_text())['run']\n"
        "            (relay,) = (o for o in gc.get_objects() if isinstance(o, BrokerClient))\n"
        "            for _ in range(12_000):\n"
        "                relay.publish(Topics(run).placement('fog-1'), b'\\xff' * 20)\n"
        "        return 0\n"
    )
    out = tmp_path / "out"
    words = ("--policy", f"{tmp_path}/mine.py:P", "--broker", broker, "--out", out)
    words += ("--disclosure", "none", "--on-loss", "end")
    done = fogveil("run", "tiny", "--federated", *words)
    assert done.returncode == 3, done.stderr + (out / LOG).read_text()[-3000:]
    assert "the agent was lost at simulated time" in done.stderr
    assert "(reported by fog-1); fog-1: agent sent more than 10,000 messages" in done.stderr


# --- connections that say nothing -----------------------------------------------------------------

IDLE = 1500
USUAL_FILES = 1024
"""The usual soft limit of open files, which the first version left as it was."""


@pytest.mark.parametrize("broker", ["mosquitto", "builtin"])
def test_idle_connections_of_an_outsider_change_nothing(tmp_path, broker):
    """In the first version 1,500 of them took all file descriptors of a process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 8 * IDLE:
        pytest.skip(f"the system lets a process open {hard} files: too few to attack with")
    scenario = make_scenario(disclosure="count")
    world, connections = build_world(scenario), []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(USUAL_FILES, hard), hard))
    try:
        plan = Plan(("jsq",), broker=broker, separate_users=False)
        with create_testbed(world, plan, tmp_path, hold=True) as testbed:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            address = testbed.broker.address.rpartition("/")[2]
            for target in (*testbed.addresses.values(), address):
                host, _, port = target.rpartition(":")
                connections += [
                    socket.create_connection((host, int(port)), timeout=30) for _ in range(IDLE)
                ]
            testbed.release()
            testbed.wait()
        assert join(world, testbed.split, 0, []) == embedded_hash(scenario, "jsq")
    finally:
        for each in connections:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
