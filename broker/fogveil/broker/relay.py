"""A relay from a Unix socket to an external broker: python -m fogveil.broker.relay.

Participants in networks of their own reach a broker outside through it. It passes bytes on and
understands none of them: TLS is between the participant and the broker.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

from fogveil.broker.__main__ import read_lifeline
from fogveil.protocol.privileges import become_user

CHUNK = 2**16


async def serve(listener: socket.socket, host: str, port: int) -> None:
    """Pass connections on until SIGTERM, SIGINT or the end of standard input."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    loop.add_reader(sys.stdin.fileno(), read_lifeline, loop, stopped)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            outside = await asyncio.open_connection(host, port)
        except OSError as error:
            sys.stderr.write(f"the broker {host}:{port} cannot be reached: {error}\n")
            writer.close()
            return
        outside[1].get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(_copy(reader, outside[1]), _copy(outside[0], writer))

    async with await asyncio.start_unix_server(connected, sock=listener):
        await stopped.wait()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what one side sends; its end is the end of the other."""
    with suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()


def main() -> None:
    """Parse the options, bind the socket, drop privileges and relay."""
    parser = argparse.ArgumentParser(prog="python -m fogveil.broker.relay", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True, metavar="PATH")
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--user", type=int, metavar="ID", help="switch to this user (as root)")
    options = parser.parse_args()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    part = options.socket.with_name("part")
    listener.bind(str(part))
    listener.listen()
    part.chmod(0o666)  # who reaches the folder may connect
    part.rename(options.socket)  # the launcher waits for this name
    if options.user is not None:
        become_user(options.user, Path("/"))
    asyncio.run(serve(listener, options.host, options.port))
    os._exit(0)  # connections that are still open end with it


if __name__ == "__main__":
    main()
