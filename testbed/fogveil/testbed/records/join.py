"""The join of the participants' records into one row per workload, in the order of decisions.

Rows are released in blocks of a fixed size, as soon as they and all before them are complete. So a
run streams, and the embedded and the federated engine give the same bytes, means and run hash.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from itertools import chain
from math import nan
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fogveil.provider_node.node import Served

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int32]

COLUMNS = (
    "job",
    "cluster",
    "category",
    "node",
    "emitted",
    "arrived",
    "started",
    "finished",
    "returned",
    "cloud_arrived",
    "cloud_started",
    "cloud_finished",
    "cloud_returned",
)
_STARTED, _RETURNED, _CLOUD_ARRIVED, _OPEN = 6, 8, 9, 13
_UNKNOWN = [nan] * 7 + [1]
"""The columns that follow a decision, and the number of nodes that have still to serve the job."""

BLOCK = 4096
"""Rows that are released together."""


class Sink(Protocol):
    """Receives joined rows: a file, a summary."""

    def take(self, rows: Floats, counts: Counts) -> None:
        """Take rows of `COLUMNS` and, row by row, the counts that the policy observed."""


class Joiner:
    """Collects the events of a run by job id."""

    def __init__(
        self,
        down: tuple[tuple[tuple[float, ...], ...], ...],
        cloud_down: tuple[tuple[float, ...], ...],
        sinks: Iterable[Sink],
    ) -> None:
        self._sinks = tuple(sinks)
        self._down, self._cloud_down = down, cloud_down
        self._rows: list[list[Any]] = []
        self._open: dict[int, list[Any]] = {}
        self._counts = array("i")
        self._decisions = 0
        self._digests = hashlib.sha256(), hashlib.sha256()

    def observed(self, counts: Iterable[int]) -> None:
        """Record the counts that the policy observes for its next decision."""
        self._counts.extend(counts)

    def decided(
        self, job: int, cluster: int, category: int, node: int, emitted: float, arrived: float
    ) -> None:
        """Record the placement of a workload."""
        row = [job, cluster, category, node, emitted, arrived, *_UNKNOWN]
        self._open[job] = row
        self._rows.append(row)
        self._decisions += 1
        if self._decisions % BLOCK == 0:
            self._release()

    def forwarded(self, job: int) -> None:
        """Record that the Fog node forwards a job to the Cloud after serving it."""
        self._open[job][_OPEN] += 1

    def served(self, jobs: Iterable[Served]) -> None:
        """Record jobs that finished at a Fog node."""
        for job, category, _, started, finished in jobs:
            row = self._open[job]
            down = self._down[row[1]][category][row[3]]
            row[_STARTED : _RETURNED + 1] = started, finished, finished + down
            row[_OPEN] -= 1
            if not row[_OPEN]:
                del self._open[job]

    def cloud_served(self, jobs: Iterable[tuple[Served, bool]]) -> None:
        """Record aggregates that finished at the Cloud, each fed back to its cluster or not."""
        for (job, category, arrived, started, finished), fed_back in jobs:
            row = self._open.pop(job)
            down = self._cloud_down[category][row[1]] if fed_back else nan
            row[_CLOUD_ARRIVED:] = arrived, started, finished, finished + down, 0

    def close(self) -> str:
        """Release the last rows and return the run hash."""
        if self._open:
            raise AssertionError(f"{len(self._open)} jobs never finished")
        self._release(last=True)
        jobs, counts = (digest.digest() for digest in self._digests)
        return hashlib.sha256(jobs + counts).hexdigest()

    def _release(self, *, last: bool = False) -> None:
        while self._rows and (last or len(self._rows) >= BLOCK):
            block = self._rows[:BLOCK]
            if any(row[_OPEN] for row in block):
                return
            flat = np.fromiter(chain.from_iterable(block), np.float64, len(block) * (_OPEN + 1))
            rows = np.ascontiguousarray(flat.reshape(len(block), -1)[:, :_OPEN])
            width = len(self._counts) // len(self._rows)
            counts = np.array(self._counts[: len(block) * width], np.int32)
            del self._rows[: len(block)]
            del self._counts[: len(block) * width]
            self._digests[0].update(rows.tobytes())
            self._digests[1].update(counts.tobytes())
            for sink in self._sinks:
                sink.take(rows, counts.reshape(len(block), width))
