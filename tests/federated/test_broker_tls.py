"""TLS: which certificates are accepted, what is readable on the wire, how such brokers start."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from broker_support import KINDS, STRANGERS, CertificateStore, RawClient, run, strangers_to

from fogveil.broker import mosquitto, tls
from fogveil.broker.address import Address
from fogveil.broker.builtin import Broker
from fogveil.broker.client import BrokerClient
from fogveil.broker.healthcheck import check_reachable
from fogveil.broker.launcher import RunningBroker, start_broker
from fogveil.broker.mqtt_packets import Connack, Connect, EmptyPacket, PacketType, Publish
from fogveil.broker.topics import Topics
from fogveil.core.errors import InfrastructureError, InputError
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import Identity, broker_identity
from fogveil.protocol.roster import Roster

RUN = "5eed"
ROSTER = Roster(("s-1",), ("fog-1",), "cloud")
AGENT, FOG = Identity(RUN, "agent", "agent"), Identity(RUN, "provider", "fog-1")
SOURCES = Identity(RUN, "sources", "s-1")
BROKER = broker_identity(RUN)
TOPICS = Topics(RUN)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> CertificateStore:
    return CertificateStore(RUN, ROSTER, tmp_path_factory.mktemp("identities"))


@pytest.fixture(scope="module")
def strangers(
    store: CertificateStore, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Credentials | None]:
    return strangers_to(store, AGENT, tmp_path_factory.mktemp("strangers"))


@pytest.fixture(scope="module", params=KINDS)
def broker(
    request: pytest.FixtureRequest,
    store: CertificateStore,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningBroker]:
    """A broker with TLS and an access control list."""
    running = store.start(request.param, tmp_path_factory.mktemp("broker"))
    yield running
    assert running.alive()
    running.stop()


# --- certificates -------------------------------------------------------------------------------


@pytest.mark.parametrize("who", STRANGERS)
def test_a_stranger_is_told_why_it_cannot_connect(
    who: str,
    broker: RunningBroker,
    store: CertificateStore,
    strangers: dict[str, Credentials | None],
) -> None:
    credentials = strangers[who]
    with pytest.raises((InfrastructureError, InputError)) as caught:
        run(connect(broker.address, credentials))
    if credentials is None:
        assert "it requires a client certificate, and there is none" in str(caught.value)
    elif who in {"expired", "not yet valid"}:
        assert "it closed the connection, as it does where a certificate" in str(caught.value)
    else:  # their authority is not the broker's, either
        assert "cannot be reached: its certificate is not valid" in str(caught.value)


async def connect(address: str, credentials: Credentials | None) -> None:
    async with BrokerClient(address, "me", credentials=credentials, broker=BROKER):
        pass


@pytest.mark.parametrize("impostor", [FOG, AGENT])
def test_a_participant_cannot_be_the_broker(impostor: Identity, store: CertificateStore) -> None:
    async def main() -> None:
        builtin = Broker()
        port = await builtin.listen("127.0.0.1", 0, tls.server_context(store[impostor]))
        try:
            await connect(f"mqtts://127.0.0.1:{port}", store[SOURCES])
        finally:
            await builtin.close()

    with pytest.raises(InfrastructureError, match="is not valid: Hostname mismatch"):
        run(main())


def test_a_certificate_without_an_identity_is_refused(
    store: CertificateStore, tmp_path: Path
) -> None:
    named = SimpleNamespace(
        run=store.mint.run, uri="https://agent", host="agent", common_name="agent/agent"
    )
    credentials = store.mint.issue(named, tmp_path)  # type: ignore[arg-type]

    def ask(address: str) -> Connack:
        client = RawClient(address, tls.client_context(BROKER, credentials))
        client.send(Connect("agent"))
        answer = client.receive()
        client.drop()
        return answer

    async def main() -> Connack:
        builtin = Broker()
        context = tls.server_context(store[BROKER])
        port = await builtin.listen("127.0.0.1", 0, context)
        answer = await asyncio.to_thread(ask, f"mqtts://127.0.0.1:{port}")
        await builtin.close()
        return answer

    assert run(main()) == Connack(5)


def test_older_versions_of_tls_are_refused(broker: RunningBroker, store: CertificateStore) -> None:
    older = tls.client_context(BROKER, store[AGENT])
    older.minimum_version = older.maximum_version = tls.ssl.TLSVersion.TLSv1_2
    with pytest.raises(OSError, match="the TLS handshake failed"):
        RawClient(broker.address, older)


def test_a_broker_with_tls_does_not_answer_plain_clients(broker: RunningBroker) -> None:
    plain = RawClient(broker.address)
    plain.send(Connect("agent/agent", user="agent/agent"))
    answer = b""
    with suppress(ConnectionResetError):
        while data := plain.socket.recv(1024):
            answer += data
    assert not answer.startswith(bytes((PacketType.CONNACK << 4,)))
    plain.drop()


class Eavesdropper:
    """Forwards between a client and the broker, and records what the client sends."""

    def __init__(self, address: str) -> None:
        self._broker = Address.parse(address)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"mqtts://127.0.0.1:{self._server.getsockname()[1]}"
        self.recorded = b""
        self._thread = threading.Thread(target=self._forward)
        self._thread.start()

    def _forward(self) -> None:
        client, _ = self._server.accept()
        with client, socket.create_connection((self._broker.host, self._broker.port)) as broker:
            back = threading.Thread(target=self._copy, args=(broker, client))
            back.start()
            while data := client.recv(65536):
                self.recorded += data
                broker.sendall(data)
            broker.shutdown(socket.SHUT_WR)
            back.join()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        while data := source.recv(65536):
            target.sendall(data)

    def close(self) -> None:
        self._server.close()
        self._thread.join()


def test_recorded_traffic_cannot_be_replayed(
    broker: RunningBroker, store: CertificateStore
) -> None:
    agent = store.raw(broker.address, AGENT).connect("").subscribe(TOPICS.all_workloads)
    eavesdropper = Eavesdropper(broker.address)
    sources = store.raw(eavesdropper.address, SOURCES).connect("")
    sources.send(Publish(TOPICS.workload("s-1"), b"once"))
    assert agent.receive() == Publish(TOPICS.workload("s-1"), b"once")
    sources.send(EmptyPacket(PacketType.DISCONNECT))
    sources.is_closed_by_broker()
    sources.drop()
    eavesdropper.close()
    assert b"once" not in eavesdropper.recorded
    assert b"workload" not in eavesdropper.recorded
    assert b"s-1" not in eavesdropper.recorded  # the certificate is encrypted as well
    replay = RawClient(broker.address)
    replay.socket.sendall(eavesdropper.recorded)
    assert replay.is_closed_by_broker()
    replay.drop()
    assert agent.receive_until_pong() == []
    agent.drop()


# --- starting -----------------------------------------------------------------------------------


def test_files_are_private_to_the_broker(broker: RunningBroker, store: CertificateStore) -> None:
    folder = Path(f"/proc/{broker.pid}/fd/2").readlink().parent
    files = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    rules = {"mosquitto": "dynamic-security.json", "builtin": "access.json"}
    assert rules[broker.kind] in files
    assert set(files.values()) == {0o600}


def test_mosquitto_without_its_plugin(
    store: CertificateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mosquitto, "PLUGIN", "not_there.so")
    with pytest.raises(InputError, match=r"comes without not_there.so.* or choose .*`builtin`"):
        store.start("mosquitto", tmp_path)
    running = store.start("auto", tmp_path)
    assert running.kind == "builtin"
    running.stop()


def test_identities_that_cannot_be_read(store: CertificateStore, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="authority.pem: the identity cannot be read: No such"):
        BrokerClient("mqtts://host", "me", credentials=Credentials(tmp_path), broker=AGENT)
    (tmp_path / "authority.pem").write_bytes(store[AGENT].authority.read_bytes())
    (tmp_path / "certificate.pem").write_text("no certificate")
    (tmp_path / "key.pem").write_text("no key")
    with pytest.raises(InputError, match="cannot be read: not a certificate or key"):
        BrokerClient("mqtts://host", "me", credentials=Credentials(tmp_path), broker=AGENT)
    with pytest.raises(InputError, match="cannot prove its identity: it needs mqtts://"):
        BrokerClient("mqtt://host", "me", credentials=store[AGENT], broker=AGENT)


def test_external_brokers(broker: RunningBroker, store: CertificateStore, tmp_path: Path) -> None:
    """The run's authority is not one of the system's, and a plain broker does not speak TLS."""
    with pytest.raises(InfrastructureError, match="its certificate is not valid: "):
        start_broker(broker.address, tmp_path)
    with pytest.raises(InfrastructureError, match="its certificate is not valid: "):
        run(connect_to_external(broker.address))
    plain = start_broker("builtin", tmp_path)
    address = plain.address.replace("mqtt:", "mqtts:")
    with pytest.raises(InfrastructureError, match="cannot be reached: the TLS handshake failed: "):
        start_broker(address, tmp_path)
    with pytest.raises(InfrastructureError, match="cannot be reached: the TLS handshake failed: "):
        run(connect_to_external(address))
    plain.stop()


async def connect_to_external(address: str) -> None:
    async with BrokerClient(address, "me"):
        pass


def test_through_a_relay_tls_is_end_to_end(
    broker: RunningBroker, store: CertificateStore, tmp_path: Path
) -> None:
    """The relay is nobody of the run: the broker's certificate is checked behind it."""
    folder = Path(tempfile.mkdtemp())  # pytest's is too long for the path of a socket
    address = Address.parse(broker.address)
    path = folder / "socket"
    options = ["--socket", path, "--host", address.host, "--port", address.port]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "fogveil.broker.relay", *map(str, options)],
        stdin=subprocess.PIPE,
    ) as relay:
        try:
            while not path.exists():
                assert relay.poll() is None
                time.sleep(0.01)
            through = str(address._replace(socket=str(path)))
            run(connect(through, store[AGENT]))
            relay.stdin.close()  # the launcher is gone
            assert relay.wait(30) == 0
            with pytest.raises(InfrastructureError, match="cannot be reached"):
                check_reachable(Address.parse(through))
        finally:
            relay.kill()
            shutil.rmtree(folder)
