"""Workers as jobs of Slurm: they are there for one command, with a scheduler beside the driver.

The folder of the credentials has to be on a disk that all hosts share, as the package has to be.
"""

from __future__ import annotations

import inspect
import shutil
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fogveil.core.errors import InfrastructureError, InputError
from fogveil.testbed.scenario.load import describe_first_fault
from fogveil.testbed.workers.folder import (
    DEFAULT_FOLDER,
    DRIVER,
    credentials_of,
    make_folder,
    security_of,
)
from fogveil.testbed.workers.preload import PRELOAD
from fogveil.testbed.workers.work import Crew, Say

if TYPE_CHECKING:
    from dask_jobqueue import SLURMCluster

LOOPBACK_DASHBOARD = "127.0.0.1:8787"
"""Dask's dashboard asks nobody who they are."""
LOST_AFTER = 5.0
"""Seconds without any worker: one that crashes is there again sooner."""


class SlurmFile(BaseModel):
    """The keys of the file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    jobs: int = Field(ge=1)
    """Jobs that are submitted."""
    folder: str = str(DEFAULT_FOLDER)
    """For the credentials of the workers, on a disk that all hosts share."""
    job: dict[str, Any]
    """What dask-jobqueue's SLURMCluster takes: cores, memory, queue, account, walltime, …"""


def _known_keys() -> set[str]:
    """Return what may be given of a job; who connects to whom is not for the file to say."""
    from dask_jobqueue import slurm
    from dask_jobqueue.core import Job, JobQueueCluster

    kinds = (JobQueueCluster, Job, slurm.SLURMJob)
    keys = {key for kind in kinds for key in inspect.signature(kind).parameters}
    return keys - {"security", "protocol", "n_workers", "asynchronous", "loop", "name"}


@dataclass(frozen=True)
class SlurmWorkers:
    """Workers that Slurm starts when it has room for them."""

    file: Path
    jobs: int
    folder: Path
    job: dict[str, Any] = field(hash=False)

    @classmethod
    def read(cls, path: Path, option: str) -> Self:
        """Read and check a file."""
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
            table = SlurmFile.model_validate(content)
        except OSError as error:
            raise InputError(f"{option} slurm:{path}: cannot be read: {error.strerror}") from error
        except ValidationError as error:
            raise InputError(f"{path}: {describe_first_fault(error, content)}") from error
        except ValueError as error:
            raise InputError(f"{path}: is not TOML: {error}") from error
        cores = table.job.get("cores")
        if not isinstance(cores, int) or cores < 1 or not isinstance(table.job.get("memory"), str):
            raise InputError(
                f"{path}: job: expected at least cores, a number, and memory, such as '4GB'"
            )
        if unknown := sorted(set(table.job) - _known_keys()):
            raise InputError(
                f"{path}: job.{unknown[0]}: is no key of SLURMCluster in dask-jobqueue"
            )
        return cls(path, table.jobs, Path(table.folder), table.job)

    @property
    def expected(self) -> int:
        """A worker for each core."""
        return int(self.jobs * self.job["cores"])

    @contextmanager
    def cluster(self) -> Iterator[SLURMCluster]:
        """Start a scheduler here, from which jobs can be submitted; all end with the context."""
        from dask_jobqueue import SLURMCluster

        folder = self.folder.absolute() / "slurm"
        make_folder(folder)
        # One identity for all: it is of this command alone, and gone with it.
        security = security_of(credentials_of(folder, DRIVER), "scheduler", "worker", "client")
        own = ["--preload", PRELOAD, "--dashboard-address", "127.0.0.1:0"]
        extra = [*self.job.get("worker_extra_args", ()), *own]
        options = {"dashboard_address": LOOPBACK_DASHBOARD, **self.job.get("scheduler_options", {})}
        asked = {"processes": self.job["cores"], **self.job}
        asked |= {"worker_extra_args": extra, "scheduler_options": options}
        try:
            with SLURMCluster(security=security, **asked) as cluster:
                yield cluster
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def open(self, say: Say) -> Iterator[Crew]:
        """Submit the jobs and wait for the first to start."""
        from distributed import Client

        from fogveil.testbed.workers.dask_crew import dask_crew, silence

        if shutil.which("sbatch") is None:
            raise InfrastructureError(
                f"--workers slurm:{self.file}: there is no command sbatch here; run this where "
                "Slurm is installed"
            )
        silence()
        with self.cluster() as cluster, Client(cluster, set_as_default=False) as client:
            cluster.scale(jobs=self.jobs)
            lost = LostJobs(cluster, self.jobs)
            with dask_crew(client, "the Slurm jobs", say, None, lost.replace) as crew:
                yield crew


class LostJobs:
    """Submits another job for each that has ended, as at the end of its time."""

    def __init__(
        self, cluster: SLURMCluster, jobs: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster, self._jobs, self._now = cluster, jobs, now
        self._there: dict[Any, float] = {}
        """When a worker of each job was last there."""

    def replace(self, workers: set[str]) -> None:
        """Look at the names of the workers that are there."""
        for job, spec in self._cluster.worker_spec.items():
            if any(f"{job}{suffix}" in workers for suffix in spec.get("group", [""])):
                self._there[job] = self._now()
        latest = self._now() - LOST_AFTER
        lost = [job for job, last in self._there.items() if last < latest]
        if lost:
            self._there = {job: last for job, last in self._there.items() if job not in lost}
            self._cluster.sync(self._cluster.scale_down, lost)
            self._cluster.scale(jobs=self._jobs)
