"""The clusters' own records: what they emitted, and which results came back to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from fogveil.core.files import LARGEST_RECORD, open_private, read_record_lines
from fogveil.v1.workload_pb2 import Workload

EMISSIONS_HEADER = "job,cluster,category,emitted,demand"
FEEDBACK_HEADER = "job,provider,finished"

Feedback = tuple[int, str, float]
"""A result that reached its cluster: the job, the provider, and when it was finished."""


class EmittedWorkload(NamedTuple):
    """A workload as a sources process published it."""

    job: int
    cluster: int
    category: int
    emitted: float
    demand: float | None
    """What it demands, where it brings its own."""


def emissions_path(folder: Path, episode: int) -> Path:
    """Return where the clusters record what they emit in an episode."""
    return folder / f"emissions-{episode:04}.csv"


def feedback_path(folder: Path, episode: int) -> Path:
    """Return where the clusters record the results of an episode."""
    return folder / f"feedback-{episode:04}.csv"


class ClusterRecords:
    """Appends to both records of an episode; numbers are written so that they read back exactly."""

    def __init__(self, folder: Path, episode: int) -> None:
        self._emissions = open_private(emissions_path(folder, episode))
        self._feedback = open_private(feedback_path(folder, episode))
        self._emissions.write(EMISSIONS_HEADER + "\n")
        self._feedback.write(FEEDBACK_HEADER + "\n")
        for file in (self._emissions, self._feedback):
            file.flush()

    def emitted(self, workloads: Iterable[Workload]) -> None:
        """Record workloads that are published."""
        self._emissions.writelines(
            f"{each.job},{each.cluster},{each.category},{each.emitted!r},"
            f"{each.demand if each.HasField('demand') else ''}\n"
            for each in workloads
        )
        self._emissions.flush()

    def received(self, results: Iterable[Feedback]) -> None:
        """Record results that came back."""
        self._feedback.writelines(f"{job},{name},{time!r}\n" for job, name, time in results)
        self._feedback.flush()

    def close(self) -> None:
        """Close both files."""
        self._emissions.close()
        self._feedback.close()


def read_emissions(path: Path, limit: int = LARGEST_RECORD) -> Iterator[EmittedWorkload]:
    """Yield what a sources process recorded as emitted."""
    for line in read_record_lines(path, EMISSIONS_HEADER, limit):
        job, cluster, category, emitted, demand = line.split(",")
        own = float(demand) if demand else None
        yield EmittedWorkload(int(job), int(cluster), int(category), float(emitted), own)


def read_feedback(path: Path, limit: int = LARGEST_RECORD) -> Iterator[Feedback]:
    """Yield the results that a sources process recorded; a provider's name may hold commas."""
    for line in read_record_lines(path, FEEDBACK_HEADER, limit):
        job, rest = line.split(",", 1)
        provider, finished = rest.rsplit(",", 1)
        yield int(job), provider, float(finished)
