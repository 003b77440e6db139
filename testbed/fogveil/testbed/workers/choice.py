"""The choice of `--workers`: processes of this machine, a Dask scheduler, or jobs of Slurm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from fogveil.core.errors import InfrastructureError, InputError
from fogveil.testbed.workers.folder import DEFAULT_FOLDER, DRIVER, credentials_of, security_of
from fogveil.testbed.workers.hosts import check_scheduler, parse_address
from fogveil.testbed.workers.local import cores, local_crew
from fogveil.testbed.workers.work import Crew, Piece, Say, work_through

DASK, SLURM = "dask://", "slurm:"
EXPECTED = (
    "expected a number of processes, dask://HOST:PORT of `fogveil workers scheduler`, or slurm:FILE"
)
CONNECT_SECONDS, JOIN_SECONDS = 15, 60


class Workers(Protocol):
    """Workers that are chosen, but not there yet."""

    @property
    def expected(self) -> int | None:
        """How many there will be, where that is known."""

    def open(self, say: Say) -> AbstractContextManager[Crew]:
        """Have them for the time of the context; `say` is told what a person has to know."""


@dataclass(frozen=True)
class LocalWorkers:
    """Processes of this machine."""

    count: int

    @property
    def expected(self) -> int:
        """The processes."""
        return self.count

    def open(self, say: Say) -> AbstractContextManager[Crew]:  # noqa: ARG002 (nothing to say)
        """Start them when the first computation is submitted."""
        return local_crew(self.count)


@dataclass(frozen=True)
class DaskWorkers:
    """Whoever works for a scheduler that `fogveil workers scheduler` has started."""

    address: str
    """host:port"""
    folder: Path
    """Where the driver's credentials are."""
    expected = None

    @contextmanager
    def open(self, say: Say) -> Iterator[Crew]:
        """Connect to the scheduler."""
        credentials = credentials_of(self.folder, DRIVER)
        check_scheduler(self.address, credentials)
        from distributed import Client

        from fogveil.testbed.workers.dask_crew import dask_crew, silence

        silence()
        try:
            client = Client(
                f"tls://{self.address}",
                security=security_of(credentials, "client"),
                timeout=CONNECT_SECONDS,
                set_as_default=False,
            )
        except OSError as error:
            raise InfrastructureError(
                f"the scheduler at {self.address} does not answer, or not to the credentials in "
                f"{self.folder}"
            ) from error
        with (
            client,
            dask_crew(client, f"the scheduler at {self.address}", say, JOIN_SECONDS) as crew,
        ):
            yield crew


def execute(pieces: Sequence[Piece], workers: Workers, say: Say) -> Iterator[Piece]:
    """Do pieces of work, yielding each when it is written; where there are none, ask for nobody."""
    if pieces:
        with workers.open(say) as crew:
            yield from work_through(pieces, crew)


def parse_workers(text: str | int | None, option: str = "--workers") -> Workers:
    """Return the workers that an option or an argument names; None is a process per core."""
    if text is None:
        return LocalWorkers(cores())
    words = str(text).strip()
    if words.startswith(SLURM):
        check_extra()
        from fogveil.testbed.workers.slurm import SlurmWorkers

        return SlurmWorkers.read(Path(words.removeprefix(SLURM)), option)
    if words.startswith(DASK):
        folder, at, address = words.removeprefix(DASK).rpartition("@")
        parse_address(address, f"{option} {DASK}")
        check_extra()
        return DaskWorkers(address, Path(folder) if at else DEFAULT_FOLDER)
    if not words.isdecimal() or int(words) < 1:
        raise InputError(f"{option} {text}: {EXPECTED}")
    return LocalWorkers(int(words))


def check_extra() -> None:
    """Refuse to work with other hosts without the packages that it needs."""
    if find_spec("distributed") is None or find_spec("dask_jobqueue") is None:
        raise InputError(
            "workers on other hosts need Dask: pip install --constraint constraints.txt "
            "'.[cluster]' installs what is missing"
        )
