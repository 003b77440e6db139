"""mosquitto, the built-in broker and amqtt side by side, without TLS, at QoS 0.

They take turns with the participants' client, so a busy machine slows all of them and the ratios
hold. amqtt is installed by pip into a virtual environment in a temporary folder, and runs on
uvloop, as the built-in broker does. At mosquitto the client itself is compared with plain aiomqtt.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import aiomqtt
import uvloop

from fogveil.broker import mosquitto
from fogveil.broker.address import Address
from fogveil.broker.client import TCP_NODELAY, BrokerClient
from fogveil.broker.healthcheck import check_reachable
from fogveil.broker.launcher import HOST, reserve, start_broker
from fogveil.core.errors import InfrastructureError

PAYLOAD = bytes(100)
BURST = 2000
"""Messages that are published at once to measure the rate."""
TIMEOUT = 60.0
NOT_COUNTED = ("pip", "setuptools", "wheel", "uvloop")
"""Packages that every environment has, and one that fogveil itself depends on."""
AMQTT = """
import asyncio, sys, uvloop
from amqtt.broker import Broker

async def serve():
    listeners = {"default": {"type": "tcp", "bind": f"127.0.0.1:{sys.argv[1]}"}}
    anonymous = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
    await Broker({"listeners": listeners, "plugins": anonymous}).start()
    await asyncio.Event().wait()

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(serve())
"""


class Turn(NamedTuple):
    """The results of one turn."""

    round_trip: float
    """Seconds from publishing a message to receiving it."""
    rate: float
    """Messages per second in a burst."""
    broker_cpu: float
    """CPU seconds of the broker per message of the burst."""
    client_cpu: float
    """CPU seconds of both clients per message of the burst."""


@dataclass
class Contender:
    """A running broker, and its results."""

    name: str
    address: str
    pid: int
    packages: str
    plain: bool = False
    """Whether it is measured with plain aiomqtt."""
    turns: list[Turn] = field(default_factory=list)

    def cpu_seconds(self) -> float:
        """Return the CPU time of the broker's main thread, which does all of its work."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9


# --- starting ------------------------------------------------------------------------------------


@contextmanager
def started(kind: str, name: str, packages: str, folder: Path) -> Iterator[Contender]:
    """Start one of the brokers that fogveil starts."""
    broker = start_broker(kind, folder)
    assert broker.pid is not None
    try:
        yield Contender(name, broker.address, broker.pid, packages)
    finally:
        broker.stop()


@contextmanager
def started_amqtt(folder: Path) -> Iterator[Contender]:
    """Install and start amqtt; CalledProcessError if pip fails."""
    python = str(folder / "bin" / "python")
    _output(sys.executable, "-m", "venv", str(folder))
    _output(python, "-m", "pip", "install", "--quiet", "amqtt", "uvloop")
    listed = json.loads(_output(python, "-m", "pip", "list", "--format", "json"))
    versions = {each["name"].lower(): each["version"] for each in listed}
    packages = len(versions.keys() - set(NOT_COUNTED))
    with reserve() as reserved:
        address = Address(HOST, reserved.getsockname()[1])
        command = [python, "-c", AMQTT, str(address.port)]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            _wait_until_ready(address)
            name = f"amqtt {versions['amqtt']}"
            yield Contender(name, str(address), process.pid, str(packages))
        finally:
            process.terminate()
            process.wait()


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _wait_until_ready(address: Address) -> None:
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            check_reachable(address, timeout=1.0)
        except InfrastructureError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def mosquitto_version() -> str:
    """Return the version of the mosquitto that is installed."""
    command = [mosquitto.require(), "-h"]  # which has an exit code of 3
    printed = subprocess.run(command, check=False, capture_output=True, text=True).stdout
    return printed.split()[2]


# --- measuring -----------------------------------------------------------------------------------


class PlainClient(aiomqtt.Client):
    """aiomqtt as it comes."""

    def __init__(self, address: str, name: str) -> None:
        host, port, *_ = Address.parse(address)
        super().__init__(host, port, identifier=name, socket_options=(TCP_NODELAY,))

    async def send(self, topic: str, payload: bytes) -> None:
        """Publish a message."""
        await self.publish(topic, payload)

    def received(self) -> AsyncIterator[Any]:
        """Yield received messages."""
        return aiter(self.messages)


class ParticipantClient(BrokerClient):
    """The participants' client, with the same methods."""

    async def send(self, topic: str, payload: bytes) -> None:
        """Publish a message."""
        self.publish(topic, payload)

    def received(self) -> AsyncIterator[Any]:
        """Yield received messages."""
        return self.messages()


async def measure(contender: Contender, round_trips: int) -> Turn:
    """Measure round trips one after the other, and then a burst."""
    kind = PlainClient if contender.plain else ParticipantClient
    async with (
        kind(contender.address, "bench-reader") as reader,
        kind(contender.address, "bench-writer") as writer,
        asyncio.timeout(TIMEOUT),
    ):
        await reader.subscribe("bench")
        received = reader.received()
        begin = time.perf_counter()
        for _ in range(round_trips):
            await writer.send("bench", PAYLOAD)
            await anext(received)
        round_trip = (time.perf_counter() - begin) / round_trips
        begin, client, broker = time.perf_counter(), time.process_time(), contender.cpu_seconds()
        for _ in range(BURST):
            await writer.send("bench", PAYLOAD)
        for _ in range(BURST):
            await anext(received)
        return Turn(
            round_trip,
            BURST / (time.perf_counter() - begin),
            (contender.cpu_seconds() - broker) / BURST,
            (time.process_time() - client) / BURST,
        )


def print_table(contenders: list[Contender]) -> None:
    """Print the medians."""
    columns = ("round trip", "in a burst", "broker's CPU", "clients' CPU", "more packages")
    print(f"{'':20}" + "".join(f"{column:>15}" for column in columns))
    for contender in contenders:
        medians = (median(column) for column in zip(*contender.turns, strict=True))
        round_trip, rate, broker_cpu, client_cpu = medians
        print(
            f"{contender.name:20}{round_trip * 1e6:>12,.0f} µs{rate:>13,.0f}/s"
            f"{broker_cpu * 1e6:>12,.0f} µs{client_cpu * 1e6:>12,.0f} µs{contender.packages:>15}"
        )
    print("(CPU is per message of the burst; clients and broker share the machine)")


def main() -> None:
    """Start the brokers, measure them in turns, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.brokers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the turns")
    turns, round_trips = (3, 200) if parser.parse_args().quick else (15, 500)
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        name = f"mosquitto {mosquitto_version()}"
        external = stack.enter_context(started("mosquitto", name, "Debian's", folder / "external"))
        plain = Contender("  by plain aiomqtt", external.address, external.pid, "", plain=True)
        builtin = stack.enter_context(started("builtin", "built-in", "0", folder / "builtin"))
        contenders = [external, plain, builtin]
        try:
            contenders.append(stack.enter_context(started_amqtt(folder / "amqtt")))
        except subprocess.CalledProcessError as error:
            reason = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
            print(f"amqtt is left out, because it cannot be installed: {reason}")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            for contender in contenders * turns:
                contender.turns.append(runner.run(measure(contender, round_trips)))
        print(f"brokers at QoS 0, payloads of {len(PAYLOAD)} bytes, medians of {turns} turns")
        print_table(contenders)


if __name__ == "__main__":
    main()
