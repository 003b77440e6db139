"""What every participant's process does: read its settings, drop privileges, serve, end."""

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
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeVar

import uvloop

from fogveil.core.errors import FogveilError, InfrastructureError, LostError, MisbehaviourError
from fogveil.core.safe_text import log_safely, safe_text
from fogveil.protocol import health
from fogveil.protocol.message_order import bear_floods
from fogveil.protocol.privileges import become_user, raise_file_limit
from fogveil.protocol.recording import Recording, close_all
from fogveil.protocol.settings import Settings, read_settings
from fogveil.protocol.simulated_host import simulated_host

S = TypeVar("S", bound=Settings)

REACHABLE_WITHIN = 60.0
"""Seconds in which the peers in `awaits` must accept connections."""
RETRY_EVERY = 0.1
FAULT = 70
"""The exit code of a process in which something went wrong that nobody expected."""
ENDED_BY_SIGNAL = 128
"""Exit codes above it are those of processes that a signal has ended."""
NOTE = "  "
"""How a line on standard error begins that belongs to the sentence after it."""
LAUNCHER = "launcher"
"""The name of what started a participant, where participants report their losses."""

Serve = Callable[[S], Coroutine[Any, Any, None]]


class _ReportStream:
    """The process's original standard output, kept for reports alone."""

    stream: TextIO = sys.stdout

    @classmethod
    def reserve(cls) -> None:
        """Redirect everything else that is printed, as by a user's policy, to standard error."""
        cls.stream = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def report(**facts: Any) -> None:
    """Send facts to the launcher: one line of JSON on standard output."""
    if host := simulated_host.get():
        host.report(facts)
        return
    print(json.dumps(facts), file=_ReportStream.stream, flush=True)


_from_launcher: list[Callable[[bytes], None]] = []
"""Who is given what the launcher writes to standard input."""


def on_launcher_line(handle: Callable[[bytes], None]) -> None:
    """Call a function with every line that the launcher sends."""
    if host := simulated_host.get():
        host.on_launcher_line(handle)
        return
    _from_launcher.append(handle)


def parse_launcher_line(line: bytes) -> dict[str, str]:
    """Return what a line of the launcher says of whom; nothing for any other line."""
    try:
        told = json.loads(line)
    except ValueError:
        return {}
    if not isinstance(told, dict):
        return {}
    return {key: value for key, value in told.items() if isinstance(value, str)}


def main(
    program: str, kind: type[S], serve: Serve[S], prepare: Callable[[S], None] | None = None
) -> None:
    """Run a participant until the clock ends the run; an error is one sentence and an exit code.

    `prepare` runs before the process becomes another user, to which our files may be unreadable.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=serve.__doc__)
    help_text = "the participant's own configuration file (mode 600)"
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help=help_text)
    arguments = parser.parse_args()
    log_safely("%(levelname)s: %(message)s", logging.INFO)
    logging.getLogger("grpc").addFilter(_is_relevant)
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_relevant)
    _ReportStream.reserve()
    raise_file_limit()
    code = 0
    try:
        settings = read_settings(arguments.config, kind)
        if prepare:
            prepare(settings)
        if settings.recovers:
            bear_floods()
        if settings.user is not None:
            become_user(settings.user, settings.folder)
            settings = replace(settings, folder=Path())
        # The loop is not closed: gRPC would log errors about calls that are still open.
        asyncio.Runner(loop_factory=uvloop.new_event_loop).run(_until_signalled(settings, serve))
    except FogveilError as error:
        if isinstance(error, MisbehaviourError):
            report(accused=error.who, sentence=str(error))
        sys.stdout.flush()  # the sentence is the last line
        for note in getattr(error, "__notes__", ()):
            print(safe_text(f"{NOTE}{note.strip()}"), file=sys.stderr, flush=True)  # noqa: T201
        print(safe_text(f"{program}: {error}"), file=sys.stderr, flush=True)  # noqa: T201
        code = error.exit_code
    except (asyncio.CancelledError, KeyboardInterrupt):
        code = ENDED_BY_SIGNAL + signal.SIGTERM
    except Exception:  # noqa: BLE001 (a fault of ours; 1 is what an enclosure says of a killed one)
        traceback.print_exc()
        code = FAULT
    close_all()
    # gRPC's threads may take long to end, and everything of ours is written by now.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _is_relevant(record: logging.LogRecord) -> bool:
    """Filter out gRPC's messages about streams that are cancelled because a participant leaves."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


async def _until_signalled(settings: S, serve: Serve[S]) -> None:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    jobs: list[Awaitable[None]] = [_serve_when_reachable(settings, serve)]
    if path := os.environ.get(health.SOCKET_VARIABLE):
        jobs.append(health.serve_health(path))
    if settings.lifeline:
        jobs.append(_watch_launcher())
    await first_of(*jobs)


async def _serve_when_reachable(settings: S, serve: Serve[S]) -> None:
    for address in settings.awaits:
        await _wait_until_reachable(address)
    await serve(settings)


async def _wait_until_reachable(address: str) -> None:
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + REACHABLE_WITHIN
    while time.monotonic() < deadline:
        try:
            async with asyncio.timeout(RETRY_EVERY * 10):
                _, writer = await asyncio.open_connection(host, port)
        except OSError:
            await asyncio.sleep(RETRY_EVERY)
        else:
            writer.close()
            return
    raise LostError(host, f"{address} was not reached within {REACHABLE_WITHIN:g} s")


async def first_of(
    *jobs: Awaitable[None], on_loss: Callable[[str], Awaitable[None]] | None = None
) -> None:
    """Run all until one ends or fails, then cancel the others.

    `on_loss` is called with the name of a lost peer before that: cancelling would end the streams
    that report it.
    """
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if on_loss and isinstance(error := task.exception(), LostError):
                await on_loss(error.who)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def _watch_launcher() -> None:
    """Pass on what the launcher sends; fail when standard input ends, whose other end it holds."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    kind = os.fstat(sys.stdin.fileno()).st_mode
    if stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind):
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            for handle in _from_launcher:
                handle(line)
    elif sys.stdin.isatty():  # started by hand, without a launcher
        await loop.create_future()
    raise LostError(LAUNCHER, "the launcher was lost")


class MessageSource(Protocol):
    """A connection to the broker that yields messages."""

    def messages(self) -> AsyncIterator[tuple[str, bytes]]:
        """Yield (topic, payload); fail when the broker is lost."""


async def dispatch_messages(
    relay: MessageSource, receive: Callable[[str, bytes], None], recording: Recording | None = None
) -> None:
    """Hand every message of the broker to `receive`, until the broker is lost."""
    try:
        async for topic, payload in relay.messages():
            if recording:
                recording.record_delivery(topic, payload)
            receive(topic, payload)
    except (LostError, MisbehaviourError):  # of the message's sender
        raise
    except InfrastructureError as error:
        raise LostError("broker", str(error)) from error
