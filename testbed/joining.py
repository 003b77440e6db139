"""Joining what the participants recorded into one row per workload, in the order of decisions.

Rows leave as soon as they and all before them are complete, in blocks of a fixed size: so a run
streams, and the embedded and the federated engine give the same bytes, the same means and the
same run hash.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from math import nan
from typing import Protocol

import numpy as np
import numpy.typing as npt

from provider_node.node import Served

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
_LATER = [nan] * 7 + [True]

BLOCK = 4096
"""Rows that leave together."""
UNSEEN = -1
"""Stands for a count that the policy was not given."""


class Sink(Protocol):
    """Where joined rows go: a file, a summary."""

    def jobs(self, rows: Floats) -> None:
        """Take rows of `COLUMNS`, in the order of decisions."""

    def decisions(self, rows: Floats, counts: Counts) -> None:
        """Take (job, node, time) rows and, beside them, the counts that the policy was given."""


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
        self._rows: list[list[float]] = []
        self._decided: list[list[float]] = []
        self._open: dict[int, list[float]] = {}
        self._counts = array("i")
        self._digests = hashlib.sha256(), hashlib.sha256()

    def decided(
        self,
        job: int,
        cluster: int,
        category: int,
        node: int,
        emitted: float,
        arrived: float,
    ) -> None:
        """A workload was placed."""
        row = [job, cluster, category, node, emitted, arrived, *_LATER]
        self._open[job] = row
        self._rows.append(row)
        self._decided.append(row)
        if len(self._decided) >= BLOCK:
            self._release()

    def observed(self, counts: Iterable[int]) -> None:
        """Note the counts that the policy was given for the decision it takes next."""
        self._counts.extend(counts)

    def served(self, jobs: Iterable[Served], forwarded: Iterable[int]) -> None:
        """Jobs finished at a Fog node; some of them go on to the Cloud."""
        still_open = set(forwarded)
        for job, category, _, started, finished in jobs:
            row = self._open[job]
            down = self._down[int(row[1])][category][int(row[3])]
            row[_STARTED : _RETURNED + 1] = started, finished, finished + down
            if job not in still_open:
                del self._open[job]
                row[_OPEN] = False

    def cloud_served(self, jobs: Iterable[tuple[Served, bool]]) -> None:
        """Aggregates finished at the Cloud, each fed back to its cluster or not."""
        for (job, category, arrived, started, finished), fed_back in jobs:
            row = self._open.pop(job)
            down = self._cloud_down[category][int(row[1])] if fed_back else nan
            row[_CLOUD_ARRIVED:] = arrived, started, finished, finished + down, False

    def close(self) -> str:
        """Let the last rows go and return the run hash."""
        if self._open:
            raise AssertionError(f"{len(self._open)} jobs never finished")
        self._release(last=True)
        jobs, decisions = (digest.digest() for digest in self._digests)
        return hashlib.sha256(jobs + decisions).hexdigest()

    def _release(self, *, last: bool = False) -> None:
        while len(self._decided) >= BLOCK or (last and self._decided):
            self._release_decisions(min(BLOCK, len(self._decided)))
        while True:
            ready = 0
            for row in self._rows[:BLOCK]:
                if row[_OPEN]:
                    break
                ready += 1
            if ready == 0 or (ready < BLOCK and not last):
                return
            rows = np.array(self._rows[:ready])[:, :_OPEN]
            del self._rows[:ready]
            self._digests[0].update(rows.tobytes())
            for sink in self._sinks:
                sink.jobs(rows)

    def _release_decisions(self, size: int) -> None:
        rows = np.array([(row[0], row[3], row[4]) for row in self._decided[:size]])
        del self._decided[:size]
        width = len(self._counts) // (size + len(self._decided))
        counts = np.array(self._counts[: size * width], dtype=np.int32).reshape(size, width)
        del self._counts[: size * width]
        self._digests[1].update(counts.tobytes())
        for sink in self._sinks:
            sink.decisions(rows, counts)
