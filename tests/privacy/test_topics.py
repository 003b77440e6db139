"""Who may do what at the broker: written out by hand, and tried at both brokers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_support import KINDS, STRANGERS, Wallet, run, strangers_to, take

from broker import access, mosquitto
from broker.access import Access, Participants, Rights
from broker.packets import Publish, Suback, Subscribe
from broker.probing import Probe, probe
from broker.starting import RunningBroker, start_broker
from broker.topics import Topics
from fogveil.errors import InputError, SurroundingsError
from fogveil.identity import Credentials, Identity

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
    return strangers_to(wallet, AGENT, tmp_path_factory.mktemp("strangers"))


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
        victim = "sources/s-1" if who == "agent/agent" else "agent/agent"
        assert (who, "displace", victim) in tried
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
            # No ping comes to its help if it does not read on after the SUBACK.
            wallet.relay(guarded.address, CLOUD, keepalive=100) as cloud,
            wallet.relay(guarded.address, FOG_2) as other,
        ):
            other.publish(TOPICS.keys("fog-1"), b"another key", retain=True)
            other.publish(TOPICS.keys("fog-1"), b"", retain=True)
            await other.drained()
            await cloud.subscribe(TOPICS.all_keys)
            return await take(cloud, 1)

    assert run(main()) == [(TOPICS.keys("fog-1"), b"public key")]


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
