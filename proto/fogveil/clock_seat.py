"""A participant's seat at the clock: it joins, receives orders, and says what it has done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from math import isfinite
from typing import Any

from grpc import aio

from fogveil.channels import PROTOCOL, REFUSALS, WELCOME, dial
from fogveil.errors import FogveilError, InputError, LostError, SurroundingsError
from fogveil.identity import CLOCK, Identity
from fogveil.recording import Recording
from fogveil.settings import Settings
from fogveil.v1.clock_pb2 import Hello, JoinRequest, JoinResponse, Lost
from fogveil.v1.clock_pb2_grpc import ClockServiceStub

AtOnce = Callable[[JoinResponse], Awaitable[bool]]
"""Carries an order out, or says that this has to wait for something."""

LAST_WORD = 1.0
"""Seconds in which a participant that fails still tries to say whom it lost."""


class ClockSeat:
    """Made by `join_clock`."""

    def __init__(self, call: aio.StreamStreamCall[JoinRequest, JoinResponse]) -> None:
        self._call = call
        self._words: asyncio.Queue[JoinRequest] = asyncio.Queue()
        self._orders: asyncio.Queue[JoinResponse] = asyncio.Queue()
        self._left = False
        self._idle = False
        """Whoever follows the orders waits for the next one."""
        self.time = 0.0
        """The last instant that was granted."""

    def say(self, **kind: Any) -> None:
        """Say something to the clock, as `agent_done=AgentDone(…)`."""
        self._words.put_nowait(JoinRequest(**kind))

    async def be_welcome(self) -> None:
        """Wait until the clock has let us in: of two of one name the second goes no further."""
        heard = await self._call.initial_metadata()
        if not set(WELCOME) <= set(heard or ()):
            raise self._ended(await self._call.code(), await self._call.details())

    def _ended(self, code: Any, details: str | None) -> FogveilError:
        if code in REFUSALS:
            return InputError(f"the clock refused: {details}")
        return LostError(CLOCK, f"the clock was lost at simulated time {self.time:.6g}")

    async def speak(self) -> None:
        """Send what was said, for as long as the run lasts."""
        try:
            while True:
                await self._call.write(await self._words.get())
                self._words.task_done()
        except (aio.AioRpcError, asyncio.InvalidStateError):
            pass  # reading finds out why, and says it

    async def hear(self, at_once: AtOnce | None = None) -> None:
        """Read what the clock says, whatever else is awaited; fail if it fails or is lost.

        An order that can be carried out at once need not wake the task that follows the orders:
        in lockstep that detour is a good part of a provider's work.
        """
        while True:
            try:
                order: Any = await self._call.read()
            except aio.AioRpcError as error:
                raise self._ended(error.code(), error.details()) from error
            if order is aio.EOF:
                raise self._ended(None, None)
            if order.WhichOneof("kind") == "end" and order.end.failed:
                raise SurroundingsError(order.end.sentence)
            if at_once and self._idle and await at_once(order):
                self._note_time(order)
                continue
            self._idle = False
            self._orders.put_nowait(order)

    async def orders(self) -> AsyncIterator[JoinResponse]:
        """Yield what the clock orders, until the run is over."""
        while not (order := await self._orders.get()).HasField("end"):
            self._note_time(order)
            yield order
            self._idle = self._orders.empty()

    def _note_time(self, order: JoinResponse) -> None:
        if isfinite(order.grant.until):  # 0 where it begins
            self.time = order.grant.until

    async def leave(self, lost: str) -> None:
        """Tell the clock whom we lost, if it can still be told."""
        if lost == CLOCK or self._left:
            return
        self._left = True
        self.say(lost=Lost(name=lost))
        try:
            async with asyncio.timeout(LAST_WORD):
                await self._words.join()
        except TimeoutError:
            pass


@asynccontextmanager
async def join_clock(
    settings: Settings, recording: Recording | None = None
) -> AsyncIterator[ClockSeat]:
    """Take the participant's seat for the run."""
    channel = dial(settings, settings.clock, Identity(settings.run, CLOCK, CLOCK), recording)
    call = ClockServiceStub(channel).Join()
    seat = ClockSeat(call)
    hello = Hello(name=settings.name, protocol=PROTOCOL, run=settings.run)
    seat.say(hello=hello)
    speaking = asyncio.ensure_future(seat.speak())
    try:
        await seat.be_welcome()
        yield seat
    except LostError as error:
        await seat.leave(error.who)
        raise
    finally:
        speaking.cancel()
        call.cancel()
        await channel.close()
