"""A participant's connection to the broker: publish, subscribe, and detect its loss."""

from __future__ import annotations

import asyncio
import math
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import aiomqtt
from paho.mqtt.reasoncodes import ReasonCode

from fogveil.broker import tls
from fogveil.broker.address import Address
from fogveil.broker.mqtt_packets import PAYLOAD_LIMIT, REFUSED
from fogveil.broker.paho_transport import CLOSED, QOS, PahoTransport
from fogveil.core.errors import InfrastructureError, InputError, LostError
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import Identity, broker_identity
from fogveil.protocol.settings import Settings
from fogveil.protocol.simulated_host import simulated_host

CONNECT_TIMEOUT = 30.0
RETURN_TIMEOUT = 5.0
"""Seconds in which a broker that is back must answer; one that hangs is ended after that."""
BACK_WITHIN = 120.0
"""Seconds in which a broker that was lost must be back."""
RETRY_EVERY = 0.1
REPORT_PERIOD = 4.0
"""Seconds between two reports that a broker does not come back."""
DISCONNECT_TIMEOUT = 2.0
HEARTBEATS = 2
"""Heartbeats in one keep-alive period."""
MISSED_HEARTBEATS = 3
"""Intervals in a row without any byte from the broker after which it is lost."""
KEEPALIVE_FACTOR = 15
"""The broker may wait for this many keep-alive periods: a participant that computes for seconds on
end is alive, and the clock, not the broker, supervises it."""
PROBE_TOPIC = "fogveil/fence"
"""Nobody subscribes to it: to unsubscribe from it is a request that any broker answers at once,
and after all packets that it got before."""
TCP_NODELAY = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
"""Without it the kernel delays small messages by 40 ms and more (Nagle's algorithm)."""

Result = TypeVar("Result")


class BrokerClient:
    """A connection for one run.

    Where the run goes on after a loss it `returns` to a broker that is back: it subscribes again,
    and publishes its retained messages again. What was on its way is lost; who misses it asks.
    Elsewhere it never reconnects, because a run does not outlive its broker.

    `name` becomes the client id, so it has to be unique among all clients of the broker; a broker
    that knows identities takes the client id from the certificate instead.

    At mqtts:// the client proves itself by its credentials, and accepts only a broker that proves
    to be `broker`. Where that is None the broker is external: it is checked against the system's
    authorities, and is not shown a certificate.
    """

    _client: aiomqtt.Client
    _transport: PahoTransport
    _heartbeat: asyncio.Task[None]

    def __init__(
        self,
        address: str,
        name: str,
        *,
        credentials: Credentials | None = None,
        broker: Identity | None = None,
        keepalive: int = 4,
        payload_limit: int = PAYLOAD_LIMIT,
        returns: bool = False,
    ) -> None:
        self._returns = returns
        self._filters: list[str] = []
        self._retained: dict[str, bytes] = {}
        self.on_loss: Callable[[], None] = lambda: None
        """Called where the broker is lost and expected back."""
        self._address = Address.parse(address)
        self._name = name
        self._context: ssl.SSLContext | None = None
        if self._address.tls:
            context = self._context = tls.client_context(broker, credentials)
            context.expected_host = context.expected_host or self._address.host
        elif broker is not None:
            raise InputError(
                f"the broker {self._address} cannot prove its identity: it needs mqtts://"
            )
        self._keepalive = keepalive
        self._payload_limit = payload_limit

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Return the client of a participant, as its configuration says."""
        if host := simulated_host.get():
            return host.connect_broker()  # type: ignore[no-any-return]
        return cls(
            settings.broker,
            settings.mqtt_client_id(),
            credentials=settings.credentials,
            broker=broker_identity(settings.run) if settings.own_broker else None,
            returns=settings.recovers,
        )

    async def __aenter__(self) -> Self:
        if not self._returns:
            await self._open(CONNECT_TIMEOUT)
            return self
        try:
            await self._open(RETURN_TIMEOUT)
        except LostError as error:
            await self._open_again(error)
        return self

    async def _open(self, within: float) -> None:
        """Connect."""
        path = self._address.socket
        self._client = aiomqtt.Client(
            path or self._address.host,
            self._address.port,
            transport="unix" if path else "tcp",
            username=self._address.user,
            password=self._address.password,
            identifier=self._name,
            protocol=aiomqtt.ProtocolVersion.V311,
            clean_session=True,
            timeout=within,
            keepalive=self._keepalive * KEEPALIVE_FACTOR,
            socket_options=() if path else (TCP_NODELAY,),
            tls_context=self._context,
        )
        self._transport = PahoTransport(
            self._client, payload_limit=self._payload_limit, connect_timeout=within
        )
        try:
            await self._connect(within)
        except BaseException:
            self._transport.close("")
            raise
        self._transport.start()
        self._heartbeat = asyncio.create_task(self._supervise())

    async def _open_again(self, error: InfrastructureError) -> None:
        """Connect to a broker that is back, or raise the error if it does not come back."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + BACK_WITHIN
        reported = loop.time()
        while loop.time() < deadline:
            try:
                await self._open(RETURN_TIMEOUT)
                await self._request_subscriptions(self._filters)
            except InfrastructureError as failure:
                error = failure
                if loop.time() > reported + REPORT_PERIOD:  # it is there, and hangs
                    reported = loop.time()
                    self.on_loss()
                await asyncio.sleep(RETRY_EVERY)
                continue
            for topic, payload in self._retained.items():
                self._transport.publish(topic, payload, retain=True)
            return
        raise error

    async def _connect(self, within: float) -> None:
        try:
            # paho has a time limit of its own for the connection, but none like it for TLS.
            async with asyncio.timeout(within):
                await self._answer(self._client.__aenter__())
        except TimeoutError:
            sentence = f"cannot be reached: no answer within {within:g} s"
            raise LostError("broker", f"the broker {self._address} {sentence}") from None
        except aiomqtt.MqttError as error:
            if isinstance(error, aiomqtt.MqttCodeError) and isinstance(error.rc, ReasonCode):
                sentence = f"refuses the connection: {str(error.rc).lower()}"
            else:
                sentence = f"cannot be reached: {self._explain(error)}"
            raise LostError("broker", f"the broker {self._address} {sentence}") from error

    def _explain(self, error: aiomqtt.MqttError) -> str:
        reason = re.sub(r"^\[Errno -?\d+\] ", "", str(error))
        if "timed out" in reason:
            return f"no answer within {CONNECT_TIMEOUT:g} s"
        if reason == CLOSED and self._context:
            return f"{reason}, as it does where a certificate is not of its run"
        return reason

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._heartbeat.cancel()
        if not self._transport.lost.done():
            self._client.timeout = DISCONNECT_TIMEOUT
            with suppress(aiomqtt.MqttError):
                await self._client.__aexit__(None, None, None)
        self._transport.close("the client has disconnected")

    async def subscribe(self, *filters: str) -> None:
        """Subscribe to the filters; raise InfrastructureError if the broker refuses one."""
        if not filters:
            return
        self._filters += filters
        try:
            await self._request_subscriptions(filters)
        except InfrastructureError as error:
            if not (self._returns and self._transport.lost.done()):
                raise
            await self._open_again(error)

    async def _request_subscriptions(self, filters: Sequence[str]) -> None:
        if not filters:
            return
        requests = [(filter_, QOS) for filter_ in filters]
        try:
            codes = await self._answer(self._client.subscribe(requests, timeout=CONNECT_TIMEOUT))
        except aiomqtt.MqttError as error:
            self._check()
            raise InfrastructureError(
                f"the broker {self._address} did not answer a subscription: {error}"
            ) from error
        granted = [code if isinstance(code, int) else code.value for code in codes]
        for filter_, qos in zip(filters, granted, strict=True):
            if qos >= REFUSED:
                raise InfrastructureError(
                    f"the broker {self._address} does not let {self._name} subscribe to {filter_}"
                )

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Queue a message; that the broker is lost is raised by `messages`, not here.

        The broker keeps a retained message for clients that subscribe later.
        """
        if len(payload) > self._payload_limit:
            raise InfrastructureError(
                f"a message to {topic} has {len(payload)} bytes, more than the limit of "
                f"{self._payload_limit}"
            )
        if retain:
            self._retained[topic] = payload
        self._transport.publish(topic, payload, retain=retain)

    async def drain(self) -> None:
        """Wait until the broker has received everything that was published.

        It handles the packets of a connection in order, so the answer to a request that is sent now
        comes after everything before it was handled.
        """
        try:
            await self._answer(self._client.unsubscribe(PROBE_TOPIC, timeout=math.inf))
        except aiomqtt.MqttError:
            if self._returns:  # the run is over: all that was needed was received
                return
            self._check()
            raise

    async def messages(self) -> AsyncIterator[tuple[str, bytes]]:
        """Yield (topic, payload) of received messages; raise InfrastructureError at a loss.

        What was received before the broker was lost is yielded first.
        """
        while True:
            inbox = self._transport.inbox
            while inbox:
                yield inbox.popleft()
            try:
                self._check()
            except InfrastructureError as error:
                if not self._returns:
                    raise
                self._heartbeat.cancel()
                await self._open_again(error)
                continue
            await self._transport.wait()

    async def _supervise(self) -> None:
        """Close the connection when the broker has missed several heartbeats.

        The heartbeat is a request that it has to answer, because neither aiomqtt nor paho can be
        asked for a ping, and any received byte counts. (The keep-alive of paho gives up although
        messages arrive, where the answer to its ping is queued behind them.) Intervals are counted,
        not seconds: the broker is not to blame for a time in which this process did not run.
        """
        interval, missed = self._keepalive / HEARTBEATS, 0
        request: asyncio.Task[None] | None = None
        try:
            while missed < MISSED_HEARTBEATS:
                self._transport.active = False
                if request is None or request.done():
                    request = asyncio.create_task(self._request())
                await asyncio.sleep(interval)
                missed = 0 if self._transport.active else missed + 1
        finally:
            if request is not None:
                request.cancel()
        self._transport.close(f"it gave no sign of life for {MISSED_HEARTBEATS * interval:g} s")

    async def _request(self) -> None:
        with suppress(aiomqtt.MqttError):
            await self._client.unsubscribe(PROBE_TOPIC, timeout=math.inf)

    async def _answer(self, request: Coroutine[Any, Any, Result]) -> Result:
        """Return the broker's answer; raise MqttError if the connection is closed before."""
        task = asyncio.ensure_future(request)
        lost = self._transport.lost
        try:
            await asyncio.wait((task, lost), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise aiomqtt.MqttError(lost.result())
            return task.result()
        finally:
            task.cancel()

    def _check(self) -> None:
        if self._transport.lost.done():
            raise InfrastructureError(
                f"the broker {self._address} was lost: {self._transport.lost.result()}"
            )
