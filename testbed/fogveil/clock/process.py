"""The clock's process: participants join it, and it grants them simulated time."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from math import isfinite
from typing import Any

import grpc
from grpc import aio

from fogveil.clock.core import Order, Windows
from fogveil.clock.pace import Pace, PaceOrder
from fogveil.clock.settings import ClockSettings
from fogveil.clock.state import ProtocolError
from fogveil.core.errors import InfrastructureError, LostError
from fogveil.core.safe_text import safe_text
from fogveil.protocol.channels import PROTOCOL, WELCOME, start_server
from fogveil.protocol.identity import BROKER, Identity, peer_of
from fogveil.protocol.limits import LARGEST_WINDOW
from fogveil.protocol.participant import LAUNCHER, on_launcher_line, report
from fogveil.v1.clock_pb2 import End, Hello, JoinRequest, JoinResponse
from fogveil.v1.clock_pb2_grpc import ClockServiceServicer, add_ClockServiceServicer_to_server

REPORT_EVERY = 0.25
"""Seconds."""
END_WITHIN = 20.0
"""Seconds in which participants must have received the end of the run, on a busy machine."""

LONGEST_NAME = 80
"""Characters that are shown of a name that somebody claims."""


async def serve(settings: ClockSettings) -> None:
    """Grant simulated time to the participants of a federated testbed."""
    windows = Windows(
        settings.roster,
        settings.draws,
        settings.first_draw,
        settings.members,
        tells_providers=settings.tells_providers,
    )
    clock = Clock(settings, windows)
    server, port = await start_server(
        settings,
        settings.clock,
        settings.recording(lambda: windows.time),
        lambda server: add_ClockServiceServicer_to_server(clock, server),
    )
    report(listening=port)
    try:
        await clock.run_to_the_end()
    finally:
        await server.stop(None)


class _Outbox:
    """Orders to one participant: a queue with one reader, cheaper than asyncio's."""

    __slots__ = ("_orders", "_waiting")

    def __init__(self) -> None:
        self._orders: deque[JoinResponse] = deque()
        self._waiting: asyncio.Future[None] | None = None

    def put(self, order: JoinResponse) -> None:
        """Add an order."""
        self._orders.append(order)
        if self._waiting and not self._waiting.done():
            self._waiting.set_result(None)

    async def get(self) -> JoinResponse:
        """Wait for the next order."""
        while not self._orders:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self._orders.popleft()


class Clock(ClockServiceServicer):
    """Connects the participants' streams to `Windows`."""

    def __init__(self, settings: ClockSettings, windows: Windows) -> None:
        self._run, self._secure, self._windows = settings.run, settings.secure, windows
        self._pace: Pace | None = None
        if settings.speed or settings.paced:
            self._pace = Pace(settings.speed, held=settings.paced)
            on_launcher_line(self._change_pace)
        self._patience = settings.patience
        """Seconds to wait until everybody has joined."""
        self._outboxes: dict[str, _Outbox] = {}
        self._orders: asyncio.Queue[list[Order]] = asyncio.Queue()
        self._failure: InfrastructureError | None = None
        self._over = asyncio.Event()
        self._all_joined = asyncio.Event()
        self._present = 0
        self._all_gone = asyncio.Event()
        self._reported = 0.0

    # --- a participant's stream ------------------------------------------------------------------

    async def Join(  # type: ignore[override]  # noqa: N802, D102 (the protocol's name)
        self, requests: AsyncIterator[JoinRequest], context: Any
    ) -> None:
        del requests
        first = await context.read()
        hello = Hello() if first is aio.EOF else first.hello
        refusal = self._refusal(hello, peer_of(context) if self._secure else None)
        if refusal:
            report(refused=refusal)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, refusal)
        name = hello.name
        self._outboxes[name] = outbox = _Outbox()
        if self._over.is_set():  # it joins too late
            outbox.put(self._end())
        self._present += 1
        report(joined=name)
        writing = asyncio.ensure_future(self._write(name, context))
        try:
            if self._windows.awaits(name):
                self._dispatch(self._windows.rejoined(name))
            elif len(self._outboxes) == len(self._windows.roster.all):
                self._all_joined.set()
                self._dispatch(self._windows.begin())
            while (message := await context.read()) is not aio.EOF:
                self._handle(name, message)
        finally:
            # The stream of a lost participant ends with its connection, or by keep-alive.
            if (orders := self._windows.left(name)) is None:
                self._lose(name)
            else:
                self._dispatch(orders)
            writing.cancel()
            self._present -= 1
            if not self._present:
                self._all_gone.set()

    def _refusal(self, hello: Hello, peer: Identity | None) -> str | None:
        name, shown = hello.name, safe_text(hello.name, LONGEST_NAME)
        if peer and (peer.name != name or peer.role != self._windows.roster.role_of(name)):
            return f"{peer.name} claims to be {shown or 'nobody'}"
        if hello.protocol != PROTOCOL:
            return f"{shown or 'somebody'} speaks protocol {hello.protocol}, this is {PROTOCOL}"
        if hello.run != self._run:
            return f"{shown or 'somebody'} was set up for another run"
        if name not in self._windows.roster.all:
            return f"no participant is called '{shown}'"
        if name in self._outboxes and not self._windows.awaits(name):
            return f"{name} has joined already"
        return None

    async def _write(self, name: str, context: Any) -> None:
        outbox = self._outboxes[name]
        await context.send_initial_metadata(WELCOME)
        while True:
            await context.write(await outbox.get())

    def _handle(self, name: str, message: JoinRequest) -> None:
        if self._over.is_set():
            return
        if message.WhichOneof("kind") == "lost":
            self._handle_loss(message.lost.name, reported_by=name)
            return
        episode = self._windows.episode
        try:
            self._dispatch(self._windows.handle(name, message))
        except ProtocolError as error:
            self._fail(InfrastructureError(f"the run ended at {self._where}: {error}"))
            return
        if self._windows.finished or self._windows.episode != episode:
            report(over=episode)
        if self._windows.finished:
            self._over.set()
        elif time.monotonic() - self._reported > REPORT_EVERY:
            self.report_status()

    def _handle_loss(self, lost: str, reported_by: str) -> None:
        """Believe a participant that lost another one, but not one that names somebody else."""
        if lost in (*self._windows.roster.all, BROKER, LAUNCHER):
            self._lose(lost, reported_by)
        else:
            self._fail(
                InfrastructureError(
                    f"the run ended at {self._where}: {reported_by} reported the loss of "
                    f"'{safe_text(lost, LONGEST_NAME)}', who takes no part"
                )
            )

    # --- orders ----------------------------------------------------------------------------------

    def _dispatch(self, orders: list[Order]) -> None:
        for demand in self._windows.demands():
            report(**{demand.what: demand.name})
        if self._pace:
            self._orders.put_nowait(orders)
            self._windows.largest = 1 if self._pace.stepwise else LARGEST_WINDOW
            return
        for name, order in orders:
            self._outboxes[name].put(order)

    async def _dispatch_paced(self, pace: Pace) -> None:
        """Dispatch orders no faster than the pace allows."""
        while True:
            for name, order in await self._orders.get():
                if order.WhichOneof("kind") == "begin":
                    if not order.begin.repeated_orders:
                        pace.begin()
                elif name not in self._windows.roster.sources and isfinite(order.grant.until):
                    await pace.wait(order.grant.until)
                self._outboxes[name].put(order)

    def _change_pace(self, line: bytes) -> None:
        order = PaceOrder.parse(line)
        if order and self._pace:
            self._pace.change(order)

    # --- the end ---------------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        return f"simulated time {self._time:.6g}"

    @property
    def _time(self) -> float:
        return self._pace.time if self._pace else self._windows.time

    def _lose(self, name: str, reported_by: str | None = None) -> None:
        source = f" (reported by {reported_by})" if reported_by and name != "broker" else ""
        if not self._over.is_set():
            report(lost=name)
        who = f"the {name}" if name in ("broker", "agent") else name
        self._fail(LostError(name, f"{who} was lost at {self._where}{source}"))

    def _fail(self, failure: InfrastructureError) -> None:
        if not self._over.is_set():
            self._failure = failure
            self._over.set()

    async def run_to_the_end(self) -> None:
        """Wait until the run is over, end it for everybody, and fail if it failed."""
        pacing = asyncio.ensure_future(self._dispatch_paced(self._pace)) if self._pace else None
        try:
            async with asyncio.timeout(self._patience):
                await asyncio.wait(
                    [
                        asyncio.ensure_future(self._all_joined.wait()),
                        asyncio.ensure_future(self._over.wait()),
                    ],
                    return_when=asyncio.FIRST_COMPLETED,
                )
        except TimeoutError:
            missing = [name for name in self._windows.roster.all if name not in self._outboxes]
            self._fail(InfrastructureError(f"never joined the clock: {', '.join(missing)}"))
        await self._over.wait()
        if pacing:
            pacing.cancel()
        if self._windows.episode >= 0:
            self.report_status()
        for outbox in self._outboxes.values():
            outbox.put(self._end())
        await asyncio.wait([asyncio.ensure_future(self._all_gone.wait())], timeout=END_WITHIN)
        if self._failure:
            raise self._failure

    def _end(self) -> JoinResponse:
        failed = self._failure is not None
        return JoinResponse(end=End(failed=failed, sentence=str(self._failure or "")))

    def report_status(self) -> None:
        """Report how far the run is."""
        self._reported = time.monotonic()
        windows = self._windows
        report(
            clock={
                "episode": windows.episode,
                "time": self._time,
                "decisions": windows.decisions,
                "placed": windows.placed,
            }
        )
