"""Health of a participant in a container: it answers on a Unix socket that nobody else can reach.

`python -m fogveil.health` asks, and ends with 0 where an answer comes. A participant whose loop
hangs gives none. Nothing is told but that it is well: no load, no state.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import suppress

PLACE = "FOGVEIL_HEALTH"
"""The variable that names the socket; where it is not set nobody answers."""
WELL = b"well\n"
PATIENCE = 2.0


async def answer(place: str) -> None:
    """Answer whoever asks, until cancelled."""
    with suppress(FileNotFoundError):
        os.unlink(place)  # noqa: PTH108 (a path object's would be taken for slow)
    server = await asyncio.start_unix_server(_say, place)
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        server.close()


async def _say(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(WELL)
    writer.close()


def ask(place: str) -> bool:
    """Say whether the participant answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(PATIENCE)
        try:
            asking.connect(place)
            return asking.recv(len(WELL)) == WELL
        except OSError:
            return False


if __name__ == "__main__":
    sys.exit(not ask(os.environ.get(PLACE, "")))
