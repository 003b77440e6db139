"""The canonical form of an MQTT connection.

Messages are content, in the order of their publisher. Heartbeats are scheduling, and so is how a
broker interleaves what several participants publish.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from fogveil.broker.client import PROBE_TOPIC
from fogveil.broker.mqtt_packets import (
    Acknowledgement,
    Connect,
    EmptyPacket,
    Framer,
    PacketType,
    ProtocolError,
    Publish,
    Suback,
    Subscribe,
    Unsubscribe,
    decode,
)
from fogveil.testbed.privacy.audit.twins.form import Channel, Form

LARGEST_ID = 2**16 - 1
RANDOM_END = re.compile(r"-[0-9a-f]{16}$")
"""Of a client id."""

Publisher = Callable[[str], str]
"""Returns who publishes at a topic."""


def add_direction(
    form: Form,
    channel: Channel,
    content: bytes,
    message_form: Callable[[str, bytes], str],
    publisher: Publisher | None = None,
) -> None:
    """Add one direction of a connection to a form.

    `publisher` is given for what a broker delivers: it comes from whoever published it.
    """
    framer = Framer()
    ids = PacketIds()
    try:
        for header, body in framer.feed(content):
            _add(form, channel, header, body, ids, message_form, publisher)
    except ProtocolError as error:
        form.content[channel].append(f"invalid MQTT: {error}")
    if framer.incomplete is not None:
        form.content[channel].append(f"incomplete packet {framer.incomplete}")
    form.content[channel] += ids.unexpected


class PacketIds:
    """Follows the ids of a client's packets, which must number all it sends."""

    def __init__(self) -> None:
        self._sent = 0
        self.unexpected: list[str] = []

    def count(self, packet_id: int | None = None) -> None:
        """Count a packet, and check its id if it has one."""
        expected = self._sent % LARGEST_ID + 1
        self._sent += 1
        if packet_id is not None and packet_id != expected:
            self.unexpected.append(f"packet {self._sent} has the id {packet_id}")


def _add(
    form: Form,
    channel: Channel,
    header: int,
    body: bytes,
    ids: PacketIds,
    message_form: Callable[[str, bytes], str],
    publisher: Publisher | None,
) -> None:
    packet = decode(header, body)
    items = form.content[channel]
    match packet:
        case Publish():
            ids.count()
            flags = packet.qos, packet.duplicate, packet.retain
            if publisher:
                # Whether a subscriber was there in time decides if it gets a message as retained.
                flags = packet.qos, packet.duplicate, False
                sender = publisher(packet.topic) or channel.sender
                items = form.content[Channel(sender, channel.receiver, "MQTT messages")]
            text = message_form(packet.topic, packet.payload)
            items.append(f"{form.blank(packet.topic)} {flags} {text}")
        case Unsubscribe(packet_id, filters):
            ids.count(packet_id)
            form.artefacts[channel]["heartbeat"] += 1
            if filters != (PROBE_TOPIC,):
                items.append(form.blank(f"UNSUBSCRIBE {filters}"))
        case Acknowledgement(PacketType.UNSUBACK, packet_id):
            form.artefacts[channel]["heartbeat answer"] += 1
        case EmptyPacket(PacketType.PINGREQ | PacketType.PINGRESP as kind):
            form.artefacts[channel][kind.name] += 1
        case EmptyPacket():
            form.endings[channel].add(packet.type.name)
        case Subscribe(packet_id, filters):
            ids.count(packet_id)
            items.append(form.blank(f"SUBSCRIBE {filters}"))
        case Suback(_, codes):
            items.append(f"SUBACK {codes.hex()}")
        case Connect():
            known = packet._replace(client_id=RANDOM_END.sub("", packet.client_id))
            items.append(form.blank(str(known)))
        case _:
            items.append(form.blank(str(packet)))
