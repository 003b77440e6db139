"""Run the built-in broker in a process of its own: python -m broker --port 0.

With --identity and --access it speaks TLS, and lets identities do what the table says.
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

from broker import tls
from broker.access import Access
from broker.builtin import Broker
from fogveil.errors import FogveilError, SurroundingsError
from fogveil.identity import Credentials
from fogveil.users import become


async def serve(
    host: str,
    port: int,
    guard: tuple[Path, Path] | None = None,
    user: int | None = None,
    *,
    lifeline: bool,
) -> None:
    """Relay until SIGTERM, SIGINT or, with a lifeline, the end of standard input."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    if lifeline:
        loop.add_reader(sys.stdin.fileno(), _read_to_end, loop, ended)
    broker, secure = Broker(), None
    if guard:
        identity, access = guard
        broker, secure = Broker(Access.read(access).may), tls.for_broker(Credentials(identity))
    if user is not None:
        become(user, Path("/"))
    try:
        listening = await broker.listen(host, port, secure)
    except OSError as error:
        raise SurroundingsError(f"broker: port {port} on {host} is taken") from error
    try:
        sys.stdout.write(json.dumps({"listening": listening}) + "\n")
        sys.stdout.flush()
        await ended.wait()
    finally:
        await broker.close()


def _read_to_end(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        loop.remove_reader(sys.stdin.fileno())
        ended.set()


def main() -> int:
    """Read the options, relay, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m broker", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes any free port")
    parser.add_argument(
        "--lifeline", action="store_true", help="end when standard input ends (launcher gone)"
    )
    parser.add_argument(
        "--identity", type=Path, metavar="FOLDER", help="key, certificate and authority: speak TLS"
    )
    parser.add_argument("--access", type=Path, metavar="FILE", help="which identity may do what")
    parser.add_argument("--user", type=int, metavar="ID", help="go on as this user (for root)")
    options = parser.parse_args()
    if (options.identity is None) != (options.access is None):
        parser.error("--identity and --access go together")
    if not 0 <= options.port < 2**16:
        parser.error(f"--port {options.port}: expected 0 to 65535")
    guard = (options.identity, options.access) if options.identity else None
    logging.basicConfig(format="%(asctime)s %(message)s")
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            serving = serve(
                options.host, options.port, guard, options.user, lifeline=options.lifeline
            )
            runner.run(serving)
    except FogveilError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
