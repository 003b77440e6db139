"""Starting, choosing and stopping brokers, and the process of the built-in one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from broker_support import (
    KINDS,
    TIMEOUT,
    BrokerSetup,
    RawClient,
    is_running,
    run,
    takes_connections,
    wait_until,
)

from fogveil.broker import healthcheck, mosquitto
from fogveil.broker.address import Address
from fogveil.broker.client import BrokerClient
from fogveil.broker.launcher import start_broker
from fogveil.broker.mqtt_packets import Connack, Publish, ReturnCode, encode
from fogveil.core.errors import InfrastructureError, InputError


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# --- starting and stopping ----------------------------------------------------------------------


def test_a_stopped_broker_leaves_only_its_files(kind: str, tmp_path: Path) -> None:
    broker = start_broker(kind, tmp_path / "new" / "folder")
    assert broker.alive()
    assert takes_connections(broker.address)
    client = RawClient(broker.address).connect("one")
    broker.stop()
    broker.stop()
    assert client.is_closed_by_broker()
    client.drop()
    assert not broker.alive()
    assert not is_running(broker.pid)
    assert not takes_connections(broker.address)
    files = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*.*")}
    expected = {"mosquitto": ["broker.log", "mosquitto.conf", "mosquitto.db"]}
    assert files == dict.fromkeys(expected.get(kind, ["broker.log"]), 0o600)


def test_a_broker_that_does_not_stop_is_killed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fogveil.broker.launcher.STOP_TIMEOUT", 0.3)
    broker = start_broker(kind, tmp_path)
    os.kill(broker.pid, signal.SIGSTOP)
    broker.stop()
    assert not is_running(broker.pid)


def test_ctrl_c_in_a_terminal_does_not_reach_the_broker(kind: str, tmp_path: Path) -> None:
    broker = start_broker(kind, tmp_path)
    assert os.getsid(broker.pid) == broker.pid
    broker.stop()


def test_two_brokers_side_by_side(kind: str, tmp_path: Path) -> None:
    first, second = (start_broker(kind, tmp_path / name) for name in ("first", "second"))
    assert first.address != second.address
    readers = [
        RawClient(broker.address).connect("same name").subscribe("topic")
        for broker in (first, second)
    ]
    for reader, payload in zip(readers, (b"1", b"2"), strict=True):
        reader.send(Publish("topic", payload))
    assert [reader.receive().payload for reader in readers] == [b"1", b"2"]
    first.stop()
    readers[1].send(Publish("topic", b"3"))
    assert readers[1].receive().payload == b"3"
    second.stop()
    for reader in readers:
        reader.drop()


LAUNCHER = """
import sys, time
from pathlib import Path
from fogveil.broker.launcher import start_broker
broker = start_broker(sys.argv[1], Path(sys.argv[2]))
print(broker.pid, broker.address, flush=True)
time.sleep(1000)
"""


def test_a_broker_dies_with_its_launcher(kind: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", LAUNCHER, kind, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        pid, address = launcher.stdout.readline().split()
        assert is_running(int(pid))
        assert takes_connections(address)
        launcher.kill()
    try:
        wait_until(lambda: not is_running(int(pid)))
        assert not takes_connections(address)
    finally:
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def test_a_fixed_port(kind: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupant:
        port = occupant.getsockname()[1]
        with pytest.raises(InfrastructureError, match=f"^broker: port {port} is taken$"):
            start_broker(kind, tmp_path, port=port)
    broker = start_broker(kind, tmp_path, port=port)
    assert broker.address == f"mqtt://127.0.0.1:{port}"
    broker.stop()


def test_a_broker_that_fails_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mosquitto, "configuration", lambda *_: "no such option")
    with pytest.raises(InfrastructureError, match=r"it does not start: see .*broker\.log"):
        start_broker("mosquitto", tmp_path)
    assert "Unknown configuration variable" in (tmp_path / "broker.log").read_text()


def test_a_folder_that_cannot_be_written(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InfrastructureError, match=r"broker: cannot be started in .*: Not a dir"):
        start_broker(kind, tmp_path / "file" / "folder")


# --- choices ------------------------------------------------------------------------------------


def test_auto_chooses_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = start_broker("auto", tmp_path)
    assert broker.kind == "mosquitto"
    broker.stop()
    monkeypatch.setattr(mosquitto, "SEARCH_PATH", str(tmp_path))
    broker = start_broker("auto", tmp_path)
    assert broker.kind == "builtin"
    broker.stop()
    with pytest.raises(InputError, match=r"`apt install mosquitto`, or .* `builtin`"):
        start_broker("mosquitto", tmp_path)


def test_an_external_broker(kind: str, tmp_path: Path) -> None:
    started = start_broker(kind, tmp_path)
    external = start_broker(started.address, tmp_path / "external")
    assert (external.kind, external.address, external.pid) == ("external", started.address, None)
    external.stop()
    assert external.alive()
    assert started.alive()
    assert not (tmp_path / "external").exists()
    started.stop()


@pytest.mark.parametrize("choice", ["", "Mosquitto", "rabbit", "tcp://host", "host:1883"])
def test_unknown_choices(choice: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"auto, mosquitto, builtin or mqtt\[s\]://host\[:port\]"):
        start_broker(choice, tmp_path)


@pytest.mark.parametrize("scheme", ["mqtt", "mqtts"])
@pytest.mark.parametrize("rest", ["", ":1883", "h:port", "h:70000", "h:0", "h/path", "h?q", "[::1"])
def test_wrong_addresses(scheme: str, rest: str, tmp_path: Path) -> None:
    for attempt in (
        lambda text: start_broker(text, tmp_path),
        lambda text: BrokerClient(text, "me"),
    ):
        with pytest.raises(InputError, match=r"expected mqtt\[s\]://") as caught:
            attempt(f"{scheme}://me:secret@{rest}")
        assert "secret" not in str(caught.value)


def test_addresses() -> None:
    assert Address.parse("mqtt://a%40b:c%2Fd@host:99/") == ("host", 99, "a@b", "c/d", False, None)
    assert Address.parse("mqtt://[::1]") == ("::1", 1883, None, None, False, None)
    assert str(Address.parse("mqtt://[::1]")) == "mqtt://[::1]:1883"
    assert Address.parse("mqtts://host") == ("host", 8883, None, None, True, None)
    through = "mqtts://a%40b:c%2Fd@host:99?socket=/a%20folder/socket"
    assert Address.parse(through).socket == "/a folder/socket"
    assert Address.parse(through).url == through
    assert str(Address.parse(through)) == "mqtts://host:99?socket=/a%20folder/socket"
    assert str(Address.parse("mqtts://me:secret@host:99")) == "mqtts://host:99"


# --- the process of the built-in broker ---------------------------------------------------------


def launch(*options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fogveil.broker", *options]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize("end", ["SIGTERM", "SIGINT", "standard input"])
def test_the_built_in_broker_stops_cleanly(end: str) -> None:
    with launch("--port", "0", "--lifeline") as process:
        port = json.loads(process.stdout.readline())["listening"]
        client = RawClient(f"mqtt://127.0.0.1:{port}").connect("one")
        if end == "standard input":
            process.stdin.close()
        else:
            process.send_signal(getattr(signal, end))
        assert process.wait(TIMEOUT) == 0
        assert client.is_closed_by_broker()
        client.drop()
        assert process.stderr.read() == ""


def test_the_built_in_broker_reports_a_taken_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupant:
        port = occupant.getsockname()[1]
        with launch("--port", str(port)) as process:
            assert process.wait(TIMEOUT) == InfrastructureError.exit_code
            assert process.stderr.read() == f"broker: port {port} on 127.0.0.1 is taken\n"


@pytest.mark.parametrize("name", ["builtin", "builtin-tls"])
def test_the_built_in_broker_does_not_buffer_without_bound(name: str, tmp_path: Path) -> None:
    setup = BrokerSetup.start(name, tmp_path)
    reader = setup.raw_client("reader").subscribe(setup.filter)

    def resident() -> int:
        status = Path(f"/proc/{setup.broker.pid}/status").read_text(encoding="ascii")
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    async def main() -> None:
        before = resident()
        async with setup.client("writer") as writer:
            for _ in range(100):
                writer.publish(setup.topic, bytes(2**20))
            drained = asyncio.create_task(writer.drain())
            await asyncio.sleep(0.5)
            assert not drained.done()
            assert resident() - before < 40 * 2**20
            received = await asyncio.to_thread(lambda: [reader.receive() for _ in range(100)])
            await drained
        assert {len(packet.payload) for packet in received} == {2**20}

    run(main())
    reader.drop()
    setup.broker.stop()


# --- addresses without a broker -----------------------------------------------------------------


def connection_errors(address: str, folder: Path) -> list[str]:
    """Return the errors of a participant and of the launcher at an address."""

    async def main() -> None:
        async with BrokerClient(address, "somebody"):
            pass

    with pytest.raises(InfrastructureError) as participant:
        run(main())
    with pytest.raises(InfrastructureError) as launcher:
        start_broker(address, folder)
    return [str(participant.value), str(launcher.value)]


def test_a_port_without_a_listener(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"mqtt://127.0.0.1:{free.getsockname()[1]}"
    expected = f"the broker {address} cannot be reached: Connection refused"
    assert connection_errors(address, tmp_path) == [expected] * 2


def test_an_unknown_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    expected = "the broker mqtt://nowhere:1883 cannot be reached: Name or service not known"
    assert connection_errors("mqtt://nowhere", tmp_path) == [expected] * 2


@pytest.fixture
def fake_broker() -> Iterator[Callable[[bytes | None], str]]:
    """Listen, and give every connection the same answer; None for silence."""
    server = socket.create_server(("127.0.0.1", 0))
    answers: list[bytes | None] = []
    connections: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            connections.append(connection)
            connection.recv(1024)
            if answers[0] is not None:
                connection.sendall(answers[0])
                connection.close()

    thread = threading.Thread(target=serve)

    def start(answer: bytes | None) -> str:
        answers.append(answer)
        thread.start()
        return f"mqtt://me:secret@127.0.0.1:{server.getsockname()[1]}"

    yield start
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()
    for connection in connections:
        connection.close()


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (encode(Connack(ReturnCode.NOT_AUTHORISED)), r"refuses the connection: not authori[sz]ed$"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", r"cannot be reached: "),
        (b"", r"cannot be reached: "),
        (None, r"cannot be reached: no answer within 0.3 s$"),
    ],
)
def test_something_else_listens(
    answer: bytes | None,
    sentence: str,
    fake_broker: Callable[[bytes | None], str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    within = 0.3 if answer is None else TIMEOUT
    monkeypatch.setattr("fogveil.broker.client.CONNECT_TIMEOUT", within)
    monkeypatch.setattr(healthcheck.check_reachable, "__defaults__", (None, within))
    for text in connection_errors(fake_broker(answer), tmp_path):
        assert text.startswith("the broker mqtt://127.0.0.1:")
        assert re.search(sentence, text)
        assert "secret" not in text


@pytest.mark.skipif(os.getuid() != 0, reason="only root can change the user")
def test_a_broker_runs_as_the_given_user(kind: str, tmp_path: Path) -> None:
    user = 2**30 + 5
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    broker = start_broker(kind, closed / "broker", user=user)
    try:
        assert Path(f"/proc/{broker.pid}").stat().st_uid == user
        assert takes_connections(broker.address)
        status = Path(f"/proc/{broker.pid}/status").read_text()
        assert f"Uid:\t{user}\t{user}\t{user}\t{user}" in status
        assert "Groups:\t \n" in status
    finally:
        broker.stop()
