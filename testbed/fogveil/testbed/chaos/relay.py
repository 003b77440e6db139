"""The simulated broker and its clients; who receives what is the router's of the real one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, Self

from fogveil.broker.client import BACK_WITHIN, REPORT_PERIOD, RETRY_EVERY, RETURN_TIMEOUT
from fogveil.broker.mqtt_packets import Publish
from fogveil.broker.routing import Router
from fogveil.core.errors import InfrastructureError, LostError
from fogveil.protocol.identity import BROKER
from fogveil.testbed.chaos.faults import DOUBLE, DROP
from fogveil.testbed.chaos.network import Machine, Network, Wire


class _Subscribe(NamedTuple):
    filters: tuple[str, ...]


class _Probe(NamedTuple):
    pass


class _Lost(NamedTuple):
    pass


class SimulatedBroker:
    """One process of the broker: what it retains dies with it."""

    name = BROKER

    def __init__(self, network: Network) -> None:
        self._network = network
        self.alive = True
        self.frozen_until = 0.0
        self._router: Router[Link] = Router()
        network.machines[BROKER] = self

    def kill(self) -> None:
        """End it."""
        self.alive = False
        self._network.vanish(self)

    def handle(self, link: Link, item: Any) -> None:
        """Do what a client asks for."""
        if isinstance(item, _Lost):
            self._router.remove(link)
        elif isinstance(item, _Subscribe):
            for filter_ in item.filters:
                self._router.subscribe(link, filter_, 0)
            link.down.put(item)
            for filter_ in item.filters:
                for message in self._router.retained(filter_):
                    link.down.put((message.topic, message.payload))
        elif isinstance(item, _Probe):
            link.down.put(item)
        else:
            self._relay(link, item)

    def _relay(self, link: Link, message: Publish) -> None:
        if message.retain:
            self._router.retain(message)
        item, network = (message.topic, message.payload), self._network
        kind, seconds = "", 0.0
        if not message.retain and (pending := network.meddling.get(link.ends[0].name)):
            kind, seconds = pending.popleft()
        if kind == DROP:
            return
        for receiver, _ in self._router.receivers(message.topic):
            for _ in range(2 if kind == DOUBLE else 1):
                if seconds:
                    network.loop.call_later(seconds, receiver.down.put, item)
                else:
                    receiver.down.put(item)


class Link:
    """A client's connection."""

    kind = "mqtt"

    def __init__(self, network: Network, client: Machine, broker: SimulatedBroker) -> None:
        self.ends: tuple[Machine, Machine] = client, broker
        self._network, self._broker = network, broker
        self.up = Wire(network, (client, broker), partial(broker.handle, self))
        self.down = Wire(network, (broker, client), self._at_client)
        self.inbox: deque[tuple[str, bytes]] = deque()
        self.news = asyncio.Event()
        self.answers = 0
        self.lost = False
        network.connections[self] = None

    def _at_client(self, item: Any) -> None:
        if isinstance(item, _Lost):
            self.lost = True
        elif isinstance(item, _Subscribe | _Probe):
            self.answers += 1
        else:
            self.inbox.append(item)
        self.news.set()

    async def answer(self, number: int) -> bool:
        """Wait for so many answers in all; return whether they came."""
        while self.answers < number and not self.lost:
            self.news.clear()
            await self.news.wait()
        return not self.lost

    def lose(self, *, in_flight: bool, seen_by: Iterable[Machine] | None = None) -> None:
        """Break off."""
        client, broker = self.ends
        at_once = tuple(seen_by or ())
        if client in at_once:
            self._at_client(_Lost())
            self.down.closed = True
        else:
            self.down.put_last(_Lost(), in_flight=in_flight)
        if broker in at_once:
            self._broker.handle(self, _Lost())
            self.up.closed = True
        else:
            self.up.put_last(_Lost(), in_flight=in_flight)
        self._network.connections.pop(self, None)


class SimulatedRelay:
    """A client that returns to a broker that is back, as `BrokerClient` does."""

    def __init__(self, network: Network, client: Machine) -> None:
        self._network, self._client = network, client
        self._filters: list[str] = []
        self._retained: dict[str, bytes] = {}
        self._link: Link | None = None
        self.on_loss: Callable[[], None] = lambda: None
        """Called where the broker is lost and expected back."""

    async def __aenter__(self) -> Self:
        await self._connect()
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._link:
            self._link.lose(in_flight=True)

    async def _connect(self) -> None:
        """Connect, subscribe again, and publish again what is retained."""
        network, begun = self._network, self._network.now
        reported = begun
        while network.now < begun + BACK_WITHIN:
            await asyncio.sleep(network.latency())
            broker = network.machines[BROKER]
            if broker.alive and broker.frozen_until > network.now:
                await asyncio.sleep(min(RETURN_TIMEOUT, broker.frozen_until - network.now))
            if broker.alive and broker.frozen_until <= network.now:
                self._link = Link(network, self._client, broker)
                if await self._subscribe(tuple(self._filters)):
                    for topic, payload in self._retained.items():
                        self.publish(topic, payload, retain=True)
                    return
            if network.now > reported + REPORT_PERIOD:
                reported = network.now
                self.on_loss()
            await asyncio.sleep(RETRY_EVERY)
        raise LostError(BROKER, "the broker did not come back")

    async def _subscribe(self, filters: tuple[str, ...]) -> bool:
        assert self._link
        if not filters:
            return True
        self._link.up.put(_Subscribe(filters))
        return await self._link.answer(self._link.answers + 1)

    async def subscribe(self, *filters: str) -> None:
        """Subscribe to filters."""
        self._filters += filters
        if not await self._subscribe(filters):
            await self._connect()

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish a message; it is lost where the broker is."""
        assert self._link
        if retain:
            self._retained[topic] = payload
        if not self._link.lost:
            self._link.up.put(Publish(topic, payload, 0, retain=retain))

    async def drain(self) -> None:
        """Wait until the broker has everything."""
        assert self._link
        if not self._link.lost:
            self._link.up.put(_Probe())
            await self._link.answer(self._link.answers + 1)

    async def messages(self) -> AsyncIterator[tuple[str, bytes]]:
        """Yield (topic, payload)."""
        while True:
            link = self._link
            assert link
            while link.inbox:
                yield link.inbox.popleft()
            if link.lost:
                try:
                    await self._connect()
                except LostError as error:
                    raise InfrastructureError(str(error)) from error
                continue
            link.news.clear()
            await link.news.wait()
