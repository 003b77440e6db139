"""What a participant has sent in an episode, so that it can send it again to whoever lost it.

A participant's state follows from its inputs. Where a run goes on after a loss, whoever sent a
message keeps it until the episode ends: who is started again is told everything once more, says
everything once more, and what comes twice is compared and dropped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

Publish = Callable[[str, bytes], None]
"""Publishes a payload to a topic."""


class Outgoing:
    """Messages to each receiver, numbered from 1 in the order in which they were sent.

    >>> sent = []
    >>> outgoing = Outgoing(lambda topic, payload: sent.append(payload))
    >>> outgoing.send("fog-1", "placement/fog-1", b"first")
    >>> outgoing.send("fog-1", "placement/fog-1", b"second")
    >>> outgoing.repeat("fog-1", received=1)
    >>> sent
    [b'first', b'second', b'second']
    """

    def __init__(self, publish: Publish, *, keeps: bool = True) -> None:
        """Begin empty; where it does not keep them, messages are sent once."""
        self._publish, self._keeps = publish, keeps
        self.begin()

    def begin(self) -> None:
        """Begin an episode: nothing of the last one will be asked for again."""
        self._sent: defaultdict[str, list[tuple[str, bytes]]] = defaultdict(list)

    def send(self, receiver: str, topic: str, payload: bytes) -> None:
        """Publish a message, and keep it."""
        self.keep(receiver, topic, payload)
        self._publish(topic, payload)

    def keep(self, receiver: str, topic: str, payload: bytes) -> None:
        """Keep a message that was sent before."""
        if self._keeps:
            self._sent[receiver].append((topic, payload))

    def repeat(self, receiver: str, received: int = 0) -> None:
        """Publish again what follows the messages that a receiver has."""
        for topic, payload in self._sent[receiver][received:]:
            self._publish(topic, payload)
