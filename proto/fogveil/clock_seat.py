"""A participant's seat at the clock: it joins, receives orders, and says what it has done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import isfinite
from typing import Any

from grpc import aio

from fogveil.channels import PROTOCOL, REFUSALS, dial
from fogveil.errors import InputError, LostError, SurroundingsError
from fogveil.settings import Settings
from fogveil.v1.clock_pb2 import Hello, JoinRequest, JoinResponse, Lost
from fogveil.v1.clock_pb2_grpc import ClockServiceStub

LAST_WORD = 1.0
"""Seconds in which a participant that fails still tries to say whom it lost."""


class ClockSeat:
    """Made by `join_clock`."""

    def __init__(self, call: aio.StreamStreamCall[JoinRequest, JoinResponse]) -> None:
        self._call = call
        self._words: asyncio.Queue[JoinRequest] = asyncio.Queue()
        self._orders: asyncio.Queue[JoinResponse] = asyncio.Queue()
        self.time = 0.0
        """The last instant that was granted."""

    def say(self, **kind: Any) -> None:
        """Say something to the clock, as `agent_done=AgentDone(…)`."""
        self._words.put_nowait(JoinRequest(**kind))

    async def speak(self) -> None:
        """Send what was said, for as long as the run lasts."""
        try:
            while True:
                await self._call.write(await self._words.get())
                self._words.task_done()
        except (aio.AioRpcError, asyncio.InvalidStateError):
            pass  # reading finds out why, and says it

    async def hear(self) -> None:
        """Read what the clock says, whatever else is awaited; fail if it fails or is lost."""
        while True:
            try:
                order: Any = await self._call.read()
            except aio.AioRpcError as error:
                if error.code() in REFUSALS:
                    raise InputError(f"the clock refused: {error.details()}") from error
                order = aio.EOF
            if order is aio.EOF:
                raise LostError("clock", f"the clock was lost at simulated time {self.time:.6g}")
            if order.WhichOneof("kind") == "end" and order.end.failed:
                raise SurroundingsError(order.end.sentence)
            self._orders.put_nowait(order)

    async def orders(self) -> AsyncIterator[JoinResponse]:
        """Yield what the clock orders, until the run is over."""
        while (kind := (order := await self._orders.get()).WhichOneof("kind")) != "end":
            if kind == "begin":
                self.time = 0.0
            elif isfinite(order.grant.until):
                self.time = order.grant.until
            yield order

    async def leave(self, lost: str) -> None:
        """Tell the clock whom we lost, if it can still be told."""
        if lost == "clock":
            return
        self.say(lost=Lost(name=lost))
        try:
            async with asyncio.timeout(LAST_WORD):
                await self._words.join()
        except TimeoutError:
            pass


@asynccontextmanager
async def join_clock(settings: Settings) -> AsyncIterator[ClockSeat]:
    """Take the participant's seat for the run."""
    async with dial(settings.clock) as channel:
        call = ClockServiceStub(channel).Join()
        seat = ClockSeat(call)
        hello = Hello(name=settings.name, protocol=PROTOCOL, run=settings.run)
        seat.say(hello=hello)
        speaking = asyncio.ensure_future(seat.speak())
        try:
            yield seat
        finally:
            speaking.cancel()
            call.cancel()
