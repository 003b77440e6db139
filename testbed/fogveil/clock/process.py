"""The clock's process: participants join it, and it grants them simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from math import isfinite
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from fogveil.clock.core import Order, Windows
from fogveil.clock.pace import Pace, PaceOrder
from fogveil.clock.session import Session
from fogveil.clock.settings import ClockSettings
from fogveil.clock.state import ProtocolError
from fogveil.core.errors import InfrastructureError, LostError
from fogveil.core.safe_text import safe_text
from fogveil.protocol.channels import HEARD, PROTOCOL, WELCOME, start_server
from fogveil.protocol.identity import BROKER, Identity, peer_of
from fogveil.protocol.input_log import InputLog, read_log
from fogveil.protocol.limits import LARGEST_WINDOW
from fogveil.protocol.participant import (
    LAUNCHER,
    on_launcher_line,
    parse_launcher_line,
    report,
)
from fogveil.v1.clock_pb2 import End, Hello, JoinRequest, JoinResponse
from fogveil.v1.clock_pb2_grpc import ClockServiceServicer, add_ClockServiceServicer_to_server

REPORT_EVERY = 0.25
"""Seconds."""
END_WITHIN = 20.0
"""Seconds in which participants must have received the end of the run, on a busy machine."""

ASK_PERIOD = 0.2
"""Seconds in which one participant may ask once for another's messages."""
INPUT_LOG = "inputs.log"
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
    log = EpisodeLog(settings.folder / INPUT_LOG) if settings.recovers else None
    clock = Clock(settings, windows, log)
    try:
        await _grant_time(settings, clock, windows)
    finally:
        if log:
            log.close()


async def _grant_time(settings: ClockSettings, clock: Clock, windows: Windows) -> None:
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


class EpisodeLog:
    """The clock's own log: what it has handled since the episode began."""

    def __init__(self, path: Path) -> None:
        """Read what there is; it goes on from there."""
        self._path = path
        self.entries = read_log(path)
        """What the clock had handled before it was lost."""
        self._log = InputLog(path, goes_on=True)

    def begin(self) -> None:
        """Forget everything; until the first entry is there, the old log stays."""
        self._log.close()
        self._fresh = self._path.with_suffix(".part")
        self._log = InputLog(self._fresh)
        self.append = self._append_first  # type: ignore[method-assign]

    def _append_first(self, entry: bytes) -> None:
        self._log.append(entry)
        self._fresh.replace(self._path)
        self.append = self._log.append  # type: ignore[method-assign]

    def append(self, entry: bytes) -> None:
        """Keep an entry."""
        self._log.append(entry)

    def close(self) -> None:
        """Close the file."""
        self._log.close()


class Clock(ClockServiceServicer):
    """Connects the participants' streams to `Windows`."""

    def __init__(
        self, settings: ClockSettings, windows: Windows, log: EpisodeLog | None = None
    ) -> None:
        self._run, self._secure, self._windows = settings.run, settings.secure, windows
        self._recovers = log is not None
        self._session = Session(windows, log, self._dispatch)
        self._episode = -1
        """The last one that is known to have begun."""
        self._pace: Pace | None = None
        if settings.speed or settings.paced:
            self._pace = Pace(settings.speed, held=settings.paced)
            on_launcher_line(self._change_pace)
        self._patience = settings.patience
        """Seconds to wait until everybody has joined."""
        self._streams: dict[str, Any] = {}
        """The stream of everybody who has joined; the last one counts."""
        self._asked: dict[tuple[str, str], float] = {}
        """When somebody last asked for another's messages again."""
        self._orders: asyncio.Queue[list[Order]] = asyncio.Queue()
        self._failure: InfrastructureError | None = None
        self._over = asyncio.Event()
        self._all_joined = asyncio.Event()
        self._present = 0
        self._all_gone = asyncio.Event()
        self._reported = 0.0
        if log and log.entries:
            self._session.replay(log.entries)
            self._all_joined.set()
            self._episode = self._session.episode
            if self._pace:
                self._pace.resume(windows.time)
        if settings.recovers:
            on_launcher_line(self._follow_launcher)

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
        name, session = hello.name, self._session
        self._streams[name] = context
        self._present += 1
        self._all_gone.clear()
        report(joined=name)
        writing = asyncio.ensure_future(self._write(name, context))
        try:
            if self._over.is_set():  # it joins too late
                session.seats[name].outbox.end(self._end())
            else:
                session.join(name, hello)
                self._follow_up()
            while (message := await context.read()) is not aio.EOF:
                if self._streams[name] is not context:
                    return  # it has joined again
                self._handle(name, message)
        finally:
            # The stream of a lost participant ends with its connection, or by keep-alive.
            writing.cancel()
            if self._streams[name] is context:
                self._leave(name)
            self._present -= 1
            if not self._present:
                self._all_gone.set()

    def _leave(self, name: str) -> None:
        if self._session.leave(name):
            self._follow_up()
        elif self._recovers and not self._over.is_set():
            report(left=name)
        else:
            self._lose(name)

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
        if name in self._streams and not self._may_join_again(name):
            return f"{name} has joined already"
        return None

    def _may_join_again(self, name: str) -> bool:
        """Return whether somebody may take a place that was taken before.

        Where it has proved who it is, it may do so although its old stream seems to be there: that
        it broke off is noticed late.
        """
        if self._windows.awaits(name) or self._over.is_set():  # the latter is told that it is over
            return True
        return self._recovers and (self._secure or not self._session.seats[name].present)

    async def _write(self, name: str, context: Any) -> None:
        seat, news = self._session.seats[name], asyncio.Event()
        outbox, handled = seat.outbox, len(seat.handled)
        outbox.on_news = news.set
        await context.send_initial_metadata(
            (*WELCOME, (HEARD, str(handled))) if self._recovers and handled else WELCOME
        )
        while True:
            news.clear()
            while self._streams[name] is context and (order := outbox.next()):
                await context.write(order)
            await news.wait()

    def _handle(self, name: str, message: JoinRequest) -> None:
        if self._over.is_set():
            return
        kind = message.WhichOneof("kind")
        if kind == "lost":
            self._handle_loss(message.lost.name, reported_by=name)
            return
        if kind == "missing" and not self._asks_now(name, message.missing.name):
            return
        try:
            self._session.take(name, message)
        except ProtocolError as error:
            self._fail(InfrastructureError(f"the run ended at {self._where}: {error}"))
            return
        self._follow_up()
        if (
            not self._over.is_set()
            and asyncio.get_running_loop().time() - self._reported > REPORT_EVERY
        ):
            self.report_status()

    def _asks_now(self, name: str, sender: str) -> bool:
        """Return whether somebody asks for what another one sent, and not all the time."""
        now = asyncio.get_running_loop().time()
        if now < self._asked.get((name, sender), 0.0) + ASK_PERIOD:
            return False
        self._asked[name, sender] = now
        return True

    def _follow_up(self) -> None:
        """Do what follows from what the session has handled."""
        session, episode = self._session, self._episode
        for demand in self._windows.demands():
            report(**{demand.what: demand.name})
        if self._pace:
            session.set_largest(1 if self._pace.stepwise else LARGEST_WINDOW)
        if session.episode != episode or session.over:
            self._all_joined.set()
            self._episode = session.episode
            if episode >= 0:
                report(over=episode)
        if session.over:
            self._over.set()

    def _handle_loss(self, lost: str, reported_by: str) -> None:
        """Believe a participant that lost another one, but not one that names somebody else."""
        if lost in (*self._windows.roster.all, BROKER, LAUNCHER):
            if self._recovers:  # the launcher sees to it
                report(lost=lost)
            else:
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
        if self._pace:
            self._orders.put_nowait(orders)
        else:
            self._session.put(orders)

    async def _dispatch_paced(self, pace: Pace) -> None:
        """Dispatch orders no faster than the pace allows."""
        while True:
            for name, order in await self._orders.get():
                if order.WhichOneof("kind") == "begin":
                    if not order.begin.repeated_orders:
                        pace.begin()
                elif name not in self._windows.roster.sources and isfinite(order.grant.until):
                    await pace.wait(order.grant.until)
                self._session.put([(name, order)])

    def _change_pace(self, line: bytes) -> None:
        order = PaceOrder.parse(line)
        if order and self._pace:
            self._pace.change(order)

    def _follow_launcher(self, line: bytes) -> None:
        """Do what the launcher says: it has given somebody up, or ended a provider that crashes."""
        order = parse_launcher_line(line)
        if "ping" in order:
            report(alive=True)
        if name := order.get("lose"):
            self._lose(name)
        name = order.get("gone", "")
        if name in self._session.seats and not self._session.seats[name].present:
            self._session.leave(name)
            self._follow_up()

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
            missing = [name for name in self._windows.roster.all if name not in self._streams]
            self._fail(InfrastructureError(f"never joined the clock: {', '.join(missing)}"))
        await self._over.wait()
        if pacing:
            pacing.cancel()
        if self._windows.episode >= 0:
            self.report_status()
        if self._recovers:
            report(finished=self._failure is None)
        for seat in self._session.seats.values():
            if seat.present:
                seat.outbox.end(self._end())
        await asyncio.wait([asyncio.ensure_future(self._all_gone.wait())], timeout=END_WITHIN)
        if self._failure:
            raise self._failure

    def _end(self) -> JoinResponse:
        failed = self._failure is not None
        return JoinResponse(end=End(failed=failed, sentence=str(self._failure or "")))

    def report_status(self) -> None:
        """Report how far the run is."""
        self._reported = asyncio.get_running_loop().time()
        windows = self._windows
        report(
            clock={
                "episode": windows.episode,
                "time": self._time,
                "decisions": windows.decisions,
                "placed": windows.placed,
            }
        )
