"""When each workload of a run was emitted and came back, and from where: what a change did."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from fogveil.testbed.records.join import COLUMNS, Decisions, Floats

_KEPT = [COLUMNS.index(name) for name in ("job", "emitted", "returned", "node")]


@dataclass(frozen=True)
class JobTimes:
    """The workloads of a run in order of emission."""

    emitted: Floats
    returned: Floats
    node: npt.NDArray[np.int16]
    """The Fog node that served each."""

    @property
    def delay(self) -> Floats:
        """The Fog loop of each."""
        return self.returned - self.emitted

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return what `JobTimesRecord.content` returned, from a file."""
        with np.load(path) as file:
            return cls(file["emitted"], file["returned"], file["node"])


class JobTimesRecord:
    """Keeps of joined rows what `JobTimes` has."""

    def __init__(self) -> None:
        self._blocks: list[Floats] = [np.empty((0, len(_KEPT)))]

    def take(self, rows: Floats, decisions: Decisions) -> None:  # noqa: ARG002 (a sink's)
        """Add a block of rows."""
        self._blocks.append(rows[:, _KEPT])

    def times(self) -> JobTimes:
        """Return them in order of emission; those of one instant in order of job id."""
        job, emitted, returned, node = np.concatenate(self._blocks).T
        order = np.lexsort((job, emitted))
        return JobTimes(emitted[order], returned[order], node[order].astype(np.int16))

    def content(self) -> bytes:
        """Return what is kept of them in a file."""
        times = self.times()
        content = io.BytesIO()
        np.savez_compressed(
            content, emitted=times.emitted, returned=times.returned, node=times.node
        )
        return content.getvalue()
