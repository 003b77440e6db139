"""Certificates: who is let in, what crosses the wire, and how a broker starts that wants them."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from broker_support import KINDS, STRANGERS, RawClient, Wallet, run, strangers_to

from broker import mosquitto, tls
from broker.access import Participants
from broker.address import Address
from broker.builtin import Broker
from broker.client import Relay
from broker.packets import Connack, Connect, Kind, Publish, Signal
from broker.starting import RunningBroker, start_broker
from broker.topics import Topics
from fogveil.errors import InputError, SurroundingsError
from fogveil.identity import Credentials, Identity

RUN = "5eed"
PARTICIPANTS = Participants(RUN, ("s-1",), ("fog-1",), "cloud")
AGENT, FOG = Identity(RUN, "agent", "agent"), Identity(RUN, "provider", "fog-1")
SOURCES = Identity(RUN, "sources", "s-1")
TOPICS = Topics(RUN)


@pytest.fixture(scope="module")
def wallet(tmp_path_factory: pytest.TempPathFactory) -> Wallet:
    return Wallet(PARTICIPANTS, tmp_path_factory.mktemp("identities"))


@pytest.fixture(scope="module")
def strangers(
    wallet: Wallet, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Credentials | None]:
    return strangers_to(wallet, AGENT, tmp_path_factory.mktemp("strangers"))


@pytest.fixture(scope="module", params=KINDS)
def guarded(
    request: pytest.FixtureRequest, wallet: Wallet, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBroker]:
    """A broker that knows who is who."""
    running = wallet.start(request.param, tmp_path_factory.mktemp("broker"))
    yield running
    assert running.alive()
    running.stop()


# --- certificates -------------------------------------------------------------------------------


@pytest.mark.parametrize("who", STRANGERS)
def test_a_stranger_reads_why_it_is_not_let_in(
    who: str, guarded: RunningBroker, wallet: Wallet, strangers: dict[str, Credentials | None]
) -> None:
    shown = strangers[who]
    with pytest.raises((SurroundingsError, InputError)) as caught:
        run(come_in(guarded.address, shown))
    if shown is None:
        assert "there is none to show" in str(caught.value)
    elif who in {"expired", "not yet valid"}:
        assert "it closed the connection, which it does where a certificate" in str(caught.value)
    else:  # their authority is not the broker's, either
        assert "cannot be reached: its certificate is not the right one" in str(caught.value)


async def come_in(address: str, shown: Credentials | None, broker: Identity | None = None) -> None:
    expected = broker or PARTICIPANTS.broker
    async with Relay(address, "me", credentials=shown, broker_identity=expected):
        pass


@pytest.mark.parametrize("impostor", [FOG, AGENT])
def test_a_participant_cannot_be_the_broker(impostor: Identity, wallet: Wallet) -> None:
    async def main() -> None:
        relaying = Broker()
        port = await relaying.listen("127.0.0.1", 0, tls.for_broker(wallet[impostor]))
        try:
            await come_in(f"mqtts://127.0.0.1:{port}", wallet[SOURCES])
        finally:
            await relaying.close()

    with pytest.raises(SurroundingsError, match="is not the right one: Hostname mismatch"):
        run(main())


def test_a_certificate_that_names_nobody(wallet: Wallet, tmp_path: Path) -> None:
    named = SimpleNamespace(
        run=wallet.mint.run, uri="https://agent", host="agent", common_name="agent/agent"
    )
    shown = wallet.mint.issue(named, tmp_path)  # type: ignore[arg-type]

    def ask(address: str) -> Connack:
        client = RawClient(address, tls.for_participant(PARTICIPANTS.broker, shown))
        client.send(Connect("agent"))
        answer = client.receive()
        client.drop()
        return answer

    async def main() -> Connack:
        relaying = Broker()
        secure = tls.for_broker(wallet[PARTICIPANTS.broker])
        port = await relaying.listen("127.0.0.1", 0, secure)
        answer = await asyncio.to_thread(ask, f"mqtts://127.0.0.1:{port}")
        await relaying.close()
        return answer

    assert run(main()) == Connack(5)


def test_older_tls_is_not_spoken(guarded: RunningBroker, wallet: Wallet) -> None:
    older = tls.for_participant(PARTICIPANTS.broker, wallet[AGENT])
    older.minimum_version = older.maximum_version = tls.ssl.TLSVersion.TLSv1_2
    with pytest.raises(OSError, match="no TLS with it"):
        RawClient(guarded.address, older)


def test_a_secure_broker_does_not_speak_to_plain_clients(guarded: RunningBroker) -> None:
    plain = RawClient(guarded.address)
    plain.send(Connect("agent/agent", user="agent/agent"))
    answer = b""
    with suppress(ConnectionResetError):
        while data := plain.socket.recv(1024):
            answer += data
    assert not answer.startswith(bytes((Kind.CONNACK << 4,)))
    plain.drop()


class Eavesdropper:
    """Stands between a participant and the broker, and keeps what it sends."""

    def __init__(self, address: str) -> None:
        self._broker = Address.parse(address)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"mqtts://127.0.0.1:{self._server.getsockname()[1]}"
        self.heard = b""
        self._thread = threading.Thread(target=self._relay)
        self._thread.start()

    def _relay(self) -> None:
        client, _ = self._server.accept()
        with client, socket.create_connection((self._broker.host, self._broker.port)) as broker:
            back = threading.Thread(target=self._pass, args=(broker, client))
            back.start()
            while data := client.recv(65536):
                self.heard += data
                broker.sendall(data)
            broker.shutdown(socket.SHUT_WR)
            back.join()

    def _pass(self, here: socket.socket, there: socket.socket) -> None:
        while data := here.recv(65536):
            there.sendall(data)

    def close(self) -> None:
        self._server.close()
        self._thread.join()


def test_what_was_recorded_cannot_be_sent_again(guarded: RunningBroker, wallet: Wallet) -> None:
    agent = wallet.raw(guarded.address, AGENT).connect("").subscribe(TOPICS.all_workloads)
    between = Eavesdropper(guarded.address)
    sources = wallet.raw(between.address, SOURCES).connect("")
    sources.send(Publish(TOPICS.workload("s-1"), b"once"))
    assert agent.receive() == Publish(TOPICS.workload("s-1"), b"once")
    sources.send(Signal(Kind.DISCONNECT))
    sources.is_closed_by_broker()
    sources.drop()
    between.close()
    assert b"once" not in between.heard
    assert b"workload" not in between.heard
    assert b"s-1" not in between.heard  # nor is the certificate sent in clear
    again = RawClient(guarded.address)
    again.socket.sendall(between.heard)
    assert again.is_closed_by_broker()
    again.drop()
    assert agent.receive_until_fence() == []
    agent.drop()


# --- starting -----------------------------------------------------------------------------------


def test_files_are_for_the_broker_alone(guarded: RunningBroker, wallet: Wallet) -> None:
    where = Path(f"/proc/{guarded.pid}/fd/2").readlink().parent
    files = {path.name: path.stat().st_mode & 0o777 for path in where.iterdir()}
    rules = {"mosquitto": "dynamic-security.json", "builtin": "access.json"}
    assert rules[guarded.kind] in files
    assert set(files.values()) == {0o600}


def test_mosquitto_without_its_plugin(
    wallet: Wallet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mosquitto, "PLUGIN", "not_there.so")
    with pytest.raises(InputError, match=r"comes without not_there.so.* or choose .*`builtin`"):
        wallet.start("mosquitto", tmp_path)
    running = wallet.start("auto", tmp_path)
    assert running.kind == "builtin"
    running.stop()


def test_identities_that_cannot_be_read(wallet: Wallet, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="authority.pem: the identity cannot be read: No such"):
        Relay("mqtts://host", "me", credentials=Credentials(tmp_path), broker_identity=AGENT)
    (tmp_path / "authority.pem").write_bytes(wallet[AGENT].authority.read_bytes())
    (tmp_path / "certificate.pem").write_text("no certificate")
    (tmp_path / "key.pem").write_text("no key")
    with pytest.raises(InputError, match="cannot be read: it is no certificate or key"):
        Relay("mqtts://host", "me", credentials=Credentials(tmp_path), broker_identity=AGENT)
    with pytest.raises(InputError, match="cannot prove who it is: it needs mqtts://"):
        Relay("mqtt://host", "me", credentials=wallet[AGENT], broker_identity=AGENT)
    with pytest.raises(ValueError, match="has to be one of the participants"):
        start_broker("builtin", tmp_path, credentials=wallet[PARTICIPANTS.broker])


def test_brokers_of_others(guarded: RunningBroker, wallet: Wallet, tmp_path: Path) -> None:
    """Ours is no broker that the whole world would trust, and a plain one speaks no TLS."""
    with pytest.raises(SurroundingsError, match="its certificate is not the right one: "):
        start_broker(guarded.address, tmp_path)
    with pytest.raises(SurroundingsError, match="its certificate is not the right one: "):
        run(come_in_as_stranger(guarded.address))
    plain = start_broker("builtin", tmp_path)
    address = plain.address.replace("mqtt:", "mqtts:")
    with pytest.raises(SurroundingsError, match="cannot be reached: no TLS with it: "):
        start_broker(address, tmp_path)
    with pytest.raises(SurroundingsError, match="cannot be reached: no TLS with it: "):
        run(come_in_as_stranger(address))
    plain.stop()


async def come_in_as_stranger(address: str) -> None:
    async with Relay(address, "me"):
        pass
