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
from fogveil.protocol.channels import HEARD, PROTOCOL, REFUSALS, WELCOME, dial
from fogveil.protocol.identity import CLOCK, Identity
from fogveil.protocol.recording import Recording
from fogveil.protocol.settings import Settings
from fogveil.v1.clock_pb2 import Hello, JoinRequest, JoinResponse, Lost, Missing, Repeat
from fogveil.v1.clock_pb2_grpc import ClockServiceStub

FastPath = Callable[[JoinResponse], Awaitable[None] | None]
"""Carries out an order whose inputs are all there, and returns what is left to await.

None means that the order has to wait for something; it then goes to whoever iterates `orders`.
"""

REPORT_WITHIN = 1.0
"""Seconds in which a failing participant tries to report whom it lost."""
BACK_WITHIN = 120.0
"""Seconds in which a clock that was lost must be back, where the run goes on after a loss."""
RETRY_EVERY = 0.1


class ClockClient:
    """One participant's stream to the clock; made by `join_clock`.

    An order takes one of two ways. `receive` reads the stream and offers each order to the fast
    path, if there is one and nothing is being worked on; all others go through `orders`, to a task
    that may wait for messages of other participants meanwhile.

    Where the run goes on after a loss, `receive` joins a clock again that was lost. It says how
    many orders of the episode it has, and says once more all that it has said in it.
    """

    def __init__(self, settings: Settings, recording: Recording | None) -> None:
        self._settings, self._recording = settings, recording
        self._channel: aio.Channel | None = None
        self._call: Any = None
        self._said: list[JoinRequest] = []
        """Answers of this episode, where they may be needed again; else those not yet written."""
        self._written = 0
        """How many of them this stream has carried."""
        self._news = asyncio.Event()
        self._write_lock = asyncio.Lock()
        self._orders: asyncio.Queue[JoinResponse] = asyncio.Queue()
        self._episode = self._received = 0
        """Orders of this episode."""
        self._heard = 0
        """How many of our answers of this episode the clock had heard when we joined."""
        self._loss_reported = False
        self._receiving = self._ended = False
        self._stream_ended = asyncio.Event()
        self._idle = False
        """Whoever iterates `orders` waits for the next one."""
        self.on_repeat: Callable[[Repeat], None] = lambda _repeat: None
        """Called where somebody lacks messages that we have published."""
        self.time = 0.0
        """The last instant that was granted."""

    @property
    def repeats(self) -> bool:
        """Whether we were lost, and have not yet said everything once more."""
        return len(self._said) < self._heard

    # --- what we say -----------------------------------------------------------------------------

    def send(self, **kind: Any) -> None:
        """Queue an answer to the clock, as `agent_done=AgentDone(…)`."""
        self._said.append(JoinRequest(**kind))
        self._news.set()

    async def send_now(self, message: JoinRequest) -> None:
        """Send an answer before anything else is done."""
        self._said.append(message)
        await self._write_answers()

    async def send_queued(self) -> None:
        """Send what is queued, for as long as the run lasts."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self._write_answers()

    async def _write_answers(self) -> None:
        async with self._write_lock:
            call = self._call
            while self._written < len(self._said):
                message = self._said[self._written]
                if self._settings.recovers:
                    self._written += 1
                else:
                    del self._said[0]
                if not await _write(call, message):
                    return

    def ask(self, sender: str, received: int) -> None:
        """Ask for messages of another participant that must have been sent by now."""
        self._say_aside(JoinRequest(missing=Missing(name=sender, received=received)))

    def report_lost(self, name: str) -> None:
        """Tell the clock whom we lost and expect back."""
        self._say_aside(JoinRequest(lost=Lost(name=name)))

    def _say_aside(self, message: JoinRequest) -> None:
        """Send what is no answer, and is not said again."""

        async def write() -> None:
            async with self._write_lock:
                await _write(self._call, message)

        self._aside = asyncio.ensure_future(write())

    # --- the stream ------------------------------------------------------------------------------

    async def join(self) -> None:
        """Connect, and wait until the clock has admitted us: it refuses a second one of a name."""
        settings = self._settings
        async with self._write_lock:
            await self.close()
            peer = Identity(settings.run, CLOCK, CLOCK)
            self._channel = dial(settings, settings.clock, peer, self._recording)
            self._call = ClockServiceStub(self._channel).Join()
            hello = Hello(
                name=settings.name,
                protocol=PROTOCOL,
                run=settings.run,
                received=self._received,
                episode=self._episode if self._received else 0,
                said=len(self._said) if settings.recovers else 0,
            )
            await _write(self._call, JoinRequest(hello=hello))
            metadata = await self._call.initial_metadata()
            if not set(WELCOME) <= set(metadata or ()):
                raise self._stream_error(await self._call.code(), await self._call.details())
            if settings.recovers:
                self._written = 0
                self._heard = int(dict(metadata or ()).get(HEARD, 0))
        self._news.set()

    async def join_again(self, error: FogveilError) -> None:
        """Join a clock that is back, or raise the error if it does not come back."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + BACK_WITHIN
        while loop.time() < deadline:
            try:
                async with asyncio.timeout(BACK_WITHIN / 10):
                    await self.join()
            except (LostError, aio.AioRpcError, TimeoutError):
                await asyncio.sleep(RETRY_EVERY)
            else:
                return
        raise error

    async def close(self) -> None:
        """Leave the stream."""
        if self._channel:
            self._call.cancel()
            await self._channel.close()
            self._channel = None

    def _stream_error(self, code: Any, details: str | None) -> FogveilError:
        if code in REFUSALS:
            return InputError(f"the clock refused: {safe_text(details or '')}")
        return LostError(CLOCK, f"the clock was lost at simulated time {self.time:.6g}")

    # --- what we are told ------------------------------------------------------------------------

    async def receive(self, fast_path: FastPath | None = None) -> None:
        """Read the clock's orders until the run is over; raise if the run or the clock failed.

        Waking the task that iterates `orders` is a good part of a provider's work in lockstep: the
        fast path saves it.
        """
        self._receiving = True
        try:
            while True:
                try:
                    await self._read(fast_path)
                except LostError as error:
                    if self._ended:  # the run is over, whatever became of the clock since
                        return
                    if not self._settings.recovers:
                        raise
                    await self.join_again(error)
        finally:
            self._stream_ended.set()

    async def _read(self, fast_path: FastPath | None) -> None:
        read = self._call.read
        try:
            while True:
                order: Any = await read()
                if order is aio.EOF:
                    raise self._stream_error(None, None)
                if self._settings.recovers and not self._takes(order):
                    continue
                if fast_path and self._idle and (pending := fast_path(order)):
                    self.time = order.grant.until
                    with suppress(aio.BaseError):  # a peer is lost: the clock will name it
                        await pending
                    continue
                if order.HasField("end"):
                    self._ended = True
                    if order.end.failed:
                        raise InfrastructureError(safe_text(order.end.sentence))
                self._idle = False
                self._orders.put_nowait(order)
        except aio.AioRpcError as error:
            raise self._stream_error(error.code(), error.details()) from error

    def _takes(self, order: JoinResponse) -> bool:
        """Count an order; return whether there is more to do with it."""
        kind = order.WhichOneof("kind")
        if kind == "repeat":
            self.on_repeat(order.repeat)
            return False
        if kind == "begin":  # all answers of the last episode were heard
            if self._received:
                self._heard = 0
            self._episode, self._received = order.begin.episode, 0
            self._said.clear()
            self._written = 0
        self._received += 1
        return True

    async def orders(self) -> AsyncIterator[JoinResponse]:
        """Yield the clock's orders until the run is over."""
        while not (order := await self._orders.get()).HasField("end"):
            if isfinite(order.grant.until):  # 0 where an episode begins
                self.time = order.members.time or order.grant.until
            yield order
            self._idle = self._orders.empty()

    async def report_loss(self, lost: str) -> None:
        """Tell the clock whom we lost for good, if it can still be reached."""
        if lost == CLOCK or self._loss_reported:
            return
        self._loss_reported = True
        try:
            async with asyncio.timeout(REPORT_WITHIN):
                async with self._write_lock:
                    await _write(self._call, JoinRequest(lost=Lost(name=lost)))
                # Sent is not read: the clock drops what it has not read of a stream that is
                # cancelled. So wait until it answers.
                if not self._receiving:
                    await self.receive()
                await self._stream_ended.wait()
        except (TimeoutError, FogveilError):
            pass


async def _write(call: Any, message: JoinRequest) -> bool:
    """Write a message; return whether the stream still carries any."""
    try:
        await call.write(message)
    except (aio.AioRpcError, asyncio.InvalidStateError):
        return False  # `receive` finds out why, and raises it
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():  # it is we who are cancelled, not the stream
            raise
        return False
    return True


@asynccontextmanager
async def join_clock(
    settings: Settings, recording: Recording | None = None
) -> AsyncIterator[ClockClient]:
    """Join the clock for the run; leaving the context leaves the run."""
    clock = ClockClient(settings, recording)
    sending = asyncio.ensure_future(clock.send_queued())
    try:
        if settings.recovers:
            await clock.join_again(LostError(CLOCK, "the clock cannot be reached"))
        else:
            await clock.join()
        yield clock
    except LostError as error:
        await clock.report_loss(error.who)
        raise
    finally:
        sending.cancel()
        await clock.close()
