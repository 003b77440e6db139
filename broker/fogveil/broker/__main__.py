"""Run the built-in broker as a process: python -m fogveil.broker --port 0.

With --identity and --access it speaks TLS, and enforces the access control list.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path

import uvloop

from fogveil.broker import tls
from fogveil.broker.acl import AccessList
from fogveil.broker.builtin import Broker
from fogveil.core.errors import FogveilError, InfrastructureError
from fogveil.core.safe_text import log_safely
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.privileges import become_user, raise_file_limit


async def serve(
    host: str,
    port: int,
    security: tuple[Path, Path] | None = None,
    user: int | None = None,
    path: str | None = None,
    *,
    lifeline: bool,
) -> None:
    """Relay until SIGTERM, SIGINT or, with a lifeline, the end of standard input.

    It listens on a port or, where `path` names one, at a Unix socket.
    `security` holds the folder of the broker's credentials and the file of its access control list.
    """
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    if lifeline:
        loop.add_reader(sys.stdin.fileno(), read_lifeline, loop, stopped)
    broker, context = Broker(), None
    if security:
        credentials, access = security
        broker = Broker(AccessList.read(access).allows)
        context = tls.server_context(Credentials(credentials))
    if user is not None:
        become_user(user, Path("/"))
    bound: int | str
    try:
        if path:
            await broker.listen_at(path, context)
            bound = path
        else:
            bound = await broker.listen(host, port, context)
    except OSError as error:
        where = path or f"port {port} on {host}"
        raise InfrastructureError(f"broker: {where} is taken") from error
    try:
        sys.stdout.write(json.dumps({"listening": bound}) + "\n")
        sys.stdout.flush()
        await stopped.wait()
    finally:
        await broker.close()


def read_lifeline(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    """Set the event when standard input ends: its other end is the launcher's."""
    if not os.read(sys.stdin.fileno(), 4096):
        loop.remove_reader(sys.stdin.fileno())
        stopped.set()


def main() -> int:
    """Parse the options, relay, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fogveil.broker", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 for any free port")
    parser.add_argument("--socket", metavar="PATH", help="listen at a Unix socket, on no port")
    parser.add_argument(
        "--lifeline",
        action="store_true",
        help="stop at the end of standard input, which is that of the launcher",
    )
    parser.add_argument(
        "--identity",
        type=Path,
        metavar="FOLDER",
        help="speak TLS with the key, certificate and authority in this folder",
    )
    parser.add_argument("--access", type=Path, metavar="FILE", help="the access control list")
    parser.add_argument("--user", type=int, metavar="ID", help="switch to this user (as root)")
    options = parser.parse_args()
    if (options.identity is None) != (options.access is None):
        parser.error("--identity and --access require each other")
    if not 0 <= options.port < 2**16:
        parser.error(f"--port {options.port}: expected 0 to 65535")
    raise_file_limit()
    security = (options.identity, options.access) if options.identity else None
    log_safely("%(asctime)s %(message)s", logging.WARNING)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            where = options.host, options.port, security, options.user, options.socket
            runner.run(serve(*where, lifeline=options.lifeline))
    except FogveilError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
