"""Which client receives which message: subscriptions, wildcards, retained messages; no I/O."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from fogveil.broker.mqtt_packets import ProtocolError, Publish

Client = TypeVar("Client", bound=Hashable)
CACHE_SIZE = 4096
"""Topics whose receivers are cached: a run publishes often, to few topics."""

RETAINED_LIMIT = 64 * 2**20
"""Bytes of retained messages and their topics, in all."""


def _size(message: Publish) -> int:
    return len(message.topic) + len(message.payload)


def matches(filter_: str, topic: str) -> bool:
    """Return whether a filter matches a topic.

    >>> matches("a/+/c", "a/b/c"), matches("a/#", "a"), matches("#", "$SYS/uptime")
    (True, True, False)
    """
    # Topics that begin with $ are the broker's: wildcards do not match their first level.
    if topic.startswith("$") and filter_[0] in "+#":
        return False
    wanted, levels = filter_.split("/"), topic.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        del levels[len(wanted) :]  # any number of levels, also none: a/# matches a
    return len(wanted) == len(levels) and all(
        want in {"+", level} for want, level in zip(wanted, levels, strict=True)
    )


class Router(Generic[Client]):
    """The subscriptions of all clients, and the retained message of each topic."""

    def __init__(self) -> None:
        self._filters: dict[Client, dict[str, int]] = {}
        self._receivers: dict[str, list[tuple[Client, int]]] = {}
        """The cache, by topic."""
        self._retained: dict[str, Publish] = {}
        self._retained_size = 0

    def subscribe(self, client: Client, filter_: str, qos: int) -> None:
        """Add a subscription, or change its QoS."""
        self._filters.setdefault(client, {})[filter_] = qos
        self._receivers.clear()

    def unsubscribe(self, client: Client, filter_: str) -> None:
        """Remove a subscription, if there is one."""
        if self._filters.get(client, {}).pop(filter_, None) is not None:
            self._receivers.clear()

    def remove(self, client: Client) -> None:
        """Remove all subscriptions of a client."""
        self._filters.pop(client, None)
        self._receivers.clear()

    def receivers(self, topic: str) -> list[tuple[Client, int]]:
        """Return the subscribers of a topic, each once, with the highest QoS it asked for."""
        receivers = self._receivers.get(topic)
        if receivers is None:
            if len(self._receivers) >= CACHE_SIZE:
                self._receivers.clear()
            receivers = self._receivers[topic] = list(self._match(topic))
        return receivers

    def _match(self, topic: str) -> Iterator[tuple[Client, int]]:
        for client, filters in self._filters.items():
            granted = [qos for filter_, qos in filters.items() if matches(filter_, topic)]
            if granted:
                yield client, max(granted)

    def retain(self, message: Publish) -> None:
        """Retain a message for later subscribers; an empty one deletes the retained message."""
        former = self._retained.pop(message.topic, None)
        self._retained_size += _size(message) - (_size(former) if former else 0)
        if not message.payload:
            self._retained_size -= _size(message)
        elif self._retained_size > RETAINED_LIMIT:
            self._retained_size -= _size(message)
            raise ProtocolError("the broker retains as much as it can hold")
        else:
            self._retained[message.topic] = message

    def retained(self, filter_: str) -> list[Publish]:
        """Return the retained messages that match a filter."""
        return [message for topic, message in self._retained.items() if matches(filter_, topic)]
