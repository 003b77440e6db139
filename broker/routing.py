"""Who receives what: subscriptions, wildcards and retained messages, without any I/O."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from broker.packets import Publish

Client = TypeVar("Client", bound=Hashable)
CACHED = 4096
"""Topics whose receivers are remembered: a run uses few topics, each of them often."""


def matches(filter_: str, topic: str) -> bool:
    """Say whether a filter takes a topic in.

    >>> matches("a/+/c", "a/b/c"), matches("a/#", "a"), matches("#", "$SYS/uptime")
    (True, True, False)
    """
    # Topics of the broker's own begin with $: they are for those who ask for them by name.
    if topic.startswith("$") and filter_[0] in "+#":
        return False
    wanted, levels = filter_.split("/"), topic.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        del levels[len(wanted) :]  # what is below, and nothing at all: a/# takes in a as well
    return len(wanted) == len(levels) and all(
        want in {"+", level} for want, level in zip(wanted, levels, strict=True)
    )


class Router(Generic[Client]):
    """The subscriptions of all clients, and the last retained message of each topic."""

    def __init__(self) -> None:
        self._filters: dict[Client, dict[str, int]] = {}
        self._receivers: dict[str, list[tuple[Client, int]]] = {}
        self._retained: dict[str, Publish] = {}

    def subscribe(self, client: Client, filter_: str, qos: int) -> None:
        """Add a subscription, or change its QoS."""
        self._filters.setdefault(client, {})[filter_] = qos
        self._receivers.clear()

    def unsubscribe(self, client: Client, filter_: str) -> None:
        """Take a subscription back, if there is one."""
        self._filters.get(client, {}).pop(filter_, None)
        self._receivers.clear()

    def forget(self, client: Client) -> None:
        """Take all subscriptions of a client back."""
        self._filters.pop(client, None)
        self._receivers.clear()

    def receivers(self, topic: str) -> list[tuple[Client, int]]:
        """Return who gets a message on this topic, each once, with the highest QoS it asked for."""
        found = self._receivers.get(topic)
        if found is None:
            if len(self._receivers) >= CACHED:
                self._receivers.clear()
            found = self._receivers[topic] = list(self._look_up(topic))
        return found

    def _look_up(self, topic: str) -> Iterator[tuple[Client, int]]:
        for client, filters in self._filters.items():
            granted = [qos for filter_, qos in filters.items() if matches(filter_, topic)]
            if granted:
                yield client, max(granted)

    def retain(self, message: Publish) -> None:
        """Keep the message for later subscribers; an empty one ends the keeping."""
        if message.payload:
            self._retained[message.topic] = message
        else:
            self._retained.pop(message.topic, None)

    def retained(self, filter_: str) -> list[Publish]:
        """Return the kept messages that a new subscriber gets at once."""
        return [message for topic, message in self._retained.items() if matches(filter_, topic)]
