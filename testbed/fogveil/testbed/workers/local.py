"""Workers on this machine: a pool of processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from fogveil.testbed.workers.work import Crew


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def local_crew(count: int) -> Iterator[Crew]:
    """Open a pool of processes; it ends with what they compute then."""
    pool = ProcessPoolExecutor(count, initializer=_set_signals)
    title = f"{count} worker{'s' if count > 1 else ''}"
    try:
        yield Crew(pool, lambda: count, title, sends_files=False)
    finally:
        pool.shutdown(cancel_futures=True)  # else it is active at the end, which prints a traceback


def _set_signals() -> None:
    """Let the parent alone receive Ctrl-C: workers finish what they compute."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
