"""Who is refused what: every identity at every method and topic, and those without a good one."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from grpc import aio

from broker.access import Participants
from broker.probing import Probe, probe
from broker.routing import matches
from broker.starting import start_broker
from broker.topics import Topics
from fogveil.channels import OPTIONS, PROTOCOL
from fogveil.identity import (
    AGENT,
    AUDITOR,
    BROKER,
    CLOCK,
    CLOUD,
    PROVIDER,
    SOURCES,
    Credentials,
    Identity,
)
from fogveil.v1.clock_pb2 import Hello, JoinRequest
from testbed.audit.canaries import seek
from testbed.audit.findings import Finding, judge
from testbed.audit.stage import secrets_of
from testbed.federated.identities import Mint
from testbed.federated.launch import RelayingBroker, Testbed
from testbed.world import World

PATIENCE = 1.0
"""Seconds after which a stream that says nothing is taken as open."""
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
METHODS = (
    "/fogveil.v1.QueueService/Watch",
    "/fogveil.v1.TotalService/Watch",
    "/fogveil.v1.ResourcesService/Look",
    "/fogveil.v1.ClockService/Join",
    REFLECTION,
    "/grpc.health.v1.Health/Check",
    "/grpc.channelz.v1.Channelz/GetServers",
    "/fogveil.v1.QueueService/Other",
)
SERVED = {
    "count": ("/fogveil.v1.QueueService/Watch",),
    "total": ("/fogveil.v1.TotalService/Watch",),
    "full": ("/fogveil.v1.QueueService/Watch", "/fogveil.v1.ResourcesService/Look"),
}
"""What a provider serves the agent, by level: said here once more, not taken from the product."""
ANSWERS = "answers"


@dataclass(frozen=True)
class Caller:
    """Somebody who tries to call: with an identity, or without a good one."""

    name: str
    credentials: Credentials | None
    role: str | None
    """The role of a good identity of this run."""


class Cell(NamedTuple):
    """One try."""

    caller: str
    server: str
    method: str
    expected: bool
    got: str
    text: str = ""
    """What was said beside it."""

    @property
    def wrong(self) -> bool:
        """Whether it went otherwise than promised."""
        return self.expected != (self.got == ANSWERS)


def callers(testbed: Testbed, folder: Path) -> list[Caller]:
    """Mint identities of every role, and such as must be refused by everybody."""
    run, seats = testbed.run, testbed.split.seats
    good = {
        AGENT: AGENT,
        seats.fogs[-1]: PROVIDER,
        seats.cloud: CLOUD,
        seats.sources[0]: SOURCES,
        CLOCK: CLOCK,
        BROKER: BROKER,
        "auditor": AUDITOR,
    }
    found = [
        Caller(name, testbed.split.identify(name, role, folder / f"good-{number}"), role)
        for number, (name, role) in enumerate(good.items())
    ]
    now = datetime.now(UTC)
    past = now - timedelta(days=3), now - timedelta(days=1)
    agent = Identity(run, AGENT, AGENT)
    mint = testbed.split.mint
    assert mint is not None
    found += [
        Caller("no certificate", None, None),
        Caller("a foreign authority's agent", _foreign(agent, folder / "foreign", mint), None),
        Caller("an expired agent", mint.issue(agent, folder / "expired", past), None),
        Caller(
            "the agent of another run",
            _foreign(Identity("0" * 32, AGENT, AGENT), folder / "other", mint),
            None,
        ),
    ]
    return found


def _foreign(identity: Identity, folder: Path, ours: Mint) -> Credentials:
    """Issue by another authority; who shows it trusts ours, and so gets as far as it can."""
    made = Mint(identity.run).issue(identity, folder)
    trusted = ours.issue(replace(identity, run=ours.run), folder / "trusted")
    shutil.copy(trusted.authority, made.authority)
    return made


def promised(caller: Caller, server: str, method: str, level: str) -> bool:
    """Say what the docs promise, apart from the table that the product uses."""
    if caller.role is None:
        return False
    if server == CLOCK:
        joins = caller.role in (AGENT, PROVIDER, CLOUD, SOURCES)
        return joins and method == "/fogveil.v1.ClockService/Join"
    if method == REFLECTION:
        return caller.role == AUDITOR
    return caller.role == AGENT and method in SERVED.get(level, ())


async def try_methods(testbed: Testbed, level: str, folder: Path) -> list[Cell]:
    """Let everybody call everything at a provider, the Cloud and the clock."""
    seats = testbed.split.seats
    servers = {name: testbed.addresses[name] for name in (seats.fogs[0], seats.cloud, CLOCK)}
    cells = []
    for caller in callers(testbed, folder):
        for server, address in servers.items():
            role = {CLOCK: CLOCK, seats.cloud: CLOUD}.get(server, PROVIDER)
            host = Identity(testbed.run, role, server).host
            async with _channel(caller, address, host) as channel:
                for method in METHODS:
                    got, text = await _try(channel, method)
                    expected = promised(caller, server, method, level)
                    cells.append(Cell(caller.name, server, method, expected, got, text))
    return cells


def _channel(caller: Caller, address: str, host: str) -> aio.Channel:
    options = [*OPTIONS, ("grpc.ssl_target_name_override", host)]
    if caller.credentials is None:
        return aio.insecure_channel(address, options=OPTIONS)
    return aio.secure_channel(address, caller.credentials.for_channel(), options=options)


async def _try(channel: aio.Channel, method: str) -> tuple[str, str]:
    """Return how a call is answered, by `ANSWERS` or by the name of a status; and what is said."""
    raw: Any = bytes
    # To the clock it names another run: whoever passes the gate is refused for that.
    wrong = JoinRequest(hello=Hello(name="nobody", protocol=PROTOCOL, run="none"))
    request = wrong.SerializeToString() if method.endswith("/Join") else b""
    call = channel.unary_stream(method, request_serializer=raw, response_deserializer=raw)(request)
    try:
        async with asyncio.timeout(PATIENCE):
            await call.read()
    except TimeoutError:
        return ANSWERS, ""
    except aio.AioRpcError as error:
        passed = error.code() is grpc.StatusCode.FAILED_PRECONDITION and method.endswith("/Join")
        text = f"{error.details()} {list(error.trailing_metadata() or ())}"
        return ANSWERS if passed else error.code().name, text
    finally:
        call.cancel()
    return ANSWERS, ""


async def try_false_name(testbed: Testbed, folder: Path) -> str:
    """Join the clock as the agent does, under the name of a provider; return what it says."""
    credentials = testbed.split.identify(AGENT, AGENT, folder / "liar")
    victim = testbed.split.seats.fogs[0]
    hello = Hello(name=victim, protocol=PROTOCOL, run=testbed.run)
    caller = Caller(AGENT, credentials, AGENT)
    host = Identity(testbed.run, CLOCK, CLOCK).host
    raw: Any = bytes
    async with _channel(caller, testbed.addresses[CLOCK], host) as channel:
        call = channel.unary_stream(
            "/fogveil.v1.ClockService/Join", request_serializer=raw, response_deserializer=raw
        )(JoinRequest(hello=hello).SerializeToString())
        try:
            async with asyncio.timeout(PATIENCE):
                await call.read()
        except TimeoutError:
            return ANSWERS
        except aio.AioRpcError as error:
            return error.details() or error.code().name
    return ANSWERS


def check_methods(testbed: Testbed, world: World) -> Finding:
    """Try every identity at every method of a testbed that waits for its agent."""
    with tempfile.TemporaryDirectory(prefix="fogveil-audit-") as place:
        cells = asyncio.run(try_methods(testbed, world.scenario.disclosure, Path(place)))
        lie = asyncio.run(try_false_name(testbed, Path(place)))
    faults = [
        f"{cell.caller} at {cell.method} of {cell.server}: {cell.got}, expected "
        f"{ANSWERS if cell.expected else 'a refusal'}"
        for cell in cells
        if cell.wrong
    ]
    if "says that it is" not in lie:
        faults.append(f"the agent joined the clock as {testbed.split.seats.fogs[0]}: {lie}")
    texts = [(f"the error text of {c.method} to {c.caller}", c.text.encode()) for c in cells]
    faults += seek(secrets_of(world), texts)
    allowed = sum(cell.expected for cell in cells)
    evidence = (
        f"{len(cells)} calls by {len({cell.caller for cell in cells})} callers: {allowed} answered "
        f"as promised, {len(cells) - allowed} refused; a false name at the clock is refused"
    )
    details = tuple(f"{c.caller} · {c.server} · {c.method} · {c.got}" for c in cells)
    return judge("refusals: identity × method", evidence, faults, len(cells), details=details)


# --- MQTT --------------------------------------------------------------------------------------


def topic_promised(participants: Participants, who: Identity | None, tried: Probe) -> bool:
    """Say what the docs promise of topics, apart from the table that the product uses."""
    if who is None or who.run != participants.run:
        return False
    if tried.deed == "connect":
        return True
    topics = Topics(participants.run)
    publish: set[str] = set()
    subscribe: set[str] = set()
    if who.role == AGENT:
        publish = {topics.placement(fog) for fog in participants.fogs}
        subscribe = {topics.all_workloads}
    elif who.role == SOURCES:
        publish, subscribe = {topics.workload(who.name)}, {topics.all_feedback(who.name)}
    elif who.role in (PROVIDER, CLOUD):
        publish = {topics.feedback(owner, who.name) for owner in participants.sources}
        publish.add(topics.keys(who.name))
        subscribe = {topics.all_keys}
        if who.role == CLOUD:
            subscribe.add(topics.all_aggregates)
        else:
            publish.add(topics.aggregate(who.name))
            subscribe.add(topics.placement(who.name))
    if tried.deed in ("publish", "retain", "will"):
        return tried.topic in publish
    return any(tried.topic == known or matches(known, tried.topic) for known in subscribe)


@contextmanager
def _broker(
    choice: str, folder: Path, own: Credentials, participants: Participants, *, contained: bool
) -> Iterator[RelayingBroker]:
    """Start a broker as a run would, and end it."""
    if contained:
        from testbed.containers.standing import standing_broker

        shutil.copytree(own.folder, folder / "broker" / "identity")
        with standing_broker(choice, folder / "broker", own, participants) as standing:
            yield standing
        return
    running = start_broker(choice, folder / "broker", credentials=own, participants=participants)
    try:
        yield running
    finally:
        running.stop()


def check_topics(broker: str, *, contained: bool = False) -> Finding:
    """Try every identity at every topic of a broker that is set up as a run's is."""
    run = "a" * 32
    participants = Participants(run, ("sources-1", "sources-2"), ("fog-1", "fog-2"), "cloud")
    with tempfile.TemporaryDirectory(prefix="fogveil-audit-") as place:
        folder = Path(place)
        mint = Mint(run)
        own = mint.issue(participants.broker, folder / "identity")
        (folder / "broker").mkdir(mode=0o700)
        identities = [
            Identity(run, AGENT, AGENT),
            *(Identity(run, SOURCES, name) for name in participants.sources),
            *(Identity(run, PROVIDER, name) for name in participants.fogs),
            Identity(run, CLOUD, participants.cloud),
            Identity(run, CLOCK, CLOCK),
            Identity(run, AUDITOR, "auditor"),
        ]
        known = {
            identity: mint.issue(identity, folder / f"known-{number}")
            for number, identity in enumerate(identities)
        }
        now = datetime.now(UTC)
        past = now - timedelta(days=3), now - timedelta(days=1)
        agent = identities[0]
        strangers: Mapping[str, Credentials | None] = {
            "no certificate": None,
            "a foreign authority's agent": _foreign(agent, folder / "foreign", mint),
            "an expired agent": mint.issue(agent, folder / "expired", past),
        }
        with _broker(broker, folder, own, participants, contained=contained) as running:
            tried = asyncio.run(probe(running.address, participants, known, strangers))
    by_name = {identity.common_name: identity for identity in identities}
    faults = []
    for each in tried:
        expected = topic_promised(participants, by_name.get(each.who), each)
        # A filter narrower than one's own may be refused: nobody needs it.
        if each.got and not expected:
            faults.append(f"{each.who} may {each.deed} {each.topic or 'here'}")
        elif each.expected and not each.got:
            faults.append(f"{each.who} may not {each.deed} {each.topic or 'here'}, and should")
    got = sum(each.got for each in tried)
    evidence = (
        f"{len(tried):,} tries at {running.kind} (subscribe, publish, receive, retain, will): "
        f"{got} let through as promised, the others refused"
    )
    return judge("refusals: identity × topic × direction", evidence, faults, len(tried))
