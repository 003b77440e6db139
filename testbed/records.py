"""The evaluator's records of a run: two Parquet tables and run.json, complete or not there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from agent.record import UNSEEN
from fogveil.errors import InputError
from testbed.joining import COLUMNS, Counts, Floats
from testbed.world import World

PART = ".part"
"""Ending of a file that is not complete yet."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a full disk or an unwritable folder into one sentence."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def write_json(path: Path, content: Any) -> None:
    """Write a file that is either whole or not there, for its owner alone."""
    part = path.with_name(f"{path.name}.{os.getpid()}{PART}")
    with writing(path):
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
                json.dump(content, out, indent=2)
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def remove_leftovers(folder: Path) -> None:
    """Remove incomplete files whose process is gone."""
    for path in folder.glob(f"*{PART}"):
        writer = path.name.split(".")[-2]
        if not (writer.isdigit() and Path("/proc", writer).exists()):
            path.unlink(missing_ok=True)


class Records:
    """Streams joined rows to DIR/jobs.parquet and DIR/decisions.parquet.

    The tables get their names when the run is complete; a run that fails leaves nothing behind.
    """

    def __init__(self, folder: Path, world: World) -> None:
        self._folder = folder
        self._made = [path for path in (folder, *folder.parents) if not path.exists()]
        fogs = pa.array(world.nodes)
        self._names = {
            "cluster": pa.array(world.clusters),
            "category": pa.array(world.categories),
            "node": fogs,
        }
        word = pa.dictionary(pa.int32(), pa.string())
        types = {"job": pa.int64(), "cluster": word, "category": word, "node": word}
        self._jobs = pa.schema([(name, types.get(name, pa.float64())) for name in COLUMNS])
        order = ",".join((*world.nodes, world.cloud))
        self._decisions = pa.schema(
            [
                ("job", pa.int64()),
                ("time", pa.float64()),
                ("node", word),
                ("queued", pa.list_(pa.int32())),
                ("total_queued", pa.int64()),
            ],
            metadata={"queued": order},
        )
        self._writers: list[tuple[Path, pq.ParquetWriter]] = []

    def __enter__(self) -> Self:
        try:
            with writing(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
                remove_leftovers(self._folder)
                for name, schema in (("jobs", self._jobs), ("decisions", self._decisions)):
                    part = self._folder / f"{name}.parquet.{os.getpid()}{PART}"
                    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
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
        done = False
        try:
            with writing(self._folder):
                for _, writer in self._writers:
                    writer.close()
                if error is None:
                    for part, _ in self._writers:
                        part.replace(self._folder / ".".join(part.name.split(".")[:2]))
                    done = True
        finally:
            if not done:
                self._clean_up()

    def _clean_up(self) -> None:
        """Leave nothing behind but what was there before."""
        for part in self._folder.glob(f"*.{os.getpid()}{PART}"):
            part.unlink()
        for folder in self._made:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    def take(self, rows: Floats, counts: Counts) -> None:
        """Write a block of rows."""
        columns: dict[str, pa.Array] = {}
        for number, name in enumerate(COLUMNS):
            column = rows[:, number]
            if name in self._names:
                columns[name] = self._named(name, column)
            elif name == "job":
                columns[name] = pa.array(column.astype(np.int64))
            else:
                columns[name] = pa.array(column, mask=np.isnan(column))
        queued, total = _observed(counts, len(rows))
        decided = [columns["job"], columns["emitted"], columns["node"], queued, total]
        tables = (
            pa.Table.from_arrays(list(columns.values()), schema=self._jobs),
            pa.Table.from_arrays(decided, schema=self._decisions),
        )
        with writing(self._folder):
            for (_, writer), table in zip(self._writers, tables, strict=True):
                writer.write_table(table)

    def _named(self, name: str, column: Floats) -> pa.Array:
        indices = pa.array(column.astype(np.int32))
        return pa.DictionaryArray.from_arrays(indices, self._names[name])


def _observed(counts: Counts, size: int) -> tuple[pa.Array, pa.Array]:
    """Per-node counts and their sum, as the policy was given them; null where it was given none."""
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
