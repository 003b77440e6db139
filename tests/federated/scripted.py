"""A participant's process between a clock and a broker that are the test's, and examples for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from hypothesis import given, seed, settings

from fogveil.v1.clock_pb2 import Begin, Grant, JoinResponse

EPISODE = 3
LIMIT = 10.0
"""Seconds after which a participant waits in vain."""
ROUNDS = 8
BEGIN = JoinResponse(begin=Begin(episode=EPISODE))
Step = JoinResponse | Callable[[], JoinResponse | None]
"""An order, or something to do at that moment, which may result in an order."""


def grant(until: float, **fields: Any) -> JoinResponse:
    return JoinResponse(grant=Grant(until=until, **fields))


class ScriptedClock:
    """Stands for the client of the clock: gives orders, and keeps the answers."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self._steps = steps
        self.answers: list[Any] = []

    async def orders(self) -> AsyncIterator[JoinResponse]:
        for step in self._steps:
            order = step() if callable(step) else step
            if order is not None:
                yield order

    def send(self, **answer: Any) -> None:
        self.answers.append(answer)

    async def send_now(self, answer: Any) -> None:
        self.answers.append(answer)


class Published:
    """Stands for the client of the broker: keeps what is published."""

    def __init__(self) -> None:
        self._messages: list[tuple[str, bytes]] = []

    def publish(self, topic: str, payload: bytes, **_options: Any) -> None:
        self._messages.append((topic, payload))

    def take(self) -> list[tuple[str, bytes]]:
        """Return what was published since the last call, in order."""
        messages, self._messages = self._messages, []
        return messages

    def on(self, topic: str, kind: Any) -> list[Any]:
        """Return the messages on a topic; their numbers must have no gap."""
        messages = [kind.FromString(payload) for each, payload in self._messages if each == topic]
        assert [message.sequence for message in messages] == list(range(1, len(messages) + 1))
        assert all(message.episode == EPISODE for message in messages)
        return messages


def follow(make: Callable[[], Any], script: Callable[[Any], tuple[Step, ...]]) -> Published:
    """Make a participant's process, let it follow a script, and return what it published."""

    async def run() -> Published:
        process = make()
        process.relay = Published()
        async with asyncio.timeout(LIMIT):
            await process.follow(ScriptedClock(script(process)))
        published: Published = process.relay
        return published

    return asyncio.run(run())


def explore(
    check: Callable[..., None], reached: Callable[[], bool], examples: int = 120, **drawn: Any
) -> None:
    """Check random examples, in rounds, until they have reached all that the test wants.

    Chance may leave a rare case out of one round. Where the fuzz stops at the first gate, cases
    are missing however many rounds there are, and the test that looks for them fails. Each round
    has a seed of its own: where Hypothesis is not random, as it is not in CI, rounds without one
    would all draw the same examples.
    """
    for number in range(ROUNDS):
        seed(number)(settings(max_examples=examples)(given(**drawn)(check)))()
        if reached():
            break
