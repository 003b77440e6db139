"""The page's own process, so that whatever it does or waits for, the run goes on.

The command that starts it writes a line of JSON to its standard input, and ends it by closing that.
It prints the link, and then an order for the clock in each line.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn

from fogveil.core.errors import FogveilError
from fogveil.testbed.dashboard.server import LOOPBACK, PageServer
from fogveil.testbed.dashboard.session import Session

SENT_AHEAD = 2**16
"""Bytes that a browser which hangs is sent: then nothing is read for it."""
NICE = 15
"""The run goes before its page, which gets a thirtieth of a core where both want all of it."""


async def serve(
    session: Session,
    refused_users: frozenset[int],
    announce: Callable[[str], None],
    until: Awaitable[Any],
) -> None:
    """Serve a page until something has happened; open pages see the end."""
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_AHEAD)
        listener.bind((LOOPBACK, 0))
        listener.listen()  # whoever is told the link may use it at once
        port: int = listener.getsockname()[1]
        page = PageServer(session)
        config = uvicorn.Config(
            page.app(port, refused_users),
            log_config=None,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        server = _Server(config)
        following = asyncio.ensure_future(page.follow())
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        announce(page.link(port))
        try:
            await until
        finally:
            following.cancel()
            await page.close()
            server.should_exit = True
            await serving


class _Server(uvicorn.Server):
    """A server that leaves signals to the command that runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def main() -> None:
    """Serve the page of a run that `fogveil up` runs."""
    settings = json.loads(sys.stdin.readline())
    os.nice(NICE)

    def say(**facts: Any) -> None:
        with suppress(BrokenPipeError):
            print(json.dumps(facts), flush=True)  # noqa: T201

    try:
        session = Session(
            [Path(folder) for folder in settings["folders"]],
            lambda order: say(pace=vars(order)),
        )
    except FogveilError as error:
        say(error=str(error))
        return

    async def run() -> None:
        refused = frozenset(settings["refused_users"])
        left = asyncio.to_thread(sys.stdin.read)
        await serve(session, refused, lambda link: say(link=link), left)

    asyncio.run(run())


if __name__ == "__main__":
    main()
