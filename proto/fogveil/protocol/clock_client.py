"""A participant's connection to the clock: it joins, receives orders, and answers them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from math import isfinite
from typing import Any

from grpc import aio

from fogveil.core.errors import FogveilError, InfrastructureError, InputError, LostError
from fogveil.core.safe_text import safe_text
from fogveil.protocol.channels import PROTOCOL, REFUSALS, WELCOME, dial
from fogveil.protocol.identity import CLOCK, Identity
from fogveil.protocol.recording import Recording
from fogveil.protocol.settings import Settings
from fogveil.v1.clock_pb2 import Hello, JoinRequest, JoinResponse, Lost
from fogveil.v1.clock_pb2_grpc import ClockServiceStub

FastPath = Callable[[JoinResponse], Awaitable[None] | None]
"""Carries out an order whose inputs are all there, and returns what is left to await.

None means that the order has to wait for something; it then goes to whoever iterates `orders`.
"""

REPORT_WITHIN = 1.0
"""Seconds in which a failing participant tries to report whom it lost."""


class ClockClient:
    """One participant's stream to the clock; made by `join_clock`.

    An order takes one of two ways. `receive` reads the stream and offers each order to the fast
    path, if there is one and nothing is being worked on; all others go through `orders`, to a task
    that may wait for messages of other participants meanwhile.
    """

    def __init__(self, call: aio.StreamStreamCall[JoinRequest, JoinResponse]) -> None:
        self._call = call
        self._outgoing: asyncio.Queue[JoinRequest] = asyncio.Queue()
        self._write_lock = asyncio.Lock()
        self._orders: asyncio.Queue[JoinResponse] = asyncio.Queue()
        self._loss_reported = False
        self._receiving = False
        self._stream_ended = asyncio.Event()
        self._idle = False
        """Whoever iterates `orders` waits for the next one."""
        self.time = 0.0
        """The last instant that was granted."""

    def send(self, **kind: Any) -> None:
        """Queue a message to the clock, as `agent_done=AgentDone(…)`."""
        self._outgoing.put_nowait(JoinRequest(**kind))

    async def send_now(self, message: JoinRequest) -> None:
        """Send a message before those that are queued."""
        try:
            async with self._write_lock:
                await self._call.write(message)
        except (aio.AioRpcError, asyncio.InvalidStateError):
            pass  # `receive` finds out why, and raises it

    async def send_queued(self) -> None:
        """Send what is queued, for as long as the run lasts."""
        while True:
            await self.send_now(await self._outgoing.get())
            self._outgoing.task_done()

    async def wait_for_admission(self) -> None:
        """Wait until the clock has admitted us: it refuses a second participant of one name."""
        metadata = await self._call.initial_metadata()
        if not set(WELCOME) <= set(metadata or ()):
            raise self._stream_error(await self._call.code(), await self._call.details())

    def _stream_error(self, code: Any, details: str | None) -> FogveilError:
        if code in REFUSALS:
            return InputError(f"the clock refused: {safe_text(details or '')}")
        return LostError(CLOCK, f"the clock was lost at simulated time {self.time:.6g}")

    async def receive(self, fast_path: FastPath | None = None) -> None:
        """Read the clock's orders until the stream ends; raise if the run or the clock failed.

        Waking the task that iterates `orders` is a good part of a provider's work in lockstep: the
        fast path saves it.
        """
        self._receiving = True
        read = self._call.read
        try:
            while True:
                order: Any = await read()
                if order is aio.EOF:
                    raise self._stream_error(None, None)
                if fast_path and self._idle and (pending := fast_path(order)):
                    self.time = order.grant.until
                    with suppress(aio.BaseError):  # a peer is lost: the clock will name it
                        await pending
                    continue
                if order.HasField("end") and order.end.failed:
                    raise InfrastructureError(safe_text(order.end.sentence))
                self._idle = False
                self._orders.put_nowait(order)
        except aio.AioRpcError as error:
            raise self._stream_error(error.code(), error.details()) from error
        finally:
            self._stream_ended.set()

    async def orders(self) -> AsyncIterator[JoinResponse]:
        """Yield the clock's orders until the run is over."""
        while not (order := await self._orders.get()).HasField("end"):
            if isfinite(order.grant.until):  # 0 where an episode begins
                self.time = order.members.time or order.grant.until
            yield order
            self._idle = self._orders.empty()

    async def report_loss(self, lost: str) -> None:
        """Tell the clock whom we lost, if it can still be reached."""
        if lost == CLOCK or self._loss_reported:
            return
        self._loss_reported = True
        self.send(lost=Lost(name=lost))
        try:
            async with asyncio.timeout(REPORT_WITHIN):
                await self._outgoing.join()
                # Sent is not read: the clock drops what it has not read of a stream that is
                # cancelled. So wait until it answers.
                if not self._receiving:
                    await self.receive()
                await self._stream_ended.wait()
        except (TimeoutError, FogveilError):
            pass


@asynccontextmanager
async def join_clock(
    settings: Settings, recording: Recording | None = None
) -> AsyncIterator[ClockClient]:
    """Join the clock for the run; leaving the context leaves the run."""
    channel = dial(settings, settings.clock, Identity(settings.run, CLOCK, CLOCK), recording)
    call = ClockServiceStub(channel).Join()
    clock = ClockClient(call)
    clock.send(hello=Hello(name=settings.name, protocol=PROTOCOL, run=settings.run))
    sending = asyncio.ensure_future(clock.send_queued())
    try:
        await clock.wait_for_admission()
        yield clock
    except LostError as error:
        await clock.report_loss(error.who)
        raise
    finally:
        sending.cancel()
        call.cancel()
        await channel.close()
