"""Participants' records that still grow, read line by line as they do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fogveil.core.files import open_untrusted

MOST = 2**24
"""Bytes of a record that one look reads."""


class RecordTail:
    """A record with a header line; each look returns the lines that were added since the last."""

    def __init__(self, path: Path, header: str) -> None:
        self._path, self._header = path, header
        self._offset = 0

    def read_new(self) -> Iterator[list[str]]:
        """Yield the cells of each new line; an incomplete one is left for the next look."""
        try:
            with open_untrusted(self._path) as file:
                file.seek(self._offset)
                content = file.read(MOST)
        except OSError:  # not there yet
            return
        complete = content.rpartition(b"\n")[0]
        if not complete:
            return
        begins = self._offset == 0
        self._offset += len(complete) + 1
        for number, line in enumerate(complete.decode(errors="replace").split("\n")):
            if not (begins and number == 0 and line == self._header):
                yield line.split(",")
