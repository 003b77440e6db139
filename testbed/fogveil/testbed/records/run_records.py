"""The evaluator's tables of a run, jobs.parquet and decisions.parquet: complete or absent."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fogveil.agent.decision_record import UNSEEN
from fogveil.core.files import open_private
from fogveil.testbed.records.join import COLUMNS, Counts, Decisions, Floats
from fogveil.testbed.records.output import PART, remove_leftovers, reporting_write_errors
from fogveil.testbed.scenario.world import World


class RowTables:
    """Turns blocks of joined rows into the tables of jobs and of decisions."""

    def __init__(self, world: World) -> None:
        self._dictionaries = {
            "cluster": pa.array(world.clusters),
            "category": pa.array(world.categories),
            "node": pa.array(world.nodes),
        }
        name_type = pa.dictionary(pa.int32(), pa.string())
        types = {"job": pa.int64(), **dict.fromkeys(self._dictionaries, name_type)}
        self.jobs = pa.schema([(name, types.get(name, pa.float64())) for name in COLUMNS])
        self.decisions = pa.schema(
            [
                ("job", pa.int64()),
                ("time", pa.float64()),
                ("node", name_type),
                ("queued", pa.list_(pa.int32())),
                ("total_queued", pa.int64()),
                ("attempt", pa.int32()),
            ],
            metadata={"queued": ",".join((*world.nodes, world.cloud))},
        )

    def _named(self, name: str, numbers: Floats) -> pa.Array:
        indices = pa.array(numbers.astype(np.int32))
        return pa.DictionaryArray.from_arrays(indices, self._dictionaries[name])

    def convert(self, rows: Floats, decisions: Decisions) -> tuple[pa.Table, pa.Table]:
        """Return a block as tables of jobs and of decisions."""
        columns: dict[str, pa.Array] = {}
        for number, name in enumerate(COLUMNS):
            column = rows[:, number]
            if name in self._dictionaries:
                columns[name] = self._named(name, column)
            elif name == "job":
                columns[name] = pa.array(column.astype(np.int64))
            else:
                columns[name] = pa.array(column, mask=np.isnan(column))
        job, time, node, attempt = decisions.taken.T
        taken = [
            pa.array(job.astype(np.int64)),
            pa.array(time),
            self._named("node", node),
            *_observed_counts(decisions.counts, len(job)),
            pa.array(attempt.astype(np.int32)),
        ]
        return (
            pa.Table.from_arrays(list(columns.values()), schema=self.jobs),
            pa.Table.from_arrays(taken, schema=self.decisions),
        )


class MemoryRecords:
    """Keeps the tables of a run in memory."""

    def __init__(self, world: World) -> None:
        self._tables = RowTables(world)
        self._blocks: list[tuple[pa.Table, pa.Table]] = []

    def take(self, rows: Floats, decisions: Decisions) -> None:
        """Add a block of rows."""
        self._blocks.append(self._tables.convert(rows, decisions))

    def tables(self) -> tuple[pa.Table, pa.Table]:
        """Return the tables of jobs and of decisions."""
        schemas = self._tables.jobs, self._tables.decisions
        blocks = [*self._blocks, tuple(schema.empty_table() for schema in schemas)]
        jobs, decisions = (pa.concat_tables(kind) for kind in zip(*blocks, strict=True))
        return jobs, decisions


class RunRecords:
    """Streams joined rows to DIR/jobs.parquet and DIR/decisions.parquet.

    The tables get their names when the run is complete; a failed run leaves nothing behind.
    """

    def __init__(self, folder: Path, world: World) -> None:
        self._folder = folder
        self._new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
        self._tables = RowTables(world)
        self._writers: list[tuple[Path, pq.ParquetWriter]] = []

    def __enter__(self) -> Self:
        try:
            with reporting_write_errors(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
                remove_leftovers(self._folder)
                schemas = {"jobs": self._tables.jobs, "decisions": self._tables.decisions}
                for name, schema in schemas.items():
                    part = self._folder / f"{name}.parquet.{os.getpid()}{PART}"
                    open_private(part).close()  # pyarrow would create it readable by everyone
                    self._writers.append((part, pq.ParquetWriter(part, schema)))
        except BaseException:
            self._clean_up()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        complete = False
        try:
            with reporting_write_errors(self._folder):
                for _, writer in self._writers:
                    writer.close()
                if error is None:
                    for part, _ in self._writers:
                        part.replace(self._folder / ".".join(part.name.split(".")[:2]))
                    complete = True
        finally:
            if not complete:
                self._clean_up()

    def _clean_up(self) -> None:
        """Remove the incomplete files and the folders that were created for them."""
        for part in self._folder.glob(f"*.{os.getpid()}{PART}"):
            part.unlink()
        for folder in self._new_folders:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    def take(self, rows: Floats, decisions: Decisions) -> None:
        """Write a block of rows."""
        tables = self._tables.convert(rows, decisions)
        with reporting_write_errors(self._folder):
            for (_, writer), table in zip(self._writers, tables, strict=True):
                writer.write_table(table)


def _observed_counts(counts: Counts, size: int) -> tuple[pa.Array, pa.Array]:
    """Per-node counts and their sum as the policy received them; null where it received none."""
    width = counts.shape[1]
    if width == 0:
        return pa.nulls(size, pa.list_(pa.int32())), pa.nulls(size, pa.int64())
    unseen = counts == UNSEEN
    total = pa.array(np.where(unseen, 0, counts).sum(axis=1, dtype=np.int64))
    if width == 1:
        return pa.nulls(size, pa.list_(pa.int32())), total
    offsets = pa.array(np.arange(0, (size + 1) * width, width, dtype=np.int32))
    flat = pa.array(counts.ravel(), mask=unseen.ravel())
    return pa.ListArray.from_arrays(offsets, flat), total
