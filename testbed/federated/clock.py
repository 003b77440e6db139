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

from fogveil.channels import PROTOCOL, WELCOME
from fogveil.channels import serve as serve_grpc
from fogveil.errors import LostError, SurroundingsError
from fogveil.identity import Identity, peer_of
from fogveil.participant import main, report
from fogveil.settings import Settings
from fogveil.v1.clock_pb2 import End, Hello, JoinRequest, JoinResponse
from fogveil.v1.clock_pb2_grpc import ClockServiceServicer, add_ClockServiceServicer_to_server
from testbed.federated.windows import Order, ProtocolError, Seats, Windows

REPORT_EVERY = 0.25
"""Seconds."""
LAST_WORDS = 2.0
"""Seconds in which participants are told that the run is over."""


async def serve(settings: Settings) -> None:
    """Grant simulated time to the participants of a federated testbed."""
    own = settings.own
    with settings.reading():
        seats = Seats(tuple(own["sources"]), tuple(own["fogs"]), own["cloud"])
        windows = Windows(seats, own["draws"], own["first_draw"])
        clock = Clock(settings, windows)
    server, port = await serve_grpc(
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


class _Box:
    """Orders on their way to a participant: a queue with one reader, which costs little."""

    __slots__ = ("_orders", "_wanted")

    def __init__(self) -> None:
        self._orders: deque[JoinResponse] = deque()
        self._wanted: asyncio.Future[None] | None = None

    def put(self, order: JoinResponse) -> None:
        """Add an order."""
        self._orders.append(order)
        if self._wanted and not self._wanted.done():
            self._wanted.set_result(None)

    async def get(self) -> JoinResponse:
        """Wait for the next order."""
        while not self._orders:
            self._wanted = asyncio.get_running_loop().create_future()
            await self._wanted
        return self._orders.popleft()


class Clock(ClockServiceServicer):
    """Carries messages between participants and `Windows`."""

    def __init__(self, settings: Settings, windows: Windows) -> None:
        self._run, self._secure, self._windows = settings.run, settings.secure, windows
        self._speed: float | None = settings.own["speed"]
        self._patience: float = settings.own["patience"]
        """Seconds to wait until everybody has joined."""
        self._boxes: dict[str, _Box] = {}
        self._orders: asyncio.Queue[list[Order]] = asyncio.Queue()
        self._failure: SurroundingsError | None = None
        self._over = asyncio.Event()
        self._all_joined = asyncio.Event()
        self._present = 0
        self._all_gone = asyncio.Event()
        self._reported = 0.0
        self._paced = 0.0
        """How far the wall clock has let the run go."""

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
        self._boxes[name] = box = _Box()
        if self._over.is_set():  # it comes late, and is told so
            box.put(self._end())
        self._present += 1
        report(joined=name)
        writing = asyncio.ensure_future(self._write(name, context))
        try:
            if len(self._boxes) == len(self._windows.seats.all):
                self._all_joined.set()
                self._tell(self._windows.begin())
            while (message := await context.read()) is not aio.EOF:
                self._take(name, message)
        finally:
            # The stream of a participant that is gone ends by itself or by its keep-alive.
            self._lose(name)
            writing.cancel()
            self._present -= 1
            if not self._present:
                self._all_gone.set()

    def _refusal(self, hello: Hello, peer: Identity | None) -> str | None:
        name = hello.name
        if peer and (peer.name != name or peer.role != self._windows.seats.role_of(name)):
            return f"{peer.name} says that it is {name or 'nobody'}"
        if hello.protocol != PROTOCOL:
            return f"{name or 'somebody'} speaks protocol {hello.protocol}, this is {PROTOCOL}"
        if hello.run != self._run:
            return f"{name or 'somebody'} was set up for another run"
        if name not in self._windows.seats.all:
            return f"nobody called {name!r} takes part"
        if name in self._boxes:
            return f"{name} has joined already"
        return None

    async def _write(self, name: str, context: Any) -> None:
        box = self._boxes[name]
        await context.send_initial_metadata(WELCOME)
        while True:
            await context.write(await box.get())

    def _take(self, name: str, message: JoinRequest) -> None:
        if self._over.is_set():
            return
        if message.WhichOneof("kind") == "lost":
            self._lose(message.lost.name, said_by=name)
            return
        episode = self._windows.episode
        try:
            self._tell(self._windows.take(name, message))
        except ProtocolError as error:
            self._fail(SurroundingsError(f"the run ended at {self._where}: {error}"))
            return
        if self._windows.finished or self._windows.episode != episode:
            report(over=episode)
        if self._windows.finished:
            self._over.set()
        elif time.monotonic() - self._reported > REPORT_EVERY:
            self.tell_status()

    # --- orders ----------------------------------------------------------------------------------

    def _tell(self, orders: list[Order]) -> None:
        if self._speed:
            self._orders.put_nowait(orders)
            return
        for name, order in orders:
            self._boxes[name].put(order)

    async def _pace(self) -> None:
        """Hand orders out no faster than the wall clock allows."""
        begun = time.monotonic()
        while True:
            for name, order in await self._orders.get():
                if order.WhichOneof("kind") == "begin":
                    begun = time.monotonic()
                elif name not in self._windows.seats.sources and isfinite(order.grant.until):
                    assert self._speed is not None
                    due = begun + order.grant.until / self._speed
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
                    self._paced = order.grant.until
                self._boxes[name].put(order)

    # --- the end ---------------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        return f"simulated time {self._time:.6g}"

    @property
    def _time(self) -> float:
        return self._paced if self._speed else self._windows.time

    def _lose(self, name: str, said_by: str | None = None) -> None:
        told = f" (as {said_by} tells)" if said_by and name != "broker" else ""
        if not self._over.is_set():
            report(lost=name)
        who = f"the {name}" if name in ("broker", "agent") else name
        self._fail(LostError(name, f"{who} was lost at {self._where}{told}"))

    def _fail(self, failure: SurroundingsError) -> None:
        if not self._over.is_set():
            self._failure = failure
            self._over.set()

    async def run_to_the_end(self) -> None:
        """Wait until the run is over, tell everybody, and fail if it failed."""
        pacing = asyncio.ensure_future(self._pace())
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
            missing = [name for name in self._windows.seats.all if name not in self._boxes]
            self._fail(SurroundingsError(f"never joined the clock: {', '.join(missing)}"))
        await self._over.wait()
        pacing.cancel()
        if self._windows.episode >= 0:
            self.tell_status()
        for box in self._boxes.values():
            box.put(self._end())
        await asyncio.wait([asyncio.ensure_future(self._all_gone.wait())], timeout=LAST_WORDS)
        if self._failure:
            raise self._failure

    def _end(self) -> JoinResponse:
        failed = self._failure is not None
        return JoinResponse(end=End(failed=failed, sentence=str(self._failure or "")))

    def tell_status(self) -> None:
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


if __name__ == "__main__":
    main("testbed.federated.clock", serve)
