"""A participant's seat at the clock: it joins, receives orders, and says what it has done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
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

AtOnce = Callable[[JoinResponse], Awaitable[None] | None]
"""Carries an order out, up to what is left to await; None if it has to wait for something."""

LAST_WORD = 1.0
"""Seconds in which a participant that fails still tries to say whom it lost."""


class ClockSeat:
    """Made by `join_clock`."""

    def __init__(self, call: aio.StreamStreamCall[JoinRequest, JoinResponse]) -> None:
        self._call = call
        self._words: asyncio.Queue[JoinRequest] = asyncio.Queue()
        self._sending = asyncio.Lock()
        self._orders: asyncio.Queue[JoinResponse] = asyncio.Queue()
        self._left = False
        self._hearing = False
        self._heard_all = asyncio.Event()
        """The clock has said its last word."""
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
        while True:
            await self.tell(await self._words.get())
            self._words.task_done()

    async def tell(self, word: JoinRequest) -> None:
        """Send a word here and now, whatever was said and is not sent yet."""
        try:
            async with self._sending:
                await self._call.write(word)
        except (aio.AioRpcError, asyncio.InvalidStateError):
            pass  # reading finds out why, and says it

    async def hear(self, at_once: AtOnce | None = None) -> None:
        """Read what the clock says, whatever else is awaited; fail if it fails or is lost.

        An order that can be carried out at once need not wake the task that follows the orders:
        in lockstep that detour is a good part of a provider's work.
        """
        self._hearing = True
        read = self._call.read
        try:
            while True:
                order: Any = await read()
                if order is aio.EOF:
                    raise self._ended(None, None)
                if at_once and self._idle and (doing := at_once(order)):
                    self.time = order.grant.until
                    with suppress(aio.BaseError):  # somebody is lost: the clock will say whom
                        await doing
                    continue
                if order.HasField("end") and order.end.failed:
                    raise SurroundingsError(order.end.sentence)
                self._idle = False
                self._orders.put_nowait(order)
        except aio.AioRpcError as error:
            raise self._ended(error.code(), error.details()) from error
        finally:
            self._heard_all.set()

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
                # It is sent, and our end of the stream could still overtake it: the clock drops
                # what it has not read of a stream that is cancelled. So wait until it answers.
                if not self._hearing:
                    await self.hear()
                await self._heard_all.wait()
        except (TimeoutError, FogveilError):
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
