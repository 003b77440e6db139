"""Who may do what at the broker: written out by hand, and tried at both brokers."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from broker_support import KINDS, RawClient, Wallet, run, take

from broker import access, mosquitto, tls
from broker.access import Access, Participants, Rights
from broker.address import Address
from broker.builtin import Broker
from broker.client import Relay
from broker.packets import Connack, Connect, Kind, Publish, Signal, Suback, Subscribe
from broker.probing import Probe, probe
from broker.starting import RunningBroker, start_broker
from broker.topics import Topics
from fogveil.errors import InputError, SurroundingsError
from fogveil.identity import Credentials, Identity
from testbed.federated.identities import Mint

RUN = "5eed"
PARTICIPANTS = Participants(RUN, ("s-1", "s-2"), ("fog-1", "fog 2", "fog/3"), "cloud")
AGENT = Identity(RUN, "agent", "agent")
SOURCES, SOURCES_2 = Identity(RUN, "sources", "s-1"), Identity(RUN, "sources", "s-2")
FOG, FOG_2 = Identity(RUN, "provider", "fog-1"), Identity(RUN, "provider", "fog 2")
CLOUD = Identity(RUN, "cloud", "cloud")
AUDITOR, CLOCK = Identity(RUN, "auditor", "auditor"), Identity(RUN, "clock", "clock")
TOPICS = Topics(RUN)

# --- what is expected, by hand ------------------------------------------------------------------

PUBLISH = {
    "agent/agent": "placement/fog-1 placement/fog%202 placement/fog%2F3",
    "sources/s-1": "workload/s-1",
    "sources/s-2": "workload/s-2",
    "provider/fog-1": "aggregate/fog-1 keys/fog-1 feedback/s-1/fog-1 feedback/s-2/fog-1",
    "provider/fog%202": "aggregate/fog%202 keys/fog%202 feedback/s-1/fog%202 feedback/s-2/fog%202",
    "provider/fog%2F3": "aggregate/fog%2F3 keys/fog%2F3 feedback/s-1/fog%2F3 feedback/s-2/fog%2F3",
    "cloud/cloud": "keys/cloud feedback/s-1/cloud feedback/s-2/cloud",
}
SUBSCRIBE = {
    "agent/agent": "workload/+",
    "sources/s-1": "feedback/s-1/+",
    "sources/s-2": "feedback/s-2/+",
    "provider/fog-1": "placement/fog-1 keys/+",
    "provider/fog%202": "placement/fog%202 keys/+",
    "provider/fog%2F3": "placement/fog%2F3 keys/+",
    "cloud/cloud": "aggregate/+ keys/+",
}
KEYS = "keys/fog-1 keys/fog%202 keys/fog%2F3 keys/cloud"
RECEIVE = {
    "agent/agent": "workload/s-1 workload/s-2",
    "sources/s-1": "feedback/s-1/fog-1 feedback/s-1/fog%202 "
    "feedback/s-1/fog%2F3 feedback/s-1/cloud",
    "sources/s-2": "feedback/s-2/fog-1 feedback/s-2/fog%202 "
    "feedback/s-2/fog%2F3 feedback/s-2/cloud",
    "provider/fog-1": f"placement/fog-1 {KEYS}",
    "provider/fog%202": f"placement/fog%202 {KEYS}",
    "provider/fog%2F3": f"placement/fog%2F3 {KEYS}",
    "cloud/cloud": f"aggregate/fog-1 aggregate/fog%202 aggregate/fog%2F3 {KEYS}",
}
IDLE = ("clock/clock", "auditor/auditor")
STRANGERS = ("nobody", "foreign authority", "expired", "not yet valid", "another run")
WIDE = (
    *("#", "+/#", "+/+/+/#", "fogveil/#", "$SYS/#", "$CONTROL/#", "$share/all/#"),
    *(f"fogveil/v1/{RUN}/{rest}" for rest in ("#", "+/+", "placement/+", "feedback/+/+")),
)
FOREIGN = (f"fogveil/v1/{RUN}0/workload/s-1", f"fogveil/v1/{RUN}0/keys/fog-1")

Cell = tuple[str, str, str]


def by_hand() -> set[Cell]:
    cells = {(who, "connect", "") for who in (*PUBLISH, *IDLE)}
    for deed, table in (("subscribe", SUBSCRIBE), ("receive", RECEIVE)):
        cells |= {
            (who, deed, full(topic)) for who, topics in table.items() for topic in topics.split()
        }
    for who, topics in PUBLISH.items():
        cells |= {(who, deed, full(topic)) for topic in topics.split() for deed in PUBLISHING}
    return cells


PUBLISHING = ("publish", "retain", "will")


def full(topic: str) -> str:
    return f"fogveil/v1/{RUN}/{topic}"


def got(rows: list[Probe]) -> set[Cell]:
    return {(row.who, row.deed, row.topic) for row in rows if row.got}


# --- brokers and certificates -------------------------------------------------------------------


@pytest.fixture(scope="module")
def wallet(tmp_path_factory: pytest.TempPathFactory) -> Wallet:
    return Wallet(PARTICIPANTS, tmp_path_factory.mktemp("identities"))


@pytest.fixture(scope="module")
def strangers(
    wallet: Wallet, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Credentials | None]:
    """Those who say that they are the agent, and cannot prove it."""
    folder, now, day = tmp_path_factory.mktemp("strangers"), datetime.now(UTC), timedelta(days=1)
    issue = wallet.mint.issue
    return {
        "nobody": None,
        "foreign authority": Mint(RUN).issue(AGENT, folder / "foreign"),
        "expired": issue(AGENT, folder / "expired", (now - 2 * day, now - day)),
        "not yet valid": issue(AGENT, folder / "early", (now + day, now + 2 * day)),
        "another run": Mint("07e4").issue(Identity("07e4", "agent", "agent"), folder / "other"),
    }


@pytest.fixture(scope="module", params=KINDS)
def guarded(
    request: pytest.FixtureRequest, wallet: Wallet, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBroker]:
    """A broker that knows who is who."""
    running = wallet.start(request.param, tmp_path_factory.mktemp("broker"))
    assert (running.kind, running.identity) == (request.param, PARTICIPANTS.broker)
    yield running
    assert running.alive()
    running.stop()


def try_out(
    running: RunningBroker,
    wallet: Wallet,
    strangers: dict[str, Credentials | None],
    participants: Participants = PARTICIPANTS,
) -> list[Probe]:
    who = (*access.rights(participants), CLOCK, AUDITOR)
    identities = {identity: wallet[identity] for identity in who}
    return run(probe(running.address, participants, identities, strangers), patience=120)


# --- the matrix ---------------------------------------------------------------------------------


def test_every_identity_at_every_topic_in_every_direction(
    guarded: RunningBroker, wallet: Wallet, strangers: dict[str, Credentials | None]
) -> None:
    rows = try_out(guarded, wallet, strangers)
    assert got(rows) == by_hand()
    assert {(row.who, row.deed, row.topic) for row in rows if row.expected} == by_hand()
    tried = {(row.who, row.deed, row.topic) for row in rows}
    topics = {full(topic) for topics in PUBLISH.values() for topic in topics.split()}
    for who in (*PUBLISH, *IDLE, *STRANGERS):
        assert {(who, "subscribe", filter_) for filter_ in (*WIDE, *FOREIGN, *topics)} <= tried
        for deed in ("receive", *PUBLISHING):
            assert {(who, deed, topic) for topic in (*FOREIGN, *topics)} <= tried


FEW = Participants(RUN, ("s-1",), ("fog-1",), "cloud")
FEW_TOPICS = (
    *("workload/s-1", "placement/fog-1", "aggregate/fog-1", "keys/fog-1", "keys/cloud"),
    *("feedback/s-1/fog-1", "feedback/s-1/cloud"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_opened_cell_is_noticed(
    kind: str, wallet: Wallet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The auditor hears everything here, and yet nothing of what others may not publish."""
    closed = access.rights

    def opened(participants: Participants) -> dict[Identity, Rights]:
        table = closed(participants)
        table[AUDITOR] = Rights(subscribe=frozenset({"#", "$SYS/#"}))
        table[AGENT] = Rights(table[AGENT].publish, table[AGENT].subscribe | {full("feedback/+/+")})
        table[CLOUD] = Rights(table[CLOUD].publish | {full("keys/fog-1")}, table[CLOUD].subscribe)
        return table

    with monkeypatch.context() as patch:
        patch.setattr(access, "rights", opened)
        running = wallet.start(kind, tmp_path)
    try:
        rows = try_out(running, wallet, {"nobody": None}, FEW)
    finally:
        running.stop()
    assert {(row.who, row.deed, row.topic) for row in rows if row.got != row.expected} == {
        ("auditor/auditor", "subscribe", "#"),
        ("auditor/auditor", "subscribe", "$SYS/#"),
        *(("auditor/auditor", "receive", full(topic)) for topic in FEW_TOPICS),
        ("agent/agent", "subscribe", full("feedback/+/+")),
        ("agent/agent", "receive", full("feedback/s-1/fog-1")),
        ("agent/agent", "receive", full("feedback/s-1/cloud")),
        *(("cloud/cloud", deed, full("keys/fog-1")) for deed in PUBLISHING),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_without_identities_everybody_may_do_everything(
    kind: str, wallet: Wallet, tmp_path: Path
) -> None:
    running = start_broker(kind, tmp_path, participants=FEW)
    assert running.identity is None
    rows = try_out(running, wallet, {"nobody": None}, FEW)
    running.stop()
    ordinary = [row for row in rows if not row.topic.startswith("$")]
    assert all(row.got for row in ordinary)
    assert not all(row.expected for row in ordinary)


def test_a_broker_that_is_gone_is_no_broker_that_refuses(wallet: Wallet) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"mqtts://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(SurroundingsError, match=f"the broker {address} could not be tried out"):
        run(probe(address, PARTICIPANTS, {AGENT: wallet[AGENT]}))


# --- places -------------------------------------------------------------------------------------


def test_nobody_takes_anothers_place(guarded: RunningBroker, wallet: Wallet) -> None:
    async def main() -> list[tuple[str, bytes]]:
        async with wallet.relay(guarded.address, AGENT) as agent:
            await agent.subscribe(TOPICS.all_workloads)
            for name in ("agent/agent", "agent"):
                thief = wallet.raw(guarded.address, FOG).connect(name, user="agent/agent")
                thief.send(Subscribe(1, ((TOPICS.all_workloads, 0),)))
                assert thief.receive() == Suback(1, b"\x80")
                thief.send(Publish(TOPICS.placement("fog-1"), b"under the agent's name"))
                assert thief.receive_until_fence() == []
                thief.drop()
            async with wallet.relay(guarded.address, SOURCES) as sources:
                sources.publish(TOPICS.workload("s-1"), b"x")
                return await take(agent, 1)

    assert run(main()) == [(TOPICS.workload("s-1"), b"x")]


def test_who_comes_twice_ends_the_first(guarded: RunningBroker, wallet: Wallet) -> None:
    first = wallet.raw(guarded.address, AGENT).connect("one name")
    second = wallet.raw(guarded.address, AGENT).connect("another name")
    assert first.is_closed_by_broker()
    assert second.receive_until_fence() == []
    first.drop()
    second.drop()


def test_a_participant_reads_of_a_refusal_in_a_sentence(
    guarded: RunningBroker, wallet: Wallet
) -> None:
    async def main() -> None:
        async with wallet.relay(guarded.address, FOG) as fog:
            filter_ = TOPICS.placement("fog 2")
            sentence = f"{guarded.address} does not let fog-1 subscribe to {filter_}$"
            with pytest.raises(SurroundingsError, match=sentence):
                await fog.subscribe(TOPICS.placement("fog-1"), filter_)

    run(main())


def test_filter_by_filter(guarded: RunningBroker, wallet: Wallet) -> None:
    client = wallet.raw(guarded.address, FOG).connect("")
    client.send(Subscribe(5, ((TOPICS.placement("fog-1"), 1), ("#", 0), (TOPICS.all_keys, 0))))
    assert client.receive() == Suback(5, bytes((1, 0x80, 0)))
    client.drop()


def test_keys_wait_for_those_who_come_later(guarded: RunningBroker, wallet: Wallet) -> None:
    async def main() -> list[tuple[str, bytes]]:
        async with wallet.relay(guarded.address, FOG) as fog:
            fog.publish(TOPICS.keys("fog-1"), b"public key", retain=True)
            await fog.drained()
        async with (
            wallet.relay(guarded.address, CLOUD) as cloud,
            wallet.relay(guarded.address, FOG_2) as other,
        ):
            other.publish(TOPICS.keys("fog-1"), b"another key", retain=True)
            other.publish(TOPICS.keys("fog-1"), b"", retain=True)
            await other.drained()
            await cloud.subscribe(TOPICS.all_keys)
            return await take(cloud, 1)

    assert run(main()) == [(TOPICS.keys("fog-1"), b"public key")]


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
    named = SimpleNamespace(uri="https://agent", host="agent", common_name="agent/agent")
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


# --- the table ----------------------------------------------------------------------------------


def test_what_is_not_in_the_table_is_refused() -> None:
    table = Access.of(PARTICIPANTS)
    assert table.may(AGENT, "subscribe", TOPICS.all_workloads)
    assert not table.may(None, "subscribe", TOPICS.all_workloads)
    for other in (("07e4", "agent", "agent"), (RUN, "provider", "agent"), (RUN, "agent", "fog-1")):
        assert not table.may(Identity(*other), "subscribe", TOPICS.all_workloads)
    assert not table.may(AGENT, "publish", TOPICS.all_workloads)
    assert not table.may(AGENT, "subscribe", TOPICS.workload("s-1"))


def test_every_topic_has_one_publisher() -> None:
    owners: dict[str, list[Identity]] = {}
    for identity, rights in access.rights(PARTICIPANTS).items():
        for topic in rights.publish:
            owners.setdefault(topic, []).append(identity)
    for topic, found in owners.items():
        assert [owner.name for owner in found] == [TOPICS.sender(topic)]


def test_the_table_survives_a_file(tmp_path: Path) -> None:
    table = Access.of(PARTICIPANTS)
    table.write(tmp_path / "access.json")
    assert Access.read(tmp_path / "access.json").table == table.table
    for wrong in ("", "[]", '{"agent": {}}', '{"spiffe://fogveil/5eed/agent/agent": {}}'):
        (tmp_path / "access.json").write_text(wrong)
        with pytest.raises(InputError, match="is no table of who may do what"):
            Access.read(tmp_path / "access.json")
    with pytest.raises(InputError, match="cannot be read: No such file"):
        Access.read(tmp_path / "nowhere.json")


def test_names_that_certificates_cannot_tell_apart() -> None:
    long = "fog" * 30
    same = Identity(RUN, "provider", long).common_name.partition("/")[2]
    with pytest.raises(InputError, match="cannot be told apart by their certificates"):
        Access.of(Participants(RUN, ("s",), (long, same), "cloud"))


def test_mosquittos_rules_are_the_table() -> None:
    rules: dict[str, Any] = mosquitto.rules(Access.of(PARTICIPANTS))
    assert not any(
        rules["defaultACLAccess"][each]
        for each in ("publishClientSend", "publishClientReceive", "subscribe")
    )
    assert {client["username"]: client["roles"] for client in rules["clients"]} == {
        who: [{"rolename": who}] for who in PUBLISH
    }
    for role in rules["roles"]:
        granted = {
            kind: {rule["topic"] for rule in role["acls"] if rule["acltype"] == kind}
            for kind in ("publishClientSend", "subscribeLiteral", "publishClientReceive")
        }
        filters = {full(filter_) for filter_ in SUBSCRIBE[role["rolename"]].split()}
        assert granted == {
            "publishClientSend": {full(topic) for topic in PUBLISH[role["rolename"]].split()},
            "subscribeLiteral": filters,
            "publishClientReceive": filters,
        }
        assert all(rule["allow"] for rule in role["acls"])


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
