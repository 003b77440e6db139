"""The access control list: written out by hand, and probed at both brokers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_support import KINDS, STRANGERS, CertificateStore, run, strangers_to, take

from fogveil.broker import acl, mosquitto
from fogveil.broker.acl import AccessList, Rights
from fogveil.broker.launcher import RunningBroker, start_broker
from fogveil.broker.mqtt_packets import Publish, Suback, Subscribe
from fogveil.broker.topics import Topics
from fogveil.core.errors import InfrastructureError, InputError
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import Identity, broker_identity
from fogveil.protocol.roster import Roster
from fogveil.testbed.privacy.audit.mqtt_probe import Probe, probe

RUN = "5eed"
ROSTER = Roster(("s-1", "s-2"), ("fog-1", "fog 2", "fog/3"), "cloud")
AGENT = Identity(RUN, "agent", "agent")
SOURCES, SOURCES_2 = Identity(RUN, "sources", "s-1"), Identity(RUN, "sources", "s-2")
FOG, FOG_2 = Identity(RUN, "provider", "fog-1"), Identity(RUN, "provider", "fog 2")
CLOUD = Identity(RUN, "cloud", "cloud")
AUDITOR, CLOCK = Identity(RUN, "auditor", "auditor"), Identity(RUN, "clock", "clock")
TOPICS = Topics(RUN)

# --- the expected rights, by hand ---------------------------------------------------------------

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
    for operation, table in (("subscribe", SUBSCRIBE), ("receive", RECEIVE)):
        cells |= {
            (who, operation, full(topic))
            for who, topics in table.items()
            for topic in topics.split()
        }
    for who, topics in PUBLISH.items():
        cells |= {
            (who, operation, full(topic)) for topic in topics.split() for operation in PUBLISHING
        }
    return cells


PUBLISHING = ("publish", "retain", "will")


def full(topic: str) -> str:
    return f"fogveil/v1/{RUN}/{topic}"


def cell(row: Probe) -> Cell:
    return row.client, row.operation, row.topic


# --- brokers and certificates -------------------------------------------------------------------


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
    assert (running.kind, running.identity) == (request.param, broker_identity(RUN))
    yield running
    assert running.alive()
    running.stop()


def run_probe(
    running: RunningBroker,
    store: CertificateStore,
    strangers: dict[str, Credentials | None],
    roster: Roster = ROSTER,
) -> list[Probe]:
    identities = (*acl.rights(RUN, roster), CLOCK, AUDITOR)
    credentials = {identity: store[identity] for identity in identities}
    return run(probe(running.address, RUN, roster, credentials, strangers), timeout=120)


# --- the matrix ---------------------------------------------------------------------------------


def test_every_identity_at_every_topic_in_every_direction(
    broker: RunningBroker, store: CertificateStore, strangers: dict[str, Credentials | None]
) -> None:
    rows = run_probe(broker, store, strangers)
    assert {cell(row) for row in rows if row.allowed} == by_hand()
    assert {cell(row) for row in rows if row.expected} == by_hand()
    tried = set(map(cell, rows))
    topics = {full(topic) for topics in PUBLISH.values() for topic in topics.split()}
    for who in (*PUBLISH, *IDLE, *STRANGERS):
        victim = "sources/s-1" if who == "agent/agent" else "agent/agent"
        assert (who, "displace", victim) in tried
        assert {(who, "subscribe", filter_) for filter_ in (*WIDE, *FOREIGN, *topics)} <= tried
        for operation in ("receive", *PUBLISHING):
            assert {(who, operation, topic) for topic in (*FOREIGN, *topics)} <= tried


FEW = Roster(("s-1",), ("fog-1",), "cloud")
FEW_TOPICS = (
    *("workload/s-1", "placement/fog-1", "aggregate/fog-1", "keys/fog-1", "keys/cloud"),
    *("feedback/s-1/fog-1", "feedback/s-1/cloud"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_additional_right_is_detected(
    kind: str, store: CertificateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The auditor receives everything here, but nothing that others may not publish."""
    rights = acl.rights

    def more_rights(run: str, roster: Roster) -> dict[Identity, Rights]:
        table = rights(run, roster)
        table[AUDITOR] = Rights(subscribe=frozenset({"#", "$SYS/#"}))
        table[AGENT] = Rights(table[AGENT].publish, table[AGENT].subscribe | {full("feedback/+/+")})
        table[CLOUD] = Rights(table[CLOUD].publish | {full("keys/fog-1")}, table[CLOUD].subscribe)
        return table

    with monkeypatch.context() as patch:
        patch.setattr(acl, "rights", more_rights)
        running = store.start(kind, tmp_path)
    try:
        rows = run_probe(running, store, {"nobody": None}, FEW)
    finally:
        running.stop()
    assert {cell(row) for row in rows if row.allowed != row.expected} == {
        ("auditor/auditor", "subscribe", "#"),
        ("auditor/auditor", "subscribe", "$SYS/#"),
        *(("auditor/auditor", "receive", full(topic)) for topic in FEW_TOPICS),
        ("agent/agent", "subscribe", full("feedback/+/+")),
        ("agent/agent", "receive", full("feedback/s-1/fog-1")),
        ("agent/agent", "receive", full("feedback/s-1/cloud")),
        *(("cloud/cloud", operation, full("keys/fog-1")) for operation in PUBLISHING),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_without_identities_everybody_may_do_everything(
    kind: str, store: CertificateStore, tmp_path: Path
) -> None:
    running = start_broker(kind, tmp_path)
    assert running.identity is None
    rows = run_probe(running, store, {"nobody": None}, FEW)
    running.stop()
    ordinary = [row for row in rows if not row.topic.startswith("$")]
    assert all(row.allowed for row in ordinary)
    assert not all(row.expected for row in ordinary)


def test_a_broker_that_is_down_does_not_count_as_one_that_refuses(store: CertificateStore) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"mqtts://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(InfrastructureError, match=f"the broker {address} could not be probed"):
        run(probe(address, RUN, ROSTER, {AGENT: store[AGENT]}))


# --- client ids ---------------------------------------------------------------------------------


def test_no_client_takes_over_the_connection_of_another(
    broker: RunningBroker, store: CertificateStore
) -> None:
    async def main() -> list[tuple[str, bytes]]:
        async with store.client(broker.address, AGENT) as agent:
            await agent.subscribe(TOPICS.all_workloads)
            for name in ("agent/agent", "agent"):
                thief = store.raw(broker.address, FOG).connect(name, user="agent/agent")
                thief.send(Subscribe(1, ((TOPICS.all_workloads, 0),)))
                assert thief.receive() == Suback(1, b"\x80")
                thief.send(Publish(TOPICS.placement("fog-1"), b"under the agent's name"))
                assert thief.receive_until_pong() == []
                thief.drop()
            async with store.client(broker.address, SOURCES) as sources:
                sources.publish(TOPICS.workload("s-1"), b"x")
                return await take(agent, 1)

    assert run(main()) == [(TOPICS.workload("s-1"), b"x")]


def test_a_second_connection_of_an_identity_closes_the_first(
    broker: RunningBroker, store: CertificateStore
) -> None:
    first = store.raw(broker.address, AGENT).connect("one name")
    second = store.raw(broker.address, AGENT).connect("another name")
    assert first.is_closed_by_broker()
    assert second.receive_until_pong() == []
    first.drop()
    second.drop()


def test_a_refused_subscription_raises_one_sentence(
    broker: RunningBroker, store: CertificateStore
) -> None:
    async def main() -> None:
        async with store.client(broker.address, FOG) as fog:
            filter_ = TOPICS.placement("fog 2")
            sentence = f"{broker.address} does not let fog-1 subscribe to {filter_}$"
            with pytest.raises(InfrastructureError, match=sentence):
                await fog.subscribe(TOPICS.placement("fog-1"), filter_)

    run(main())


def test_filters_of_one_request_are_granted_one_by_one(
    broker: RunningBroker, store: CertificateStore
) -> None:
    client = store.raw(broker.address, FOG).connect("")
    client.send(Subscribe(5, ((TOPICS.placement("fog-1"), 1), ("#", 0), (TOPICS.all_keys, 0))))
    assert client.receive() == Suback(5, bytes((1, 0x80, 0)))
    client.drop()


def test_keys_are_retained_for_later_subscribers(
    broker: RunningBroker, store: CertificateStore
) -> None:
    async def main() -> list[tuple[str, bytes]]:
        async with store.client(broker.address, FOG) as fog:
            fog.publish(TOPICS.keys("fog-1"), b"public key", retain=True)
            await fog.drain()
        async with (
            # No heartbeat makes it read on if it stops after the SUBACK.
            store.client(broker.address, CLOUD, keepalive=100) as cloud,
            store.client(broker.address, FOG_2) as other,
        ):
            other.publish(TOPICS.keys("fog-1"), b"another key", retain=True)
            other.publish(TOPICS.keys("fog-1"), b"", retain=True)
            await other.drain()
            await cloud.subscribe(TOPICS.all_keys)
            return await take(cloud, 1)

    assert run(main()) == [(TOPICS.keys("fog-1"), b"public key")]


# --- the table ----------------------------------------------------------------------------------


def test_what_is_not_listed_is_refused() -> None:
    access = AccessList.for_run(RUN, ROSTER)
    assert access.allows(AGENT, "subscribe", TOPICS.all_workloads)
    assert not access.allows(None, "subscribe", TOPICS.all_workloads)
    for other in (("07e4", "agent", "agent"), (RUN, "provider", "agent"), (RUN, "agent", "fog-1")):
        assert not access.allows(Identity(*other), "subscribe", TOPICS.all_workloads)
    assert not access.allows(AGENT, "publish", TOPICS.all_workloads)
    assert not access.allows(AGENT, "subscribe", TOPICS.workload("s-1"))


def test_every_topic_has_one_publisher() -> None:
    owners: dict[str, list[Identity]] = {}
    for identity, rights in acl.rights(RUN, ROSTER).items():
        for topic in rights.publish:
            owners.setdefault(topic, []).append(identity)
    for topic, identities in owners.items():
        assert [identity.name for identity in identities] == [TOPICS.sender(topic)]


def test_the_list_can_be_written_and_read(tmp_path: Path) -> None:
    access = AccessList.for_run(RUN, ROSTER)
    access.write(tmp_path / "access.json")
    assert AccessList.read(tmp_path / "access.json").table == access.table
    for wrong in ("", "[]", '{"agent": {}}', '{"spiffe://fogveil/5eed/agent/agent": {}}'):
        (tmp_path / "access.json").write_text(wrong)
        with pytest.raises(InputError, match="is not an access control list"):
            AccessList.read(tmp_path / "access.json")
    with pytest.raises(InputError, match="cannot be read: No such file"):
        AccessList.read(tmp_path / "nowhere.json")


def test_names_that_are_equal_in_certificates_are_refused() -> None:
    long = "fog" * 30
    same = Identity(RUN, "provider", long).common_name.partition("/")[2]
    with pytest.raises(InputError, match="have the same name in their certificates"):
        AccessList.for_run(RUN, Roster(("s",), (long, same), "cloud"))


def test_the_rules_of_mosquitto_are_those_of_the_list() -> None:
    rules: dict[str, Any] = mosquitto.rules(AccessList.for_run(RUN, ROSTER))
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
