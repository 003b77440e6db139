"""Traces of real arrivals and demands from CSV or Parquet files, mapped onto a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fogveil.core.errors import InputError
from fogveil.sources.core import Trace

if TYPE_CHECKING:
    import pyarrow as pa

    from fogveil.testbed.scenario.models import TraceSources

Floats = npt.NDArray[np.float64]


def read_trace(
    sources: TraceSources,
    clusters: tuple[str, ...],
    work: dict[str, float],
    horizon: float,
    notes: list[str],
) -> Trace:
    """Read a trace for some clusters and applications (name → instructions).

    What the horizon cuts off is noted, and left out later.
    """
    path = Path(sources.file)
    table = _read_table(path)
    columns = sources.columns
    times = _times(table, columns.time, path) * sources.time_scale
    back = np.flatnonzero(np.diff(times) < 0)
    if back.size:
        raise InputError(
            f"{path}: column {columns.time!r} goes back in time at row {back[0] + 2}; sort the rows"
        )
    first = times[0]
    if first > horizon:
        raise InputError(
            f"{path}: column {columns.time!r} begins at {first:g} in simulated time, after the "
            f"horizon of {horizon:g}: subtract the first time from all, or raise the horizon"
        )
    if first > 0:
        notes.append(
            f"{path}: column {columns.time!r} begins at {first:g} in simulated time, and so does "
            "the run: numbers are taken as they are, only time stamps count from the first row"
        )
    cut = int((times > horizon).sum())
    if cut:
        notes.append(
            f"{path}: {cut:,} of {len(times):,} rows are after the horizon of {horizon:g} and left "
            f"out; the last is at {times[-1]:g}"
        )
    instructions = None
    if columns.demand is not None:
        instructions = _numbers(table, columns.demand, path) * sources.demand_scale
        bad = np.flatnonzero(~(instructions > 0))
        if bad.size:
            raise InputError(
                f"{path}: column {columns.demand!r}: expected a positive demand in row {bad[0] + 1}"
            )
    if columns.category is not None:
        categories = _names(table, columns.category, tuple(work), path)
    elif instructions is not None:
        categories = _nearest_category(instructions, list(work.values()))
    else:
        categories = [row % len(work) for row in range(len(times))]
    if columns.cluster is not None:
        sites = _names(table, columns.cluster, clusters, path)
    else:
        sites = [row % len(clusters) for row in range(len(times))]
    demands = None
    if instructions is not None:
        sizes = list(work.values())
        jobs = zip(instructions.tolist(), categories, strict=True)
        demands = tuple(demand / sizes[category] for demand, category in jobs)
    return Trace(tuple(times.tolist()), tuple(sites), tuple(categories), demands)


def _read_table(path: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    try:
        if path.suffix.lower() == ".parquet":
            table = pyarrow.parquet.read_table(path)
        elif path.suffix.lower() == ".csv":
            table = pyarrow.csv.read_csv(path)
        else:
            raise InputError(f"{path}: expected a trace ending in .csv or .parquet")
    except FileNotFoundError as error:
        raise InputError(
            f"{path}: the trace does not exist; name it, as in --set sources.file=/path/trace.csv"
        ) from error
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: is not a readable trace: {reason}") from error
    if table.num_rows == 0:
        raise InputError(f"{path}: the trace has no rows")
    if len(set(table.column_names)) < len(table.column_names):
        raise InputError(f"{path}: two columns have the same name; rename one")
    return table


def _column(table: pa.Table, name: str, path: Path) -> pa.ChunkedArray:
    if name not in table.column_names:
        known = ", ".join(table.column_names)
        raise InputError(f"{path}: no column is called {name!r}, only {known}; see sources.columns")
    column = table[name]
    if column.null_count:
        raise InputError(f"{path}: column {name!r} has {column.null_count} empty cells; fill them")
    return column


def _numbers(table: pa.Table, name: str, path: Path) -> Floats:
    import pyarrow as pa

    try:
        numbers: Floats = _column(table, name, path).cast(pa.float64()).to_numpy()
    except pa.ArrowException as error:
        raise InputError(f"{path}: column {name!r}: expected numbers") from error
    if not np.isfinite(numbers).all():
        raise InputError(f"{path}: column {name!r}: expected finite numbers")
    return numbers


def _times(table: pa.Table, name: str, path: Path) -> Floats:
    """Seconds since the first row for time stamps; plain numbers as they are."""
    import pyarrow as pa

    column = _column(table, name, path)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        try:
            column = column.cast(pa.timestamp("ns"))
        except pa.ArrowException as error:
            raise InputError(f"{path}: column {name!r}: expected numbers or time stamps") from error
    if pa.types.is_timestamp(column.type):
        try:
            exact = column.cast(pa.timestamp("ns", tz=column.type.tz))
        except pa.ArrowException as error:
            raise InputError(
                f"{path}: column {name!r}: a time stamp is out of range (1677 to 2262)"
            ) from error
        nanoseconds = exact.cast(pa.int64()).to_numpy()
        seconds: Floats = (nanoseconds - nanoseconds[0]) / 1e9
        return seconds
    times = _numbers(table, name, path)
    if times.min() < 0:
        raise InputError(f"{path}: column {name!r}: expected times from 0 on")
    return times


def _names(table: pa.Table, name: str, known: tuple[str, ...], path: Path) -> list[int]:
    numbers = {value: number for number, value in enumerate(known)}
    values = [str(value) for value in _column(table, name, path).to_pylist()]
    for row, value in enumerate(values, 1):
        if value not in numbers:
            raise InputError(
                f"{path}: column {name!r}, row {row}: expected one of {', '.join(known)}, "
                f"got {value!r}"
            )
    return [numbers[value] for value in values]


def _nearest_category(instructions: Floats, work: list[float]) -> list[int]:
    """The application whose instructions are nearest to the demand, in logarithms."""
    distance = np.abs(np.log(instructions)[:, None] - np.log(work)[None, :])
    nearest: list[int] = distance.argmin(axis=1).tolist()
    return nearest
