"""Work spread over workers: they compute, and the driver alone writes what they found.

A piece of work is finished when the driver has written it. So whatever is killed, the driver or a
worker, the same command continues with what is not finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing import active_children
from typing import Any, Protocol, TypeVar

from fogveil.core.errors import InfrastructureError
from fogveil.testbed.workers.files import FileList, Located, SentFiles, unpack

AHEAD = 4
"""So many computations per worker are submitted: what is submitted is lost with the driver."""
LOOK_EVERY = 1.0
"""Seconds between two looks at how many workers there are."""


class Order(Protocol):
    """A computation as it is sent to a worker; it writes nothing of the driver's."""

    def list_files(self, files: FileList) -> None:
        """Name the driver's files that it reads."""

    def compute(self, located: Located) -> Any:
        """Return what the driver is to keep, with its files where the worker has them."""


class Work(Protocol):
    """A piece of work as the driver knows it."""

    def order(self) -> Order:
        """Return what a worker has to compute for it."""

    def keep(self, found: Any) -> None:
        """Write what was computed."""


Say = Callable[[str], None]
"""Shows a sentence to the person at the command."""
Piece = TypeVar("Piece", bound=Work)


@dataclass(frozen=True)
class Crew:
    """Workers that are there."""

    executor: Executor
    count: Callable[[], int]
    """How many there are now."""
    title: str
    """Which they are, in words."""
    sends_files: bool
    """Whether they may be on other hosts, which have none of the driver's files."""

    def submit(self, order: Order) -> Future[Any]:
        """Begin a computation as soon as a worker is free."""
        return self.executor.submit(_compute, order, self._files_of(order))

    def _files_of(self, order: Order) -> SentFiles | None:
        if not self.sends_files:
            return None
        files = FileList()
        order.list_files(files)
        return files.read()


def _compute(order: Order, files: SentFiles | None) -> Any:
    return order.compute(unpack(files))


def compute_here(work: Work) -> None:
    """Do a piece of work in this process."""
    work.keep(_compute(work.order(), None))


def work_through(pieces: Iterable[Piece], crew: Crew) -> Iterator[Piece]:
    """Do the pieces of work in this order, yielding each when it is written.

    After an interruption workers finish what they compute, as far as they are on this machine, and
    begin nothing else.
    """
    waiting, running = iter(pieces), dict[Future[Any], Piece]()
    try:
        while True:
            room = max(1, AHEAD * crew.count()) - len(running)
            for piece in islice(waiting, max(0, room)):
                running[crew.submit(piece.order())] = piece
            if not running:
                return
            for future in wait(running, LOOK_EVERY, FIRST_COMPLETED).done:
                piece = running[future]
                piece.keep(_result(future))
                del running[future]
                yield piece
    except BaseException:
        _keep_finished(running)
        raise


def compute_in_order(orders: Sequence[Order], crew: Crew) -> Iterator[Any]:
    """Yield what was computed for each order, in their order; an interruption ends it at once."""
    futures = [crew.submit(order) for order in orders]
    try:
        for future in futures:
            yield _result(future)
    except BaseException:
        for future in futures:
            future.cancel()
        for process in active_children():  # of a pool on this machine
            process.terminate()
        raise


def _result(future: Future[Any]) -> Any:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise InfrastructureError(
            "a worker process died (killed, or out of memory?); the same command continues with "
            "what is not finished"
        ) from error
    except CancelledError as error:
        raise InfrastructureError(
            "the scheduler of the workers is gone; the same command continues with what is not "
            "finished"
        ) from error


def _keep_finished(running: dict[Future[Any], Piece]) -> None:
    """Begin nothing else, and write what is computed nevertheless."""
    left = {future: piece for future, piece in running.items() if not future.cancel()}
    wait(left)
    for future, piece in left.items():
        if not future.cancelled() and future.exception() is None:
            with suppress(Exception):  # what ends the work is being raised already
                piece.keep(future.result())
