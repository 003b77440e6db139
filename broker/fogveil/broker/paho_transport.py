"""The paho client inside an aiomqtt client, driven by the event loop without a task per message.

aiomqtt starts a task for every message that it receives, and wakes the event loop through a pipe
for every one that it sends. With the callbacks of this module instead, a round trip takes half the
time, and a message in a burst at most a quarter of the CPU. aiomqtt has no option for that and no
public access to its paho client: `Client._client`, read in one place here, is the only private name
that is used. The rest is paho's documented interface for external event loops.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import deque
from typing import Any

import aiomqtt
import paho.mqtt.client as paho
from paho.mqtt.reasoncodes import ReasonCode

QOS = 0
"""At most once, which is exactly once here: TCP loses nothing, and both brokers are configured to
drop nothing; what is lost with a connection is asked for by whoever misses it. QoS 1 would cost
half as much time and CPU again for acknowledgements that `BrokerClient.drain` gets more cheaply."""
READ_BATCH = 64
"""Messages to read before other tasks get their turn."""
CLOSED = "it closed the connection"

logger = logging.getLogger("broker")


class PahoTransport:
    """Sends and receives for an aiomqtt client, which still connects, subscribes, disconnects."""

    def __init__(
        self, client: aiomqtt.Client, *, payload_limit: int, connect_timeout: float
    ) -> None:
        self.inbox: deque[tuple[str, bytes]] = deque()
        """Received messages as (topic, payload)."""
        self.active = False
        """Whether anything was received since this was last set to False."""
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[str] = self._loop.create_future()
        """Done, with the reason, when the connection is closed."""
        self._payload_limit = payload_limit
        self._waiter: asyncio.Future[None] | None = None
        self._refused = False
        self._registered = False
        """Whether the loop calls back when the socket becomes writable."""
        self._descriptor: int | None = None
        self._paho: paho.Client = client._client  # noqa: SLF001 - see the module's docstring
        self._aiomqtt_on_connect: Any = self._paho.on_connect
        self._aiomqtt_on_disconnect: Any = self._paho.on_disconnect
        self._paho.connect_timeout = connect_timeout
        self._paho.disable_logger()  # its errors are raised, and reported once
        self._paho.on_publish = None
        self._paho.on_message = self._on_message
        self._paho.on_connect = self._on_connect
        self._paho.on_disconnect = self._on_disconnect
        self._paho.on_socket_open = self._on_socket_open
        self._paho.on_socket_close = self._on_socket_close
        # aiomqtt connects in another thread.
        self._paho.on_socket_register_write = self._flush_from_thread
        self._paho.on_socket_unregister_write = None

    def start(self) -> None:
        """Continue on the event loop's thread alone: the connection is established."""
        self._paho.on_socket_register_write = self._flush_soon

    def publish(self, topic: str, payload: bytes, *, retain: bool) -> None:
        """Queue a message, which is written in the event loop's next iteration."""
        if not self.lost.done():
            self._paho.publish(topic, payload, QOS, retain)

    async def wait(self) -> None:
        """Wait until a message arrives or the connection is closed."""
        self._waiter = self._loop.create_future()
        await self._waiter

    def close(self, reason: str) -> None:
        """Close the connection; `lost` gets the reason, unless it was closed before."""
        sock = self._paho.socket()
        self._detach()
        if isinstance(sock, socket.socket):
            sock.close()
        if not self.lost.done():
            self.lost.set_result(reason)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- paho's callbacks -----------------------------------------------------------------------

    def _on_message(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        if len(message.payload) > self._payload_limit:
            logger.warning(
                "dropped a message of %d bytes to %s: the limit is %d",
                len(message.payload),
                message.topic,
                self._payload_limit,
            )
            return
        self.inbox.append((message.topic, bytes(message.payload)))
        self._wake()

    def _on_connect(
        self, client: paho.Client, data: Any, flags: Any, code: ReasonCode, properties: Any
    ) -> None:
        self._refused = code.is_failure
        self._aiomqtt_on_connect(client, data, flags, code, properties)

    def _on_disconnect(
        self, client: paho.Client, data: Any, flags: Any, code: ReasonCode, properties: Any
    ) -> None:
        if self._refused:
            return  # aiomqtt raises it, with the broker's reason
        if not code.is_failure:  # aiomqtt has sent the DISCONNECT, and waits for this
            self._aiomqtt_on_disconnect(client, data, flags, code, properties)
        self._loop.call_soon(self.close, CLOSED)

    def _on_socket_open(self, _client: paho.Client, _data: Any, sock: Any) -> None:
        self._loop.call_soon_threadsafe(self._attach, sock.fileno())

    def _on_socket_close(self, _client: paho.Client, _data: Any, _sock: Any) -> None:
        self._detach()

    def _flush_from_thread(self, _client: paho.Client, _data: Any, _sock: Any) -> None:
        self._loop.call_soon_threadsafe(self._flush)

    def _flush_soon(self, _client: paho.Client, _data: Any, _sock: Any) -> None:
        self._loop.call_soon(self._flush)

    # --- the event loop's callbacks -------------------------------------------------------------

    def _attach(self, descriptor: int) -> None:
        if self.lost.done():  # connecting was cancelled meanwhile
            self.close("")
            return
        self._descriptor = descriptor
        self._loop.add_reader(descriptor, self._read)

    def _detach(self) -> None:
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            self._loop.remove_writer(self._descriptor)
            self._descriptor = None
            self._registered = False

    def _read(self) -> None:
        if self._descriptor is None:
            return
        self.active = True
        try:
            for _ in range(READ_BATCH):
                before = len(self.inbox)
                self._paho.loop_read()
                if len(self.inbox) == before and not self._decrypted():
                    return
            if self._decrypted():
                self._loop.call_soon(self._read)
        except Exception as error:  # noqa: BLE001 - paho's parser raises various errors
            self.close(f"it violated MQTT: {error}")

    def _decrypted(self) -> bool:
        """Return whether TLS holds bytes already read, of which the event loop does not know."""
        sock = self._paho.socket()
        return isinstance(sock, ssl.SSLSocket) and sock.pending() > 0

    def _flush(self) -> None:
        if self._descriptor is None:
            return
        self._paho.loop_write()
        unsent = self._paho.want_write() and self._descriptor is not None
        if unsent and not self._registered:
            self._loop.add_writer(self._descriptor, self._flush)
        elif self._registered and not unsent:
            self._loop.remove_writer(self._descriptor)
        self._registered = unsent
