"""The join of the participants' records into one row per workload, in the order of decisions.

Rows are released in blocks of a fixed size, as soon as they and all before them are complete. So a
run streams, and the embedded and the federated engine give the same bytes, means and run hash.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from math import nan
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fogveil.core.steps import Steps
from fogveil.provider_node.node import Served
from fogveil.testbed.scenario.paths import FastestPaths

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
_NODE, _EMITTED, _ARRIVED, _STARTED, _RETURNED, _CLOUD_ARRIVED, _OPEN = 3, 4, 5, 6, 8, 9, 13
_UNKNOWN = [nan] * 7 + [1]
"""The columns that follow a decision, and the number of nodes that have still to serve the job."""

BLOCK = 4096
"""Rows that are released together."""


class Decisions(NamedTuple):
    """The decisions of a block; there are more than rows where jobs are lost and emitted again."""

    taken: Floats
    """Per decision the job, the time, the node and the attempt."""
    counts: Counts
    """Per decision the counts that the policy observed."""


class Sink(Protocol):
    """Receives joined rows: a file, a summary."""

    def take(self, rows: Floats, decisions: Decisions) -> None:
        """Take rows of `COLUMNS`, and the decisions of the same block."""


class Joiner:
    """Collects the events of a run by job id.

    A job that a crash loses is decided anew. Its row has its first emission and its last attempt.
    """

    def __init__(
        self, paths: Steps[FastestPaths], sinks: Iterable[Sink], *, retries: bool = False
    ) -> None:
        """Begin a run; with `retries`, in which jobs may be lost, all is kept to the end."""
        self._sinks = tuple(sinks)
        self._paths = paths
        constant = paths.constant
        self._down = constant.down if constant else None
        """The latencies back, where they never change."""
        self._retries = retries
        self._taken: list[tuple[int, float, int, int]] = []
        self._attempts: Counter[int] = Counter()
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
        """Record the placement of a workload, a lost one for another time."""
        if self._retries:
            self._attempts[job] += 1
            self._taken.append((job, emitted, node, self._attempts[job]))
            if job in self._open:
                row = self._open[job]
                row[_NODE], row[_ARRIVED] = node, arrived
                return
        row = [job, cluster, category, node, emitted, arrived, *_UNKNOWN]
        self._open[job] = row
        self._rows.append(row)
        self._decisions += 1
        if self._decisions % BLOCK == 0 and not self._retries:
            self._release()

    def forwarded(self, job: int) -> None:
        """Record that the Fog node forwards a job to the Cloud after serving it."""
        self._open[job][_OPEN] += 1

    def served(self, jobs: Iterable[Served]) -> None:
        """Record jobs that finished at a Fog node."""
        for job, category, _, started, finished in jobs:
            row = self._open[job]
            latencies = self._down or self._paths.at(finished).down
            down = latencies[row[1]][category][row[_NODE]]
            row[_STARTED : _RETURNED + 1] = started, finished, finished + down
            row[_OPEN] -= 1
            if not row[_OPEN]:
                del self._open[job]

    def cloud_served(self, jobs: Iterable[tuple[Served, bool]]) -> None:
        """Record aggregates that finished at the Cloud, each fed back to its cluster or not."""
        for (job, category, arrived, started, finished), fed_back in jobs:
            row = self._open.pop(job)
            paths = self._paths.at(finished)
            down = paths.cloud_to_cluster[category][row[1]] if fed_back else nan
            row[_CLOUD_ARRIVED:] = arrived, started, finished, finished + down, 0

    def close(self) -> str:
        """Release the last rows and return the run hash."""
        if self._open:
            raise AssertionError(f"{len(self._open)} jobs never finished")
        if self._retries:
            self._release_all()
        else:
            self._release(last=True)
        return hashlib.sha256(b"".join(each.digest() for each in self._digests)).hexdigest()

    def _release_all(self) -> None:
        """Release a run in which jobs may have been lost, its attempts under the hash as well."""
        rows = np.array([row[:_OPEN] for row in self._rows], np.float64).reshape(-1, _OPEN)
        taken = np.array(self._taken, np.float64).reshape(-1, 4)
        counts = np.array(self._counts, np.int32)
        self._digests[0].update(rows.tobytes())
        self._digests[1].update(counts.tobytes())
        if len(taken) > len(rows):
            self._digests[1].update(taken.tobytes())
        decisions = Decisions(taken, counts.reshape(len(taken), -1))
        for sink in self._sinks:
            sink.take(rows, decisions)

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
            taken = np.ones((len(block), 4))
            taken[:, :3] = rows[:, (0, _EMITTED, _NODE)]
            decisions = Decisions(taken, counts.reshape(len(block), width))
            for sink in self._sinks:
                sink.take(rows, decisions)
