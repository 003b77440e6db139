"""Reads the output of many participants at once, line by line, without blocking on any of them."""

from __future__ import annotations

import os
import selectors
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fogveil.testbed.launch.interface import OutputLine, Stream

CHUNK = 65536
LONGEST_LINE = 2**18
"""Bytes that are kept of a line, many times those of the longest report."""
IDLE = 0.02
"""Seconds to sleep where nothing is left to read."""

Decode = Callable[[bytes], Iterable[tuple[Stream, bytes]]]
"""Tells which of a participant's two streams each piece of a chunk belongs to."""


class OutputReader:
    """Collects the lines of all streams that were added."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._open: Counter[str] = Counter()
        self._partial: dict[tuple[str, Stream], bytes] = {}
        """The beginning, up to the longest line, of each line that has not ended yet."""

    def add(self, name: str, stream: Any, decode: Decode) -> None:
        """Read a stream of a participant from now on; whoever opened it closes it."""
        os.set_blocking(stream.fileno(), False)
        for each in ("stdout", "stderr"):  # what one before it left unfinished
            self._partial.pop((name, each), None)
        self._selector.register(stream, selectors.EVENT_READ, (name, decode))
        self._open[name] += 1

    def is_open(self, name: str) -> bool:
        """Return whether a participant may still write something."""
        return self._open[name] > 0

    def lines(self, timeout: float) -> Iterator[OutputLine]:
        """Yield the lines that have arrived, waiting up to `timeout` seconds for the first."""
        if not self._selector.get_map():
            time.sleep(min(timeout, IDLE))
            return
        for key, _ in self._selector.select(timeout):
            name, decode = key.data
            try:
                chunk = os.read(key.fd, CHUNK)
            except BlockingIOError:
                continue
            if not chunk:
                self._selector.unregister(key.fileobj)
                self._open[name] -= 1
                continue
            for stream, piece in decode(chunk):
                yield from self._split(name, stream, piece)

    def _split(self, name: str, stream: Stream, piece: bytes) -> Iterator[OutputLine]:
        *lines, rest = (self._partial.get((name, stream), b"") + piece).split(b"\n")
        self._partial[name, stream] = rest[:LONGEST_LINE]
        for line in lines:
            yield OutputLine(name, stream, line[:LONGEST_LINE].decode(errors="replace"))

    def close(self) -> None:
        """Stop reading."""
        self._selector.close()
