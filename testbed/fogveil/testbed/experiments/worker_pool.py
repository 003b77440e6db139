"""Work spread over processes: each piece is reported when it is done, and Ctrl-C loses none."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from fogveil.core.errors import InfrastructureError

Piece = TypeVar("Piece")


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def work_through(
    pieces: Iterable[Piece], work: Callable[[Piece], Any], processes: int | None = None
) -> Iterator[Piece]:
    """Do the pieces of work in processes, in this order, yielding each when it is done.

    After an interruption workers finish their current pieces and begin no other.
    """
    pool = ProcessPoolExecutor(
        processes or cores(), initializer=signal.signal, initargs=_IGNORE_INTERRUPT
    )
    try:
        futures = {pool.submit(work, piece): piece for piece in pieces}
        for future in as_completed(futures):
            future.result()
            yield futures[future]
    except BrokenProcessPool as error:
        pool.shutdown()  # else it is still active when Python exits, which prints a traceback
        raise InfrastructureError(
            "a worker process died (killed, or out of memory?); the same command continues with "
            "what is not finished"
        ) from error
    except BaseException:
        # Only the parent receives Ctrl-C; workers finish their current piece and start no other.
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()


_IGNORE_INTERRUPT = (signal.SIGINT, signal.SIG_IGN)
