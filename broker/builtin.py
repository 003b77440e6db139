"""The built-in broker: MQTT 3.1.1 for one run, where no mosquitto is installed.

It relays at QoS 0 and 1 and keeps no sessions: a client that comes back starts afresh. A reader
that is slow slows down those who publish to it, so nothing is lost and nothing piles up.

Over TLS every client has to prove an identity of the run, and the table of `broker.access` says
what it may do. As in mosquitto, a refused subscription is refused in the SUBACK, a refused message
or will is acknowledged and dropped, because MQTT 3.1.1 has no word for it, and the client id and
user name that a client gives count for nothing: both are what its certificate says, so nobody can
push another out of its place. An identity without any rights can connect, and do nothing.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from itertools import count, cycle
from typing import cast

from broker import tls
from broker.access import Action
from broker.packets import (
    LEVEL,
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
    Unsubscribe,
    decode,
    encode,
)
from broker.routing import Router
from fogveil.identity import Identity

May = Callable[[Identity | None, Action, str], bool]
"""Says whether somebody may publish to a topic or subscribe to a filter; None is unknown."""

MOST_QOS = 1
UNSENT = 2**20
"""Bytes that may wait for a slow reader before its publishers are held."""
CONNECT_WITHIN = 10.0
"""Seconds that a new connection has for its CONNECT, and a closed one to take its last bytes."""
PATIENCE = 1.5
"""Keep-alive periods without a packet after which a client is gone, as the standard has it."""
TICK = 1.0

logger = logging.getLogger("broker")


def anybody(_identity: Identity | None, _action: Action, _topic: str) -> bool:
    """Let everybody do everything, as long as participants carry no identities."""
    return True


class Broker:
    """Relays between the connections it has accepted."""

    def __init__(self, may: May = anybody) -> None:
        self.may = may
        self.router: Router[Connection] = Router()
        self._connections: set[Connection] = set()
        self._clients: dict[str, Connection] = {}
        self._unnamed = count(1)
        self._written: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._ticking: asyncio.Task[None] | None = None

    async def listen(self, host: str, port: int, secure: ssl.SSLContext | None = None) -> int:
        """Accept connections, and return the port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self),
            host,
            port,
            ssl=secure,
            ssl_handshake_timeout=CONNECT_WITHIN if secure else None,
            ssl_shutdown_timeout=CONNECT_WITHIN if secure else None,
        )
        self._ticking = loop.create_task(self._tick())
        number: int = self._server.sockets[0].getsockname()[1]
        return number

    async def close(self) -> None:
        """End all connections."""
        if self._server is not None:
            self._server.close()
        if self._ticking is not None:
            self._ticking.cancel()
        for connection in tuple(self._connections):
            connection.abort()
        await asyncio.sleep(0)  # aborted transports close their sockets in the next round

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            for connection in tuple(self._connections):
                connection.check()

    # --- what connections call ----------------------------------------------------------------

    def accepted(self, connection: Connection) -> None:
        """Watch over a new connection."""
        self._connections.add(connection)

    def introduce(self, connection: Connection, client: str) -> str:
        """Give the connection its client id; whoever has the same one has to go."""
        name = client or f"unnamed-{next(self._unnamed)}"
        former = self._clients.get(name)
        self._clients[name] = connection
        if former is not None:
            former.send_will()
            former.abort()
        return name

    def lost(self, connection: Connection, client: str) -> None:
        """Forget a connection."""
        self._connections.discard(connection)
        self._written.discard(connection)
        self.router.forget(connection)
        if self._clients.get(client) is connection:
            del self._clients[client]

    def relay(self, message: Publish) -> None:
        """Hand a message to all who subscribed to its topic; `flush` sends it."""
        if message.retain:
            self.router.retain(message)
        plain = encode(Publish(message.topic, message.payload))
        for receiver, qos in self.router.receivers(message.topic):
            if qos and message.qos:
                receiver.deliver(message.topic, message.payload)
            else:
                receiver.write(plain)
            self._written.add(receiver)

    def flush(self, publisher: Connection) -> None:
        """Send what a publisher's packets caused, and hold it while a reader of it is slow."""
        for receiver in self._written:
            receiver.flush()
            if receiver.slow:
                receiver.hold(publisher)
        self._written.clear()


class Connection(asyncio.Protocol):
    """One client, from its CONNECT to its end."""

    _transport: asyncio.Transport

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._frames = Frames()
        self._unsent: list[bytes] = []
        self._client = ""
        self._identity: Identity | None = None
        self._secure = False
        self._connected = False
        self._closing = False
        self._will: Publish | None = None
        self._allowance = 0.0
        self._deadline = 0.0
        self._numbers = cycle(range(1, 2**16))
        self.slow = False
        """Whether the client reads more slowly than we send."""
        self._held_back: set[Connection] = set()
        """Publishers that wait until this reader has caught up."""
        self._waits_for: set[Connection] = set()
        """Readers that this publisher waits for."""

    # --- called by the event loop ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: the client has to introduce itself soon."""
        transport = cast("asyncio.Transport", transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(high=UNSENT)
        self._transport = transport
        self._secure = transport.get_extra_info("sslcontext") is not None
        self._identity = tls.identity_of(transport.get_extra_info("peercert"))
        self._deadline = _now() + CONNECT_WITHIN
        self._broker.accepted(self)

    def data_received(self, data: bytes) -> None:
        """Act on the packets that are complete; a peer that breaks the rules is cut off."""
        if self._allowance:
            self._deadline = _now() + self._allowance
        try:
            self._take_all(data)
        except ProtocolError as error:
            logger.warning("closing the connection of %s: %s", self._client or "nobody", error)
            self.abort()
        self.flush()
        self._broker.flush(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - any end is an end
        """Leave no trace but the will."""
        self._closing = True
        self._broker.lost(self, self._client)
        for reader in tuple(self._waits_for):
            reader.release(self)
        self._release_all()
        self.send_will()

    def pause_writing(self) -> None:
        """Note that the client reads more slowly than we send."""
        self.slow = True

    def resume_writing(self) -> None:
        """Note that the client has caught up."""
        self.slow = False
        self._release_all()

    # --- sending --------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Put bytes behind those to be sent; `flush` sends them, many in one go."""
        self._unsent.append(data)

    def flush(self) -> None:
        """Send what was written."""
        if self._unsent:
            data = b"".join(self._unsent)
            self._unsent.clear()
            if not self._transport.is_closing():
                self._transport.write(data)

    def deliver(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> None:
        """Write a message that has a number of its own here, or a mark that it is an old one."""
        number = next(self._numbers) if qos else 0
        self.write(encode(Publish(topic, payload, qos, retain, packet=number)))

    def abort(self) -> None:
        """End the connection at once, with what is still unsent."""
        self._closing = True
        self._transport.abort()

    def check(self) -> None:
        """Cut a client off that is silent for too long."""
        if self._waits_for:
            # We do not read from it, so its pings wait as well: it should not think us dead.
            self._deadline = max(self._deadline, _now() + self._allowance)
            self.write(encode(Signal(Kind.PINGRESP)))
            self.flush()
        elif _now() > self._deadline and (self._allowance or not self._connected or self._closing):
            self.abort()

    def send_will(self) -> None:
        """Publish the will, once, as the client could have published it."""
        will, self._will = self._will, None
        if will and self._broker.may(self._identity, "publish", will.topic):
            self._broker.relay(will)
            self._broker.flush(self)

    # --- slow readers ---------------------------------------------------------------------------

    def hold(self, publisher: Connection) -> None:
        """Read nothing more from a publisher until this reader has caught up."""
        if publisher._closing or self._closing:
            return
        if not publisher._waits_for:
            publisher._transport.pause_reading()
        publisher._waits_for.add(self)
        self._held_back.add(publisher)

    def release(self, publisher: Connection) -> None:
        """Read from a publisher again, if it waits for nobody else."""
        self._held_back.discard(publisher)
        publisher._waits_for.discard(self)
        if not publisher._waits_for and not publisher._closing:
            publisher._transport.resume_reading()

    def _release_all(self) -> None:
        for publisher in tuple(self._held_back):
            self.release(publisher)

    # --- packets --------------------------------------------------------------------------------

    def _take_all(self, data: bytes) -> None:
        for head, body in self._frames.feed(data):
            self._take(decode(head, body))
            if self._closing:
                return
        if not self._connected and self._frames.begun not in {None, Kind.CONNECT << 4}:
            raise ProtocolError("the first packet will be no CONNECT")

    def _take(self, packet: Packet) -> None:
        if not self._connected:
            if not isinstance(packet, Connect):
                raise ProtocolError("the first packet is no CONNECT")
            self._connect(packet)
            return
        match packet:
            case Publish():
                self._publish(packet)
            case Acknowledgement(Kind.PUBACK):
                pass  # TCP has delivered it, and no session outlives the connection
            case Subscribe(number, wishes):
                self._subscribe(number, wishes)
            case Unsubscribe(number, filters):
                for filter_ in filters:
                    self._broker.router.unsubscribe(self, filter_)
                self.write(encode(Acknowledgement(Kind.UNSUBACK, number)))
            case Signal(Kind.PINGREQ):
                self.write(encode(Signal(Kind.PINGRESP)))
            case Signal(Kind.DISCONNECT):
                self._will = None
                self._close()
            case _:
                raise ProtocolError(f"a client does not send {type(packet).__name__}")

    def _connect(self, packet: Connect) -> None:
        answer = Answer.ACCEPTED
        if packet.level != LEVEL:
            answer = Answer.WRONG_VERSION
        elif not packet.client and not packet.clean:
            answer = Answer.WRONG_CLIENT_ID
        elif self._secure and self._identity is None:
            answer = Answer.NOT_AUTHORISED
        self.write(encode(Connack(answer)))
        if answer is not Answer.ACCEPTED:
            self._close()
            return
        self._connected = True
        name = self._identity.common_name if self._identity else packet.client
        self._client = self._broker.introduce(self, name)
        self._will = packet.will
        self._allowance = packet.keepalive * PATIENCE
        self._deadline = _now() + self._allowance

    def _publish(self, packet: Publish) -> None:
        if packet.qos > MOST_QOS:
            raise ProtocolError("QoS 2 is not relayed here")
        # MQTT 3.1.1 cannot say no: a message that may not be published is acknowledged and dropped.
        if self._broker.may(self._identity, "publish", packet.topic):
            self._broker.relay(packet)
        if packet.qos:
            self.write(encode(Acknowledgement(Kind.PUBACK, packet.packet)))

    def _subscribe(self, number: int, wishes: tuple[tuple[str, int], ...]) -> None:
        granted = bytearray()
        kept: list[tuple[Publish, int]] = []
        for filter_, wish in wishes:
            if not self._broker.may(self._identity, "subscribe", filter_):
                granted.append(REFUSED)
                continue
            qos = min(wish, MOST_QOS)
            granted.append(qos)
            self._broker.router.subscribe(self, filter_, qos)
            kept += [(message, qos) for message in self._broker.router.retained(filter_)]
        self.write(encode(Suback(number, bytes(granted))))
        for message, qos in kept:
            self.deliver(message.topic, message.payload, qos=min(qos, message.qos), retain=True)

    def _close(self) -> None:
        """End the connection when its last bytes are sent."""
        self._closing = True
        self._deadline = _now() + CONNECT_WITHIN
        self.flush()
        self._transport.close()


def _now() -> float:
    return asyncio.get_running_loop().time()
