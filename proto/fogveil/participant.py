"""What every participant's process does: read its configuration, join, end in good order."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import stat
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TextIO

import uvloop

from fogveil import health
from fogveil.errors import FogveilError, LostError, SurroundingsError
from fogveil.recording import Recording, close_all
from fogveil.settings import Settings, read_settings
from fogveil.users import become

ARRIVE_WITHIN = 60.0
"""Seconds in which those must be there whom a participant waits for before it begins."""
BETWEEN_TRIES = 0.1

Serve = Callable[[Settings], Coroutine[Any, Any, None]]


class _Reports:
    """Where reports go: standard output, which nothing else can reach by then."""

    stream: TextIO = sys.stdout

    @classmethod
    def keep_apart(cls) -> None:
        """Let all that is printed, as by somebody's policy, go to standard error instead."""
        cls.stream = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def report(**facts: Any) -> None:
    """Tell the launcher something: one line of JSON on standard output."""
    print(json.dumps(facts), file=_Reports.stream, flush=True)


def main(program: str, serve: Serve, prepare: Callable[[Settings], None] | None = None) -> None:
    """Run a participant until the clock ends the run; an error is one sentence and an exit code.

    `prepare` loads what is loaded late otherwise: another user may not read where it lies.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=serve.__doc__)
    words = "the participant's own configuration file (mode 600)"
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help=words)
    given = parser.parse_args()
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.INFO, stream=sys.stderr)
    logging.getLogger("grpc").addFilter(_matters)
    logging.getLogger("grpc._cython.cygrpc").addFilter(_matters)
    _Reports.keep_apart()
    code = 0
    try:
        settings = read_settings(given.config)
        if prepare:
            with settings.reading():
                prepare(settings)
        if settings.user is not None:
            become(settings.user, settings.folder)
            settings = replace(settings, folder=Path())
        # The loop is not closed: gRPC would complain of calls that are still open.
        asyncio.Runner(loop_factory=uvloop.new_event_loop).run(_until_signalled(settings, serve))
    except FogveilError as error:
        sys.stdout.flush()  # the sentence is the last line
        print(f"{program}: {error}", file=sys.stderr, flush=True)  # noqa: T201
        code = error.exit_code
    except (asyncio.CancelledError, KeyboardInterrupt):
        code = 128 + signal.SIGTERM
    close_all()
    # gRPC's threads may take their time to end; everything of ours is written by now.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _matters(record: logging.LogRecord) -> bool:
    """Leave out what gRPC says of streams that end because a participant leaves."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


async def _until_signalled(settings: Settings, serve: Serve) -> None:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    parts: list[Awaitable[None]] = [_in_order(settings, serve)]
    if place := os.environ.get(health.PLACE):
        parts.append(health.answer(place))
    if settings.lifeline:
        parts.append(_lifeline())
    await first_of(*parts)


async def _in_order(settings: Settings, serve: Serve) -> None:
    """Begin when those are there whom the participant dials."""
    for address in settings.awaits:
        await _reach(address)
    await serve(settings)


async def _reach(address: str) -> None:
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + ARRIVE_WITHIN
    while time.monotonic() < deadline:
        try:
            async with asyncio.timeout(BETWEEN_TRIES * 10):
                _, writer = await asyncio.open_connection(host, port)
        except OSError:
            await asyncio.sleep(BETWEEN_TRIES)
        else:
            writer.close()
            return
    raise LostError(host, f"{address} was not reached within {ARRIVE_WITHIN:g} s")


async def first_of(
    *parts: Awaitable[None], farewell: Callable[[str], Awaitable[None]] | None = None
) -> None:
    """Run all until one ends or fails; the others are cancelled then.

    Whom we lost is told to `farewell` before: cancelling would end the streams that carry it.
    """
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if farewell and isinstance(error := task.exception(), LostError):
                await farewell(error.who)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def _lifeline() -> None:
    """Fail when standard input ends: the launcher holds its other end."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    kind = os.fstat(sys.stdin.fileno()).st_mode
    if stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind):
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while await reader.read(64):
            pass
    elif sys.stdin.isatty():  # started by hand: nobody to lose
        await loop.create_future()
    raise LostError("launcher", "the launcher was lost")


class Inbound(Protocol):
    """What relays messages to a participant."""

    def messages(self) -> AsyncIterator[tuple[str, bytes]]:
        """Yield (topic, payload); fail when the broker is lost."""


async def listen(
    relay: Inbound, receive: Callable[[str, bytes], None], recording: Recording | None = None
) -> None:
    """Hand every relayed message on, until the broker is lost."""
    try:
        async for topic, payload in relay.messages():
            if recording:
                recording.delivered(topic, payload)
            receive(topic, payload)
    except SurroundingsError as error:
        raise LostError("broker", str(error)) from error
