"""Floods that a run which recovers goes on through: of an agent, of a provider, of outsiders."""

from __future__ import annotations

import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import grpc
import pytest
from federated_support import embedded_hash, make_scenario

from fogveil.protocol.channels import OPTIONS
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import PROVIDER, Identity
from fogveil.testbed.launch.federated_run import run_federated
from fogveil.testbed.launch.participant_config import Plan
from fogveil.v1.boundary_pb2 import WatchRequest
from fogveil.v1.boundary_pb2_grpc import QueueServiceStub

PUBLISHES = """
import gc, json, pathlib
from fogveil.agent.policy import Policy
from fogveil.broker.client import BrokerClient
from fogveil.broker.topics import Topics

class P(Policy):
    def place(self, seen):
        if seen.job == 5 and pathlib.Path("config.json").exists():
            run = json.loads(pathlib.Path("config.json").read_text())["run"]
            (relay,) = (o for o in gc.get_objects() if isinstance(o, BrokerClient))
            for _ in range(30_000):
                relay.publish(Topics(run).placement("fog-1"), b"\\xff" * 20)
        return seen.job % 3
"""


@pytest.mark.parametrize("broker", ["builtin", pytest.param("mosquitto", marks=pytest.mark.slow)])
def test_an_agent_that_floods_a_provider_by_the_broker_stops_nothing(tmp_path, broker):
    (tmp_path / "mine.py").write_text(PUBLISHES)
    policy = f"{tmp_path}/mine.py:P"
    scenario = make_scenario(horizon=600, disclosure="count")
    plan = Plan((policy,), recovers=True, broker=broker)
    (result,) = run_federated(scenario, plan, tmp_path / "run")
    assert result["run_hash"] == embedded_hash(scenario, policy)
    log = (tmp_path / "run/testbed.log").read_text()
    assert "agent sent more than 10,000 messages that are malformed" in log
    assert log.count("not a Placements") == 10_000


class Attack:
    """Something that goes on in threads while a run does; `begin` is to be called by reports."""

    def __init__(self, act, threads=2):
        self._act, self._threads = act, threads
        self._pool = ThreadPoolExecutor(threads)
        self._over = threading.Event()
        self._attacks = []
        self.rounds = 0

    def begin(self, testbed, _name, _report):
        if not self._attacks:
            attack = self._pool.submit
            self._attacks = [attack(self._go_on, testbed) for _ in range(self._threads)]

    def _go_on(self, testbed):
        while not self._over.is_set():
            with suppress(OSError, grpc.RpcError):
                self._act(testbed, self._over)
            self.rounds += 1

    def end(self):
        self._over.set()
        for attack in self._attacks:
            attack.result()
        self._pool.shutdown()


CALLS = 1000


def test_an_agent_that_floods_a_provider_with_calls_stops_nothing(tmp_path):
    """Each call takes the place of the agent's own, which it then makes again."""
    scenario = make_scenario(horizon=600, disclosure="count")
    plan = Plan(("jsq",), recovers=True, broker="builtin", separate_users=False, speed=100.0)
    made = []

    def call(testbed, over):
        if len(made) == CALLS:
            over.wait()
            return
        folder = testbed.split.folder_of("agent") / "identity"
        host = Identity(testbed.run, PROVIDER, "fog-1").host
        options = [*OPTIONS, ("grpc.ssl_target_name_override", host)]
        channel = grpc.secure_channel(
            testbed.addresses["fog-1"], Credentials(folder).for_channel(), options=options
        )
        with channel:
            calls = [QueueServiceStub(channel).Watch(WatchRequest()) for _ in range(CALLS)]
            for each in calls:
                each.initial_metadata()
            made.extend(calls)
            over.wait(1.0)

    attack = Attack(call, threads=1)
    try:
        (result,) = run_federated(scenario, plan, tmp_path / "run", attack.begin)
    finally:
        attack.end()
    assert len(made) == CALLS
    assert result["run_hash"] == embedded_hash(scenario, "jsq")
    assert result["marked"] == []


CONNECTIONS = 3000


def test_outsiders_who_open_thousands_of_connections_stop_nothing(tmp_path):
    scenario = make_scenario(horizon=1000, disclosure="count")
    plan = Plan(("jsq",), recovers=True, broker="builtin", separate_users=False, speed=100.0)
    opened = []

    def connect(testbed, over):
        addresses = [*testbed.addresses.values(), testbed.broker.address.rpartition("/")[2]]
        held = []
        try:
            while not over.is_set() and len(held) < 300:
                host, _, port = addresses[len(opened) % len(addresses)].rpartition(":")
                each = socket.create_connection((host, int(port)), timeout=10)
                held.append(each)
                opened.append(time.monotonic())
                with suppress(OSError):
                    if len(opened) % 2:
                        each.sendall(os.urandom(300))
        finally:
            for each in held:
                each.close()

    attack = Attack(connect)
    try:
        (result,) = run_federated(scenario, plan, tmp_path / "run", attack.begin)
    finally:
        attack.end()
    assert len(opened) > CONNECTIONS
    assert result["run_hash"] == embedded_hash(scenario, "jsq")
    assert result["marked"] == []
