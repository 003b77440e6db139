"""Probe a broker's access control: every client at every topic, in both directions.

Every client also gives the user name and the client id of another participant, so the results hold
for clients that claim another's name.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from fogveil.broker import tls
from fogveil.broker.acl import AccessList
from fogveil.broker.address import Address
from fogveil.broker.mqtt_packets import (
    REFUSED,
    Acknowledgement,
    Connack,
    Connect,
    EmptyPacket,
    Framer,
    Packet,
    PacketType,
    ProtocolError,
    Publish,
    ReturnCode,
    Suback,
    Subscribe,
    decode,
    encode,
)
from fogveil.broker.routing import matches
from fogveil.broker.topics import Topics
from fogveil.core.errors import InfrastructureError
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import AGENT, Identity, broker_identity
from fogveil.protocol.roster import Roster

Operation = Literal["connect", "subscribe", "publish", "receive", "retain", "will", "displace"]
TIMEOUT = 60.0
"""Seconds to wait for an answer."""
KEEPALIVE = 120


@dataclass(frozen=True, slots=True)
class Probe:
    """One attempted operation, with its expected and its observed outcome.

    A message counts as published (retained, left as a will) if it reached any client at all: every
    client has tried to subscribe to everything before, and would receive what it must not.
    """

    client: str
    """An identity's common name, or what is wrong with a stranger's certificate."""
    operation: Operation
    topic: str
    """A topic, a filter, the client to displace, or empty."""
    expected: bool
    """Whether the access control list allows it."""
    allowed: bool
    """Whether the broker did."""


def topics_to_try(run: str, roster: Roster) -> list[str]:
    """Return every topic of the run, similar ones, another run's, and the broker's own."""
    ours, others = Topics(run), Topics(f"{run}0")
    sources, fogs = roster.sources, roster.fogs
    providers = (*fogs, roster.cloud)
    return [
        *map(ours.workload, (*sources, fogs[0])),
        *map(ours.placement, (*providers, sources[0])),
        *map(ours.aggregate, (*providers, AGENT)),
        *map(ours.keys, (*providers, AGENT)),
        *(ours.feedback(owner, name) for owner in sources for name in (*providers, AGENT)),
        others.workload(sources[0]),
        others.keys(fogs[0]),
        *(f"fogveil/v1/{run}", "anything"),
        *("$SYS/broker/uptime", "$CONTROL/dynamic-security/v1"),
    ]


def filters_to_try(run: str, roster: Roster) -> list[str]:
    """Return the filters of the run, wider ones, and every topic as a filter."""
    topics = Topics(run)
    others = (*roster.fogs, roster.cloud, AGENT)
    return [
        *(topics.all_workloads, topics.all_aggregates, topics.all_keys),
        *map(topics.all_feedback, (*roster.sources, *others)),
        *("#", "+/#", "/#", "+/+/+/#", "+/+/+/+/+", "fogveil/#", "fogveil/v1/+/keys/+"),
        *(f"fogveil/v1/{run}/{rest}" for rest in ("#", "+/+", "+/+/+", "placement/+", "keys/#")),
        *(f"fogveil/v1/{run}/feedback/{rest}" for rest in ("#", "+/+")),
        *("$SYS/#", "$CONTROL/#", "$share/all/#", f"$share/all/{topics.all_workloads}"),
        *topics_to_try(run, roster),
    ]


async def probe(
    address: str,
    run: str,
    roster: Roster,
    credentials_of: Mapping[Identity, Credentials],
    strangers: Mapping[str, Credentials | None] | None = None,
) -> list[Probe]:
    """Try every operation at the broker of a run, as each identity and as each stranger.

    Strangers have no certificate or one that is not of the run, and must not be able to connect.
    Each client displaces the participant with the same certificate, so this is not for a broker
    that is relaying a run.
    """
    session = _Session(Address.parse(address), run, roster, credentials_of, strangers or {})
    try:
        return await session.run()
    except (TimeoutError, OSError, ProtocolError) as error:
        reason = str(error) or f"no answer within {TIMEOUT:g} s"
        raise InfrastructureError(
            f"the broker {session.address} could not be probed: {reason}"
        ) from error


class _Session:
    """All operations of all clients at one broker."""

    def __init__(
        self,
        address: Address,
        run: str,
        roster: Roster,
        credentials_of: Mapping[Identity, Credentials],
        strangers: Mapping[str, Credentials | None],
    ) -> None:
        self.address = address
        self._topics = topics_to_try(run, roster)
        self._filters = filters_to_try(run, roster)
        identities = {identity.common_name: identity for identity in credentials_of}
        self._expected = _Expectation(AccessList.for_run(run, roster), identities)
        broker = broker_identity(run)
        # A stranger trusts the broker that it attacks, whoever issued the stranger's certificate.
        authority = next(iter(credentials_of.values())).authority
        credentials: dict[str, Credentials | None] = {
            name: credentials_of[identity] for name, identity in identities.items()
        }
        credentials |= strangers
        self._strangers = strangers.keys()
        self._names = names = list(credentials)
        self._connectors = {
            name: _Connector(
                address,
                broker.host,
                tls.client_context(broker, credentials[name], authority),
                claimed_name=names[index - 1],
            )
            for index, name in enumerate(names)
        }
        self._clients: dict[str, _Client] = {}
        """Those that could connect."""
        self._allowed: set[tuple[str, Operation, str]] = set()
        self._token = os.urandom(8).hex()

    async def run(self) -> list[Probe]:
        try:
            for name, connector in self._connectors.items():
                client = await connector.connect()
                if client is not None:
                    self._clients[name] = client
                    self._allowed.add((name, "connect", ""))
            if self._strangers & self._clients.keys():  # they may have displaced the others
                return self._results(lambda _name: [("connect", "")])
            await self._try_subscribe()
            await self._try_publish()
            await self._try_retain()
            for name in self._clients:
                await self._try_wills(name)
            for name in self._clients:
                await self._try_displace(name, self._victim(name))
        finally:
            for client in self._clients.values():
                await client.close()
        return self._results(self._operations)

    def _results(self, operations: Callable[[str], Iterable[tuple[Operation, str]]]) -> list[Probe]:
        return [
            Probe(
                name,
                operation,
                topic,
                expected=self._expected(name, operation, topic),
                allowed=(name, operation, topic) in self._allowed,
            )
            for name in self._names
            for operation, topic in operations(name)
        ]

    def _operations(self, name: str) -> Iterable[tuple[Operation, str]]:
        yield "connect", ""
        yield "displace", self._victim(name)
        for filter_ in self._filters:
            yield "subscribe", filter_
        for topic in self._topics:
            yield "publish", topic
            yield "receive", topic
            yield "retain", topic
            yield "will", topic

    async def _try_subscribe(self) -> None:
        for name, client in self._clients.items():
            codes = await client.subscribe(self._filters)
            for filter_, code in zip(self._filters, codes, strict=True):
                if code < REFUSED:
                    self._allowed.add((name, "subscribe", filter_))

    async def _try_publish(self) -> None:
        for name, client in self._clients.items():
            await client.publish(self._topics, self._payload(name))
        for receiver, message in await self._received():
            self._allowed.add((self._sender(message), "publish", message.topic))
            self._allowed.add((receiver, "receive", message.topic))

    async def _try_retain(self) -> None:
        for name, client in self._clients.items():
            await client.publish(self._topics, self._payload(name), retain=True)
            await self._collect_retained("retain")
            await client.publish(self._topics, b"", retain=True)  # deletes the retained message
        await self._received()

    async def _try_wills(self, name: str) -> None:
        """Lose a client once for each topic.

        A client that reconnects displaces its former connection, and the broker publishes the will
        of that. The wills are retained, so that the client itself can receive its own.
        """
        payload = self._payload(name)
        wills = [Publish(topic, payload, retain=True) for topic in self._topics]
        for will in (*wills, None):
            await self._reconnect(name, will)
        await self._collect_retained("will")
        await self._clients[name].publish(self._topics, b"", retain=True)

    async def _try_displace(self, name: str, victim: str) -> None:
        """Reconnect under the names that another client has given; brokers close the former."""
        for claimed_name in (victim, self._connectors[victim].claimed_name):
            await self._reconnect(name, claimed_name=claimed_name)
        try:
            await self._clients[victim].received()
        except (ssl.SSLError, ConnectionError):
            self._allowed.add((name, "displace", victim))
            await self._reconnect(victim)

    def _victim(self, name: str) -> str:
        return next(other for other in self._names if other != name)

    async def _reconnect(
        self, name: str, will: Publish | None = None, claimed_name: str | None = None
    ) -> None:
        client = await self._connectors[name].connect(will, claimed_name)
        if client is None:
            raise ConnectionError(f"it does not let {name} reconnect")
        former, self._clients[name] = self._clients[name], client
        await former.close()

    async def _collect_retained(self, operation: Operation) -> None:
        """Subscribe with all clients again, which delivers the retained messages."""
        await self._received()
        for client in self._clients.values():
            await client.subscribe(self._filters)
        for _, message in await self._received():
            self._allowed.add((self._sender(message), operation, message.topic))

    async def _received(self) -> list[tuple[str, Publish]]:
        """Return the messages received since the last call, each with its receiver."""
        return [
            (name, message)
            for name, client in self._clients.items()
            for message in await client.received()
            if message.payload.startswith(self._token.encode())
        ]

    def _payload(self, name: str) -> bytes:
        return f"{self._token} {name}".encode()

    def _sender(self, message: Publish) -> str:
        return message.payload.decode().partition(" ")[2]


class _Expectation:
    """What the access control list allows, by a client's name."""

    def __init__(self, access: AccessList, identities: Mapping[str, Identity]) -> None:
        self._access = access
        self._identities = identities
        self._published = {topic for rights in access.table.values() for topic in rights.publish}

    def __call__(self, name: str, operation: Operation, topic: str) -> bool:
        identity = self._identities.get(name)
        if identity is None:
            return False
        if operation == "connect":
            return True
        if operation == "subscribe":
            return self._access.allows(identity, "subscribe", topic)
        if operation == "receive":
            rights = self._access.table.get(identity)
            return topic in self._published and any(
                matches(filter_, topic) for filter_ in (rights.subscribe if rights else ())
            )
        return self._access.allows(identity, "publish", topic)


@dataclass(frozen=True, slots=True)
class _Connector:
    """Connects a client, with or without a certificate, under a false name."""

    address: Address
    expected_host: str
    context: ssl.SSLContext
    claimed_name: str

    async def connect(
        self, will: Publish | None = None, claimed_name: str | None = None
    ) -> _Client | None:
        """Return a connected client; None where the broker refuses it."""
        secure = self.address.tls
        try:
            async with asyncio.timeout(TIMEOUT):
                reader, writer = await asyncio.open_connection(
                    self.address.host,
                    self.address.port,
                    ssl=self.context if secure else None,
                    server_hostname=self.expected_host if secure else None,
                )
        except ssl.SSLCertVerificationError as error:
            raise OSError(tls.describe(error)) from error  # it is not the broker to be probed
        except (ssl.SSLError, ConnectionResetError):
            return None
        client = _Client(reader, writer)
        accepted = False
        try:
            accepted = await client.connect(claimed_name or self.claimed_name, will)
        finally:
            if not accepted:
                await client.close()
        return client if accepted else None


class _Client:
    """An MQTT client that sends requests and returns their answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._framer = Framer()
        self._answers: list[Packet] = []
        self._messages: list[Publish] = []

    async def connect(self, claimed_name: str, will: Publish | None) -> bool:
        """Send CONNECT, and return whether the broker accepts it."""
        try:
            self._send(Connect(claimed_name, KEEPALIVE, user=claimed_name, password=b"", will=will))
            answer = await self._answer()
        except (ssl.SSLError, ConnectionError):
            return False  # under TLS 1.3 a certificate is refused after the handshake
        return isinstance(answer, Connack) and answer.code == ReturnCode.ACCEPTED

    async def close(self) -> None:
        """Close the connection without a DISCONNECT."""
        self._writer.transport.abort()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def subscribe(self, filters: list[str]) -> bytes:
        """Return the return code of each filter."""
        self._send(Subscribe(1, tuple((filter_, 0) for filter_ in filters)))
        answer = await self._answer()
        if not isinstance(answer, Suback):
            raise ProtocolError(f"{answer} is not an answer to a SUBSCRIBE")
        return answer.codes

    async def publish(self, topics: list[str], payload: bytes, *, retain: bool = False) -> None:
        """Publish to each topic, and wait until the broker has handled the messages."""
        for packet_id, topic in enumerate(topics, 1):
            self._send(Publish(topic, payload, 1, retain, packet_id=packet_id))
        for packet_id in range(1, len(topics) + 1):
            if await self._answer() != Acknowledgement(PacketType.PUBACK, packet_id):
                raise ProtocolError("a message was not acknowledged")

    async def received(self) -> list[Publish]:
        """Return the messages received since the last call.

        The answer to a ping comes after all messages that the broker has sent before.
        """
        self._send(EmptyPacket(PacketType.PINGREQ))
        await self._answer()
        messages, self._messages = self._messages, []
        return messages

    def _send(self, packet: Packet) -> None:
        self._writer.write(encode(packet))

    async def _answer(self) -> Packet:
        while not self._answers:
            async with asyncio.timeout(TIMEOUT):
                data = await self._reader.read(65536)
            if not data:
                raise ConnectionResetError("it closed the connection")
            for header, body in self._framer.feed(data):
                packet = decode(header, body)
                if isinstance(packet, Publish):
                    self._messages.append(packet)
                else:
                    self._answers.append(packet)
        return self._answers.pop(0)
