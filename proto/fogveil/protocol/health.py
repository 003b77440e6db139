"""The health check of a participant in a container, on a Unix socket inside that container.

`python -m fogveil.protocol.health` exits with 0 if the participant answers; one whose event loop
hangs does not. The answer says nothing but that it is alive: no load, no state.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import suppress

SOCKET_VARIABLE = "FOGVEIL_HEALTH"
"""The environment variable that names the socket; unset, there is no health check."""
ALIVE = b"well\n"
TIMEOUT = 2.0


async def serve_health(path: str) -> None:
    """Answer health checks until cancelled."""
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108 (ruff takes a path object's method for slow here)
    server = await asyncio.start_unix_server(_answer, path)
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        server.close()


async def _answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(ALIVE)
    writer.close()


def is_healthy(path: str) -> bool:
    """Return whether the participant answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(TIMEOUT)
        try:
            client.connect(path)
            return client.recv(len(ALIVE)) == ALIVE
        except OSError:
            return False


if __name__ == "__main__":
    sys.exit(not is_healthy(os.environ.get(SOCKET_VARIABLE, "")))
