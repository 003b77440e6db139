"""Workers of a Dask scheduler, which repeats what a lost worker was computing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from fogveil.core.errors import InfrastructureError
from fogveil.testbed.workers.code import installed_code
from fogveil.testbed.workers.files import SentFiles
from fogveil.testbed.workers.preload import RESOURCE, resource_of
from fogveil.testbed.workers.work import Crew, Say

if TYPE_CHECKING:
    from distributed import Client
    from distributed import Future as RemoteFuture

OnLook = Callable[[set[str]], None]
"""Told the names of all workers that are there."""
LOOK_EVERY = 1.0
"""Seconds between two looks at the workers."""


def silence() -> None:
    """Keep Dask's own log off the terminal: what a person has to know is said in a sentence."""
    import distributed  # noqa: F401 (which sets levels of its own)

    for name in ("distributed", "distributed.client", "tornado"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


class DaskExecutor(Executor):
    """An executor on the workers that have this process's code.

    A result is released once the driver has it: of a lost worker only what was not finished is
    computed again.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._resources = {resource_of(installed_code()): 1}
        self._shared: dict[SentFiles, RemoteFuture] = {}

    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        """Begin a call on a worker that is free; files among its arguments are sent once."""
        sent = [self._share(each) if isinstance(each, SentFiles) else each for each in arguments]
        remote = self._client.submit(
            function, *sent, **options, resources=self._resources, pure=False
        )
        future: Future[Any] = Future()

        def finish(finished: RemoteFuture) -> None:
            _copy_result(finished, future)
            finished.release()

        def cancel(local: Future[Any]) -> None:
            if local.cancelled():
                remote.cancel(force=True)

        future.add_done_callback(cancel)
        remote.add_done_callback(finish)
        return future

    def _share(self, files: SentFiles) -> RemoteFuture:
        """Return files as the result of a task, which the scheduler repeats if its worker is lost.

        Dask's own scattering keeps them at workers alone, and fails with the last that has them.
        """
        if files not in self._shared:
            key = f"files-{files.digest}"
            self._shared[files] = self._client.submit(
                _return, files, key=key, resources=self._resources
            )
        return self._shared[files]

    def shutdown(self, wait: bool = True, **_options: bool) -> None:  # noqa: ARG002, FBT001
        """Release what is left; the scheduler and its workers stay."""
        self._shared.clear()


def _return(files: SentFiles) -> SentFiles:
    return files


def _copy_result(remote: RemoteFuture, future: Future[Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    from distributed.scheduler import KilledWorker

    try:
        future.set_result(remote.result())
    except KilledWorker as error:
        future.set_exception(
            InfrastructureError(
                f"a computation took {error.allowed_failures + 1} workers with it (out of memory?);"
                " the same command continues with what is not finished"
            )
        )
    except BaseException as error:  # noqa: BLE001 (whoever waits for the result is told)
        future.set_exception(error)


class Watch:
    """Who works for a scheduler: those of this code count, and others are named once."""

    def __init__(self, client: Client, say: Say, on_look: OnLook) -> None:
        self._client, self._say, self._on_look = client, say, on_look
        self._own = resource_of(installed_code())
        self._refused: set[str] = set()
        self._count, self._looked = 0, 0.0

    @property
    def refused(self) -> int:
        """How many workers run other code."""
        return len(self._refused)

    def count(self) -> int:
        """Return how many workers of this code there are."""
        if time.monotonic() - self._looked >= LOOK_EVERY:
            with suppress(OSError, ValueError):  # a lost scheduler cancels all that is running
                found = self._look()
                if self._count and not found:
                    self._say("all workers are lost; waiting for others to join")
                self._count = found
            self._looked = time.monotonic()
        return self._count

    def _look(self) -> int:
        workers: dict[str, Any] = self._client.scheduler_info()["workers"]
        for address, worker in workers.items():
            if self._own not in worker["resources"] and address not in self._refused:
                self._refused.add(address)
                self._say(_refusal(address, worker["resources"]))
        self._on_look({str(worker["name"]) for worker in workers.values()})
        return sum(w["nthreads"] for w in workers.values() if self._own in w["resources"])


def _refusal(address: str, resources: dict[str, float]) -> str:
    codes = [name.removeprefix(RESOURCE) for name in resources if name.startswith(RESOURCE)]
    runs = f"runs other code ({codes[0]})" if codes else "was not started by fogveil"
    return (
        f"worker {address.partition('://')[2]} is refused: it {runs}, this command has "
        f"{installed_code()}; install the same fogveil, Python and libraries there"
    )


@contextmanager
def dask_crew(
    client: Client,
    name: str,
    say: Say,
    patience: float | None,
    on_look: OnLook = lambda _names: None,
) -> Iterator[Crew]:
    """Wait for a worker of this code, and lend all there are; `patience` is in seconds."""
    watch = Watch(client, say, on_look)
    begin, waits = time.monotonic(), False
    while not watch.count():
        waited = time.monotonic() - begin
        if patience is not None and waited > patience:
            others = f"; {watch.refused} of other code are refused" if watch.refused else ""
            raise InfrastructureError(
                f"no worker of {name} has joined within {patience:g} s{others}: "
                "start some with `fogveil workers start`"
            )
        if not waits and waited > LOOK_EVERY:
            waits = True
            say(f"waiting for workers of {name}")
        time.sleep(LOOK_EVERY / 2)
    count = watch.count()
    title = f"{count} worker{'s' if count > 1 else ''} of {name}"
    port = client.scheduler_info()["services"].get("dashboard")
    say(f"{title}; Dask's dashboard is http://127.0.0.1:{port}/status on the scheduler's host")
    pool = DaskExecutor(client)
    try:
        yield Crew(pool, watch.count, title, sends_files=True)
    finally:
        pool.shutdown()
