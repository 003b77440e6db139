"""Trying a broker out: everybody at every topic, in both directions, and what came of it.

Everybody lies, too: each client gives the user name and the client id of another participant, so
what holds here holds for those who publish under another's name.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from broker import tls
from broker.access import Access, Participants
from broker.address import Address
from broker.packets import (
    REFUSED,
    Acknowledgement,
    Answer,
    Connack,
    Connect,
    Frames,
    Kind,
    Packet,
    ProtocolError,
    Publish,
    Signal,
    Suback,
    Subscribe,
    decode,
    encode,
)
from broker.routing import matches
from broker.topics import Topics
from fogveil.errors import SurroundingsError
from fogveil.identity import Credentials, Identity

Deed = Literal["connect", "subscribe", "publish", "receive", "retain", "will", "displace"]
WITHIN = 10.0
"""Seconds that an answer may take."""
KEEPALIVE = 120


@dataclass(frozen=True, slots=True)
class Probe:
    """What was tried, what should have come of it, and what did.

    A message counts as published (as retained, as a will) if it reached anybody at all; each
    identity tried to subscribe to everything before, and so would hear what it may not.
    """

    who: str
    """An identity's short name, or what its certificate lacks."""
    deed: Deed
    topic: str
    """A topic, a filter, whom to displace, or nothing."""
    expected: bool
    got: bool


def topics_to_try(participants: Participants) -> list[str]:
    """Return every topic of the run, such as look like one, another run's, the broker's own."""
    ours, theirs = Topics(participants.run), Topics(f"{participants.run}0")
    sources, fogs, agent = participants.sources, participants.fogs, participants.agent
    providers = (*fogs, participants.cloud)
    return [
        *map(ours.workload, (*sources, fogs[0])),
        *map(ours.placement, (*providers, sources[0])),
        *map(ours.aggregate, (*providers, agent)),
        *map(ours.keys, (*providers, agent)),
        *(ours.feedback(owner, name) for owner in sources for name in (*providers, agent)),
        theirs.workload(sources[0]),
        theirs.keys(fogs[0]),
        *(f"fogveil/v1/{participants.run}", "anything"),
        *("$SYS/broker/uptime", "$CONTROL/dynamic-security/v1"),
    ]


def filters_to_try(participants: Participants) -> list[str]:
    """Return the filters of the run, those that take in more, and every topic by its name."""
    run, ours = participants.run, Topics(participants.run)
    everybody = (*participants.fogs, participants.cloud, participants.agent)
    return [
        *(ours.all_workloads, ours.all_aggregates, ours.all_keys),
        *map(ours.all_feedback, (*participants.sources, *everybody)),
        *("#", "+/#", "/#", "+/+/+/#", "+/+/+/+/+", "fogveil/#", "fogveil/v1/+/keys/+"),
        *(f"fogveil/v1/{run}/{rest}" for rest in ("#", "+/+", "+/+/+", "placement/+", "keys/#")),
        *(f"fogveil/v1/{run}/feedback/{rest}" for rest in ("#", "+/+")),
        *("$SYS/#", "$CONTROL/#", "$share/all/#", f"$share/all/{ours.all_workloads}"),
        *topics_to_try(participants),
    ]


async def probe(
    address: str,
    participants: Participants,
    credentials_of: Mapping[Identity, Credentials],
    strangers: Mapping[str, Credentials | None] | None = None,
) -> list[Probe]:
    """Let identities and strangers try everything at a broker of this run.

    Strangers are those whose certificate is not one of the run, or who have none; they should not
    even connect. Who tries takes the place of the participant whose certificate it shows, so this
    is not for a broker at which participants are at work.
    """
    trial = _Trial(Address.parse(address), participants, credentials_of, strangers or {})
    try:
        return await trial.run()
    except (TimeoutError, OSError, ProtocolError) as error:
        reason = str(error) or f"no answer within {WITHIN:g} s"
        raise SurroundingsError(
            f"the broker {trial.address} could not be tried out: {reason}"
        ) from error


class _Trial:
    """One round of everything at one broker."""

    def __init__(
        self,
        address: Address,
        participants: Participants,
        credentials_of: Mapping[Identity, Credentials],
        strangers: Mapping[str, Credentials | None],
    ) -> None:
        self.address = address
        self._topics = topics_to_try(participants)
        self._filters = filters_to_try(participants)
        identities = {identity.common_name: identity for identity in credentials_of}
        self._expected = _Expectation(Access.of(participants), identities)
        # A stranger trusts the broker that it wants to get into, whoever issued its certificate.
        authority = next(iter(credentials_of.values())).authority
        shown = {name: credentials_of[identity] for name, identity in identities.items()}
        self._names = names = [*shown, *strangers]
        self._doors = {
            name: _Door(address, participants.broker.host, context, names[place - 1])
            for place, (name, context) in enumerate(
                (name, tls.for_participant(participants.broker, credentials, authority))
                for name, credentials in {**shown, **strangers}.items()
            )
        }
        self._clients: dict[str, _Client] = {}
        """Those who got in."""
        self._got: set[tuple[str, Deed, str]] = set()
        self._token = os.urandom(8).hex()

    async def run(self) -> list[Probe]:
        try:
            for name, door in self._doors.items():
                client = await door.enter()
                if client is not None:
                    self._clients[name] = client
                    self._got.add((name, "connect", ""))
            await self._subscribe()
            await self._publish()
            await self._retain()
            for name in self._clients:
                await self._wills(name)
            for name in self._clients:
                await self._displace(name, self._victim(name))
        finally:
            for client in self._clients.values():
                await client.close()
        return [
            Probe(name, *each, expected=self._expected(name, *each), got=(name, *each) in self._got)
            for name in self._doors
            for each in self._deeds(name)
        ]

    def _deeds(self, name: str) -> Iterable[tuple[Deed, str]]:
        yield "connect", ""
        yield "displace", self._victim(name)
        for filter_ in self._filters:
            yield "subscribe", filter_
        for topic in self._topics:
            yield "publish", topic
            yield "receive", topic
            yield "retain", topic
            yield "will", topic

    async def _subscribe(self) -> None:
        for name, client in self._clients.items():
            for filter_, code in zip(
                self._filters, await client.subscribe(self._filters), strict=True
            ):
                if code < REFUSED:
                    self._got.add((name, "subscribe", filter_))

    async def _publish(self) -> None:
        for name, client in self._clients.items():
            await client.publish(self._topics, self._payload(name))
        for receiver, message in await self._arrived():
            self._got.add((self._sender(message), "publish", message.topic))
            self._got.add((receiver, "receive", message.topic))

    async def _retain(self) -> None:
        for name, client in self._clients.items():
            await client.publish(self._topics, self._payload(name), retain=True)
            await self._note_retained("retain")
            await client.publish(self._topics, b"", retain=True)  # ends the keeping
        await self._arrived()

    async def _wills(self, name: str) -> None:
        """Let somebody be lost once for each topic.

        A client that comes back takes its own former place, and the broker publishes the will of
        the former. It is a retained one, so that the client itself can hear it when it is back.
        """
        payload = self._payload(name)
        wills = [Publish(topic, payload, retain=True) for topic in self._topics]
        for will in (*wills, None):
            await self._come_back(name, will)
        await self._note_retained("will")
        await self._clients[name].publish(self._topics, b"", retain=True)

    async def _displace(self, name: str, victim: str) -> None:
        """Come back by the names that another has given; brokers end the former of two."""
        for claim in (victim, self._doors[victim].claim):
            await self._come_back(name, claim=claim)
        try:
            await self._clients[victim].arrived()
        except (ssl.SSLError, ConnectionError):
            self._got.add((name, "displace", victim))
            await self._come_back(victim)

    def _victim(self, name: str) -> str:
        return next(other for other in self._names if other != name)

    async def _come_back(
        self, name: str, will: Publish | None = None, claim: str | None = None
    ) -> None:
        client = await self._doors[name].enter(will, claim)
        if client is None:
            raise ConnectionError(f"it does not let {name} come back")
        former, self._clients[name] = self._clients[name], client
        await former.close()

    async def _note_retained(self, deed: Deed) -> None:
        """Let everybody subscribe anew, which brings what was kept."""
        await self._arrived()
        for client in self._clients.values():
            await client.subscribe(self._filters)
        for _, message in await self._arrived():
            self._got.add((self._sender(message), deed, message.topic))

    async def _arrived(self) -> list[tuple[str, Publish]]:
        """Return what has arrived with whom since we asked last."""
        return [
            (name, message)
            for name, client in self._clients.items()
            for message in await client.arrived()
            if message.payload.startswith(self._token.encode())
        ]

    def _payload(self, name: str) -> bytes:
        return f"{self._token} {name}".encode()

    def _sender(self, message: Publish) -> str:
        return message.payload.decode().partition(" ")[2]


class _Expectation:
    """What the table lets be."""

    def __init__(self, access: Access, identities: Mapping[str, Identity]) -> None:
        self._access = access
        self._identities = identities
        self._published = {topic for rights in access.table.values() for topic in rights.publish}

    def __call__(self, name: str, deed: Deed, topic: str) -> bool:
        identity = self._identities.get(name)
        if identity is None:
            return False
        if deed == "connect":
            return True
        if deed == "subscribe":
            return self._access.may(identity, "subscribe", topic)
        if deed == "receive":
            rights = self._access.table.get(identity)
            return topic in self._published and any(
                matches(filter_, topic) for filter_ in (rights.subscribe if rights else ())
            )
        return self._access.may(identity, "publish", topic)


@dataclass(frozen=True, slots=True)
class _Door:
    """Where somebody tries to get in, by a certificate or without, and under a false name."""

    address: Address
    host: str
    context: ssl.SSLContext
    claim: str

    async def enter(self, will: Publish | None = None, claim: str | None = None) -> _Client | None:
        """Connect; None is to be turned away."""
        secure = self.address.tls
        try:
            async with asyncio.timeout(WITHIN):
                reader, writer = await asyncio.open_connection(
                    self.address.host,
                    self.address.port,
                    ssl=self.context if secure else None,
                    server_hostname=self.host if secure else None,
                )
        except ssl.SSLCertVerificationError as error:
            raise OSError(tls.failure(error)) from error  # it is not the broker we want to try
        except (ssl.SSLError, ConnectionResetError):
            return None
        client = _Client(reader, writer)
        let_in = False
        try:
            let_in = await client.is_let_in(claim or self.claim, will)
        finally:
            if not let_in:
                await client.close()
        return client if let_in else None


class _Client:
    """A connection that asks, and listens to the answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._frames = Frames()
        self._answers: list[Packet] = []
        self._messages: list[Publish] = []

    async def is_let_in(self, claim: str, will: Publish | None) -> bool:
        """Say whether the broker takes the connection."""
        try:
            self._send(Connect(claim, KEEPALIVE, user=claim, password=b"", will=will))
            answer = await self._answer()
        except (ssl.SSLError, ConnectionError):
            return False  # under TLS 1.3 a certificate is refused after the handshake
        return isinstance(answer, Connack) and answer.answer == Answer.ACCEPTED

    async def close(self) -> None:
        """Go without a word."""
        self._writer.transport.abort()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def subscribe(self, filters: list[str]) -> bytes:
        """Return the answer to each filter."""
        self._send(Subscribe(1, tuple((filter_, 0) for filter_ in filters)))
        answer = await self._answer()
        if not isinstance(answer, Suback):
            raise ProtocolError(f"{answer} is no answer to a SUBSCRIBE")
        return answer.granted

    async def publish(self, topics: list[str], payload: bytes, *, retain: bool = False) -> None:
        """Publish to each topic, and wait until the broker has dealt with it."""
        for number, topic in enumerate(topics, 1):
            self._send(Publish(topic, payload, 1, retain, packet=number))
        for number in range(1, len(topics) + 1):
            if await self._answer() != Acknowledgement(Kind.PUBACK, number):
                raise ProtocolError("a message was not acknowledged")

    async def arrived(self) -> list[Publish]:
        """Return the messages that arrived; the broker answers after all that it sent before."""
        self._send(Signal(Kind.PINGREQ))
        await self._answer()
        messages, self._messages = self._messages, []
        return messages

    def _send(self, packet: Packet) -> None:
        self._writer.write(encode(packet))

    async def _answer(self) -> Packet:
        while not self._answers:
            async with asyncio.timeout(WITHIN):
                data = await self._reader.read(65536)
            if not data:
                raise ConnectionResetError("it closed the connection")
            for head, body in self._frames.feed(data):
                packet = decode(head, body)
                if isinstance(packet, Publish):
                    self._messages.append(packet)
                else:
                    self._answers.append(packet)
        return self._answers.pop(0)
