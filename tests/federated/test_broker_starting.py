"""Starting, finding and stopping brokers, and who may do what in the built-in one."""

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
    PATIENCE,
    RawClient,
    Venue,
    is_running,
    run,
    takes_connections,
    wait_until,
)

import broker.client
import broker.knocking
import broker.starting
from broker import mosquitto
from broker.address import Address
from broker.client import Relay
from broker.packets import Answer, Connack, Publish, encode
from broker.starting import start_broker
from fogveil.errors import InputError, SurroundingsError


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# --- starting and stopping ----------------------------------------------------------------------


def test_nothing_is_left_of_a_stopped_broker(kind: str, tmp_path: Path) -> None:
    running = start_broker(kind, tmp_path / "new" / "folder")
    assert running.alive()
    assert takes_connections(running.address)
    client = RawClient(running.address).connect("one")
    running.stop()
    running.stop()
    assert client.is_closed_by_broker()
    client.drop()
    assert not running.alive()
    assert not is_running(running.pid)
    assert not takes_connections(running.address)
    files = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*.*")}
    expected = {"mosquitto": ["broker.log", "mosquitto.conf", "mosquitto.db"]}
    assert files == dict.fromkeys(expected.get(kind, ["broker.log"]), 0o600)


def test_a_broker_that_does_not_listen_to_reason_is_killed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker.starting, "STOP_WITHIN", 0.3)
    running = start_broker(kind, tmp_path)
    os.kill(running.pid, signal.SIGSTOP)
    running.stop()
    assert not is_running(running.pid)


def test_ctrl_c_in_a_terminal_does_not_reach_it(kind: str, tmp_path: Path) -> None:
    running = start_broker(kind, tmp_path)
    assert os.getsid(running.pid) == running.pid
    running.stop()


def test_two_brokers_side_by_side(kind: str, tmp_path: Path) -> None:
    first, second = (start_broker(kind, tmp_path / name) for name in ("first", "second"))
    assert first.address != second.address
    readers = [
        RawClient(running.address).connect("same name").subscribe("topic")
        for running in (first, second)
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
from broker.starting import start_broker
running = start_broker(sys.argv[1], Path(sys.argv[2]))
print(running.pid, running.address, flush=True)
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


def test_a_given_port(kind: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        port = somebody.getsockname()[1]
        with pytest.raises(SurroundingsError, match=f"^broker: port {port} is taken$"):
            start_broker(kind, tmp_path, port=port)
    running = start_broker(kind, tmp_path, port=port)
    assert running.address == f"mqtt://127.0.0.1:{port}"
    running.stop()


def test_a_broker_that_fails_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mosquitto, "configuration", lambda *_: "no such option")
    with pytest.raises(SurroundingsError, match=r"it does not start: see .*broker\.log"):
        start_broker("mosquitto", tmp_path)
    assert "Unknown configuration variable" in (tmp_path / "broker.log").read_text()


def test_a_folder_that_cannot_be_written(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SurroundingsError, match=r"broker: cannot be started in .*: Not a dir"):
        start_broker(kind, tmp_path / "file" / "folder")


# --- choices ------------------------------------------------------------------------------------


def test_auto_takes_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = start_broker("auto", tmp_path)
    assert running.kind == "mosquitto"
    running.stop()
    monkeypatch.setattr(mosquitto, "PLACES", str(tmp_path))
    running = start_broker("auto", tmp_path)
    assert running.kind == "builtin"
    running.stop()
    with pytest.raises(InputError, match=r"`apt install mosquitto`, or .* `builtin`"):
        start_broker("mosquitto", tmp_path)


def test_a_broker_that_is_there_already(kind: str, tmp_path: Path) -> None:
    theirs = start_broker(kind, tmp_path)
    ours = start_broker(theirs.address, tmp_path / "ours")
    assert (ours.kind, ours.address, ours.pid) == ("external", theirs.address, None)
    ours.stop()
    assert ours.alive()
    assert theirs.alive()
    assert not (tmp_path / "ours").exists()
    theirs.stop()


@pytest.mark.parametrize("choice", ["", "Mosquitto", "rabbit", "tcp://host", "host:1883"])
def test_unknown_choices(choice: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"auto, mosquitto, builtin or mqtt\[s\]://host\[:port\]"):
        start_broker(choice, tmp_path)


@pytest.mark.parametrize("scheme", ["mqtt", "mqtts"])
@pytest.mark.parametrize("rest", ["", ":1883", "h:port", "h:70000", "h:0", "h/path", "h?q", "[::1"])
def test_wrong_addresses(scheme: str, rest: str, tmp_path: Path) -> None:
    for attempt in (lambda text: start_broker(text, tmp_path), lambda text: Relay(text, "me")):
        with pytest.raises(InputError, match=r"expected mqtt\[s\]://") as caught:
            attempt(f"{scheme}://me:secret@{rest}")
        assert "secret" not in str(caught.value)


def test_addresses() -> None:
    assert Address.parse("mqtt://a%40b:c%2Fd@host:99/") == ("host", 99, "a@b", "c/d", False)
    assert Address.parse("mqtt://[::1]") == ("::1", 1883, None, None, False)
    assert str(Address.parse("mqtt://[::1]")) == "mqtt://[::1]:1883"
    assert Address.parse("mqtts://host") == ("host", 8883, None, None, True)
    assert str(Address.parse("mqtts://me:secret@host:99")) == "mqtts://host:99"


# --- the process of the built-in broker ---------------------------------------------------------


def launch(*options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "broker", *options]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize("end", ["SIGTERM", "SIGINT", "standard input"])
def test_the_built_in_broker_ends_in_good_order(end: str) -> None:
    with launch("--port", "0", "--lifeline") as process:
        port = json.loads(process.stdout.readline())["listening"]
        client = RawClient(f"mqtt://127.0.0.1:{port}").connect("one")
        if end == "standard input":
            process.stdin.close()
        else:
            process.send_signal(getattr(signal, end))
        assert process.wait(PATIENCE) == 0
        assert client.is_closed_by_broker()
        client.drop()
        assert process.stderr.read() == ""


def test_the_built_in_broker_wants_its_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        port = somebody.getsockname()[1]
        with launch("--port", str(port)) as process:
            assert process.wait(PATIENCE) == SurroundingsError.exit_code
            assert process.stderr.read() == f"broker: port {port} on 127.0.0.1 is taken\n"


@pytest.mark.parametrize("name", ["builtin", "builtin-tls"])
def test_the_built_in_broker_does_not_pile_up_what_nobody_reads(name: str, tmp_path: Path) -> None:
    venue = Venue.start(name, tmp_path)
    reader = venue.client("reader").subscribe(venue.filter)

    def resident() -> int:
        status = Path(f"/proc/{venue.broker.pid}/status").read_text(encoding="ascii")
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    async def main() -> None:
        before = resident()
        async with venue.relay("writer") as writer:
            for _ in range(100):
                writer.publish(venue.topic, bytes(2**20))
            drained = asyncio.create_task(writer.drained())
            await asyncio.sleep(0.5)
            assert not drained.done()
            assert resident() - before < 40 * 2**20
            received = await asyncio.to_thread(lambda: [reader.receive() for _ in range(100)])
            await drained
        assert {len(packet.payload) for packet in received} == {2**20}

    run(main())
    reader.drop()
    venue.broker.stop()


# --- brokers that are none ----------------------------------------------------------------------


def connection_errors(address: str, folder: Path) -> list[str]:
    """Return what a participant and what the launcher say of an address."""

    async def main() -> None:
        async with Relay(address, "somebody"):
            pass

    with pytest.raises(SurroundingsError) as participant:
        run(main())
    with pytest.raises(SurroundingsError) as launcher:
        start_broker(address, folder)
    return [str(participant.value), str(launcher.value)]


def test_nobody_listens(tmp_path: Path) -> None:
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
def impostor() -> Iterator[Callable[[bytes | None], str]]:
    """Listens, and gives every connection the same answer; None is to be silent."""
    server = socket.create_server(("127.0.0.1", 0))
    answers: list[bytes | None] = []
    taken: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            taken.append(connection)
            connection.recv(1024)
            if answers[0] is not None:
                connection.sendall(answers[0])
                connection.close()

    thread = threading.Thread(target=serve)

    def answering(answer: bytes | None) -> str:
        answers.append(answer)
        thread.start()
        return f"mqtt://me:secret@127.0.0.1:{server.getsockname()[1]}"

    yield answering
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()
    for connection in taken:
        connection.close()


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (encode(Connack(Answer.NOT_AUTHORISED)), r"refuses the connection: not authori[sz]ed$"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", r"cannot be reached: "),
        (b"", r"cannot be reached: "),
        (None, r"cannot be reached: no answer within 0.3 s$"),
    ],
)
def test_something_else_listens(
    answer: bytes | None,
    sentence: str,
    impostor: Callable[[bytes | None], str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(broker.client, "CONNECT_WITHIN", 0.3)
    monkeypatch.setattr(broker.knocking.knock, "__defaults__", (None, 0.3))
    for text in connection_errors(impostor(answer), tmp_path):
        assert text.startswith("the broker mqtt://127.0.0.1:")
        assert re.search(sentence, text)
        assert "secret" not in text


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give it a user")
def test_it_runs_as_the_user_it_is_given_and_dies_with_its_launcher_still(
    kind: str, tmp_path: Path
) -> None:
    user = 2**30 + 5
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    running = start_broker(kind, closed / "broker", user=user)
    try:
        assert Path(f"/proc/{running.pid}").stat().st_uid == user
        assert takes_connections(running.address)
        status = Path(f"/proc/{running.pid}/status").read_text()
        assert f"Uid:\t{user}\t{user}\t{user}\t{user}" in status
        assert "Groups:\t \n" in status
    finally:
        running.stop()
