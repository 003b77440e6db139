"""A log of inputs from which a state is computed anew; whoever died may have torn its end."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fogveil.core.files import open_private

FRAME = struct.Struct("<II")
"""Before each entry: its length, and its checksum."""


class InputLog:
    """Appends entries to a private file; each is with the operating system before the next."""

    def __init__(self, path: Path, *, goes_on: bool = False) -> None:
        """Begin an empty log, or go on with one whose torn end `read_log` has cut off."""
        self._file: IO[bytes] = open_private(path, "ab" if goes_on else "wb", buffering=0)

    def append(self, entry: bytes) -> None:
        """Add an entry, which outlives this process from now on."""
        self._file.write(FRAME.pack(len(entry), zlib.crc32(entry)) + entry)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_log(path: Path) -> list[bytes]:
    """Return the whole entries of a log, and cut off what follows them; none if there is no log."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    entries = list(_entries(content))
    whole = sum(FRAME.size + len(entry) for entry in entries)
    if whole < len(content):
        with path.open("r+b") as file:
            file.truncate(whole)
    return entries


def _entries(content: bytes) -> Iterator[bytes]:
    place = 0
    while place + FRAME.size <= len(content):
        length, checksum = FRAME.unpack_from(content, place)
        place += FRAME.size
        entry = content[place : place + length]
        if len(entry) < length or zlib.crc32(entry) != checksum:
            return
        yield entry
        place += length
