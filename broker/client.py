"""A participant's connection to the broker: publish, subscribe, and notice when it is gone."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import aiomqtt
import paho.mqtt.client as paho
from paho.mqtt.reasoncodes import ReasonCode

from broker import tls
from broker.address import Address
from broker.packets import LIMIT, REFUSED
from fogveil.errors import InputError, LostError, SurroundingsError
from fogveil.identity import BROKER, Credentials, Identity
from fogveil.settings import Settings

QOS = 0
"""At most once, which is exactly once here: nobody reconnects within a run, TCP loses nothing, and
both brokers are set up to drop nothing. QoS 1 takes half as much time and CPU again, and gains
nothing but the acknowledgement that `Relay.drained` gets more cheaply."""
CONNECT_WITHIN = 5.0
LEAVE_WITHIN = 2.0
PINGS = 2
"""Pings in one keep-alive period."""
SILENCE = 3
"""Pings without any sign of life after which the broker is lost."""
FORBEARANCE = 15
"""The broker may wait this many keep-alive periods for us: a participant that computes for seconds
on end is alive, and the clock, not the broker, watches over it."""
AT_A_TIME = 64
"""Messages read before other tasks get their turn."""
FENCE = "fogveil/fence"
"""Nobody subscribes to it: taking it back is a question that the broker answers in turn."""

logger = logging.getLogger("broker")
Result = TypeVar("Result")


class Relay:
    """A connection for one run; it never reconnects, because a run does not outlive its broker.

    `name` becomes the client id, so it has to be unique among all who share the broker; but a
    broker that knows identities takes the client id from the certificate.

    At mqtts:// the participant proves itself by its credentials, and takes for the broker whoever
    proves to be `broker_identity`. Without a broker's identity the broker is somebody else's: it
    is checked as browsers check servers, and is shown no certificate.
    """

    SOCKET_OPTIONS = ((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),)
    """Without it the kernel holds small messages back for 40 ms and more (Nagle's algorithm)."""

    _wire: _Wire

    def __init__(
        self,
        address: str,
        name: str,
        *,
        credentials: Credentials | None = None,
        broker_identity: Identity | None = None,
        keepalive: int = 4,
        limit: int = LIMIT,
    ) -> None:
        self._address = Address.parse(address)
        self._name = name
        self._secure: ssl.SSLContext | None = None
        if self._address.tls:
            self._secure = tls.for_participant(broker_identity, credentials)
        elif broker_identity is not None:
            raise InputError(
                f"the broker {self._address} cannot prove who it is: it needs mqtts://"
            )
        self._keepalive = keepalive
        self._limit = limit

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return a participant's connection, as its configuration says."""
        broker = Identity(settings.run, BROKER, BROKER) if settings.own_broker else None
        return cls(
            settings.broker,
            settings.client(),
            credentials=settings.credentials,
            broker_identity=broker,
        )

    async def __aenter__(self) -> Self:
        self._wire = _Wire(self._address, self._name, self._secure, self._keepalive, self._limit)
        try:
            await self._wire.__aenter__()
        except aiomqtt.MqttError as error:
            self._wire.end("it was never reached")
            raise LostError("broker", _unreachable(self._address, error)) from error
        except BaseException:
            self._wire.end("it was never reached")
            raise
        self._wire.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._wire.leave()

    async def subscribe(self, *filters: str) -> None:
        """Ask for all messages that match one of the filters."""
        if not filters:
            return
        wishes = [(filter_, QOS) for filter_ in filters]
        try:
            codes = await self._answered(self._wire.subscribe(wishes, timeout=CONNECT_WITHIN))
        except aiomqtt.MqttError as error:
            raise SurroundingsError(
                f"the broker {self._address} did not answer a subscription: {error}"
            ) from error
        granted = [code if isinstance(code, int) else code.value for code in codes]
        for filter_, qos in zip(filters, granted, strict=True):
            if qos >= REFUSED:
                raise SurroundingsError(
                    f"the broker {self._address} does not let {self._name} subscribe to {filter_}"
                )

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Send a message behind those already sent; a lost broker shows in `messages`.

        A retained one is kept by the broker for those who subscribe later.
        """
        if len(payload) > self._limit:
            raise SurroundingsError(
                f"a message to {topic} has {len(payload)} bytes, more than the {self._limit} "
                "that are relayed"
            )
        self._wire.send(topic, payload, retain=retain)

    async def drained(self) -> None:
        """Wait until the broker has taken everything that was published.

        It handles the packets of a connection in their order, so when it answers a question that
        was asked last it has handled all before.
        """
        await self._answered(self._wire.unsubscribe(FENCE, timeout=math.inf))

    async def messages(self) -> AsyncIterator[tuple[str, bytes]]:
        """Yield (topic, payload) as they arrive; raise SurroundingsError when the broker is lost.

        What arrived before the loss is yielded first.
        """
        inbox = self._wire.inbox
        while True:
            while inbox:
                yield inbox.popleft()
            self._check()
            await self._wire.news()

    async def _answered(self, question: Coroutine[Any, Any, Result]) -> Result:
        """Await the broker's answer, or fail when the broker is lost meanwhile."""
        asked = asyncio.ensure_future(question)
        try:
            await asyncio.wait((asked, self._wire.lost), return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                self._check()
            return asked.result()
        except aiomqtt.MqttError:
            self._check()
            raise
        finally:
            asked.cancel()

    def _check(self) -> None:
        if self._wire.lost.done():
            raise SurroundingsError(
                f"the broker {self._address} was lost: {self._wire.lost.result()}"
            )


class _Wire(aiomqtt.Client):
    """aiomqtt connects, subscribes and disconnects; what happens often goes past it.

    For each message aiomqtt starts a task to receive it and wakes the event loop through a pipe to
    send it. With paho's own callbacks instead, a round trip takes half the time and a message in a
    burst a quarter of the CPU or less.
    """

    def __init__(
        self,
        address: Address,
        name: str,
        secure: ssl.SSLContext | None,
        keepalive: int,
        limit: int,
    ) -> None:
        super().__init__(
            address.host,
            address.port,
            username=address.user,
            password=address.password,
            identifier=name,
            protocol=aiomqtt.ProtocolVersion.V311,
            clean_session=True,
            timeout=CONNECT_WITHIN,
            keepalive=keepalive * FORBEARANCE,
            socket_options=Relay.SOCKET_OPTIONS,
            tls_context=secure,
        )
        self.inbox: deque[tuple[str, bytes]] = deque()
        self.lost: asyncio.Future[str] = self._loop.create_future()
        """Done, with the reason, when the connection is no more."""
        self._secure = secure is not None
        self._limit = limit
        self._between_pings = keepalive / PINGS
        self._awaited: asyncio.Future[None] | None = None
        self._heard = False
        self._writing = False
        self._descriptor: int | None = None
        self._watching: asyncio.Task[None] | None = None
        client = self._client
        client.connect_timeout = CONNECT_WITHIN
        client.disable_logger()  # what it has to say is raised, once, in a sentence
        client.on_publish = None
        client.on_message = self._arrived
        client.on_disconnect = self._disconnect
        client.on_socket_open = self._opened
        client.on_socket_close = self._closed
        # Until connected, paho calls from another thread.
        client.on_socket_register_write = self._flush_from_thread
        client.on_socket_unregister_write = None

    def start(self) -> None:
        """Begin to watch over the connection that stands now."""
        self._client.on_socket_register_write = self._flush_soon
        self._watching = self._loop.create_task(self._watch())

    def send(self, topic: str, payload: bytes, *, retain: bool) -> None:
        """Hand a message to paho, which writes it in the event loop's next round."""
        if not self.lost.done():
            self._client.publish(topic, payload, QOS, retain)

    async def news(self) -> None:
        """Wait until a message arrives or the connection ends."""
        self._awaited = self._loop.create_future()
        await self._awaited

    async def leave(self) -> None:
        """Disconnect politely if that is possible, and in any case."""
        if not self.lost.done():
            self.timeout = LEAVE_WITHIN
            with suppress(aiomqtt.MqttError):
                await super().__aexit__(None, None, None)
        self.end("we have left it")

    def end(self, reason: str) -> None:
        """Close the connection, and tell those who wait for it."""
        sock = self._client.socket()
        self._detach()
        if isinstance(sock, socket.socket):
            sock.close()
        if self._watching is not None:
            self._watching.cancel()
        if not self.lost.done():
            self.lost.set_result(reason)
        self._wake()

    def _wake(self) -> None:
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)

    async def _watch(self) -> None:
        """Ask for signs of life; whatever arrives is one.

        Pings are counted, not seconds: if this process itself was held up, that is not the
        broker's fault. (paho's own keep-alive gives up although messages arrive, where the answer
        to its ping is queued behind them.)
        """
        silent = 0
        while silent < SILENCE:
            self._heard = False
            self._client._send_pingreq()  # noqa: SLF001 - paho has no public way to send a ping
            await asyncio.sleep(self._between_pings)
            silent = 0 if self._heard else silent + 1
        self._watching = None
        self.end(f"it gave no sign of life for {SILENCE * self._between_pings:g} s")

    # --- called by paho -------------------------------------------------------------------------

    def _arrived(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        if len(message.payload) > self._limit:
            logger.warning(
                "dropped a message of %d bytes to %s: more than %d are not expected",
                len(message.payload),
                message.topic,
                self._limit,
            )
            return
        self.inbox.append((message.topic, bytes(message.payload)))
        self._wake()

    def _disconnect(
        self, client: paho.Client, data: Any, flags: Any, code: ReasonCode, properties: Any
    ) -> None:
        if not self._connected.done():
            reason = "it closed the connection"
            if self._secure:
                reason += ", which it does where a certificate is not one of its run"
            self._connected.set_exception(aiomqtt.MqttError(reason))
        self._on_disconnect(client, data, flags, code, properties)
        if self._disconnected.done():
            self._disconnected.exception()  # seen, so asyncio does not complain
        self._loop.call_soon(self.end, "it closed the connection")

    def _opened(self, _client: paho.Client, _data: Any, sock: Any) -> None:
        self._loop.call_soon_threadsafe(self._attach, sock.fileno())

    def _closed(self, _client: paho.Client, _data: Any, _sock: Any) -> None:
        self._detach()

    def _flush_from_thread(self, _client: paho.Client, _data: Any, _sock: Any) -> None:
        self._loop.call_soon_threadsafe(self._flush)

    def _flush_soon(self, _client: paho.Client, _data: Any, _sock: Any) -> None:
        self._loop.call_soon(self._flush)

    # --- called by the event loop ---------------------------------------------------------------

    def _attach(self, descriptor: int) -> None:
        if self.lost.done():  # whoever wanted to connect has gone meanwhile
            self.end("nobody waits for it")
            return
        self._descriptor = descriptor
        self._loop.add_reader(descriptor, self._read)

    def _detach(self) -> None:
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            self._loop.remove_writer(self._descriptor)
            self._descriptor = None
            self._writing = False

    def _read(self) -> None:
        if self._descriptor is None:
            return
        self._heard = True
        try:
            for _ in range(AT_A_TIME):
                before = len(self.inbox)
                self._client.loop_read()
                if len(self.inbox) == before and not self._decrypted:
                    return
            if self._decrypted:
                self._loop.call_soon(self._read)
        except Exception as error:  # noqa: BLE001 - paho's parser raises whatever it trips over
            self.end(f"it sent what is no MQTT: {error}")

    @property
    def _decrypted(self) -> bool:
        """Whether TLS holds bytes ready: they are no news to the event loop."""
        sock = self._client.socket() if self._secure else None
        return isinstance(sock, ssl.SSLSocket) and sock.pending() > 0

    def _flush(self) -> None:
        if self._descriptor is None:
            return
        self._client.loop_write()
        unsent = self._client.want_write() and self._descriptor is not None
        if unsent and not self._writing:
            self._loop.add_writer(self._descriptor, self._flush)
        elif self._writing and not unsent:
            self._loop.remove_writer(self._descriptor)
        self._writing = unsent


def _unreachable(address: Address, error: aiomqtt.MqttError) -> str:
    if isinstance(error, aiomqtt.MqttCodeError) and isinstance(error.rc, ReasonCode):
        return f"the broker {address} refuses the connection: {str(error.rc).lower()}"
    reason = re.sub(r"^\[Errno -?\d+\] ", "", str(error))
    if "timed out" in reason:
        reason = f"no answer within {CONNECT_WITHIN:g} s"
    return f"the broker {address} cannot be reached: {reason}"
