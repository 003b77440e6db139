"""A figure of any result table: a measure over a key, a line per group, with intervals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from fogveil.core.errors import InputError
from fogveil.testbed.report.figures import (
    INTERVAL,
    figure,
    points_with_intervals,
    scale_axis,
)
from fogveil.testbed.report.methods import line, style
from fogveil.testbed.report.statistics import Estimate, estimate

MEASURE_NAMES = {"mean": "fog_loop", **{p: f"fog_loop_{p}" for p in ("p50", "p90", "p95", "p99")}}
"""Short names of the measures that are drawn most."""
LOOKS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
EXTRA = ("training_seed", "sources.kind")
SUFFIXES = (".png", ".svg", ".pdf")
Group = tuple[str, ...]
Row = dict[str, Any]


def read_table(path: Path) -> tuple[pa.Table, Path]:
    """Return the table of a sweep's or comparison's folder, or of a file, and its folder."""
    names = ("results.parquet", "compare.parquet")
    found = [path / name for name in names if (path / name).is_file()]
    file = found[0] if found else path
    try:
        if file.suffix == ".csv":
            table = pyarrow.csv.read_csv(file)
        else:
            table = pyarrow.parquet.read_table(file)
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            f"{path}: expected the folder of a sweep or comparison, or its Parquet or CSV file"
        ) from error
    return table, file.parent


def varied_columns(table: pa.Table) -> list[str]:
    """Return the columns that vary in a sweep; none where the table does not say."""
    metadata = table.schema.metadata or {}
    columns: list[str] = json.loads(metadata.get(b"varied", b"[]"))
    return columns


def series(
    table: pa.Table, x: str, y: str, by: Sequence[str], where: Mapping[str, str] | None = None
) -> dict[Group, dict[Any, Estimate]]:
    """Return the mean of a measure with its interval, by group and by value of the key.

    Runs of one training are averaged first, so that the interval of a trained agent with several
    trainings is over its trainings. Runs that replay a trace are one sample, and have no interval.
    Rows without the measure are left out. A key that varies must be the axis, a group or chosen:
    an average over it would hide it.
    """
    y, where = MEASURE_NAMES.get(y, y), where or {}
    for name in (x, y, *by, *where):
        if name not in table.column_names:
            raise InputError(f"{name}: no such column; the table has {_listed(table)}")
    names = [n for n in EXTRA if n in table.column_names]
    names += [f"{y}_ci95"] if f"{y}_ci95" in table.column_names else []
    names = list(dict.fromkeys((x, y, *by, *where, *varied_columns(table), *names)))
    rows = [
        row
        for row in table.select(names).to_pylist()
        if all(_equal(row[key], value) for key, value in where.items())
        and row[x] is not None
        and row[y] is not None
        and row[y] == row[y]
    ]
    if not rows:
        raise InputError(f"no row has {x}, {y} and what --where asks for: nothing to draw")
    for name in varied_columns(table):
        if name not in (x, *by) and len({_text(row[name]) for row in rows}) > 1:
            raise InputError(f"{name} varies too: add it to --by, or choose with --where {name}=…")
    groups: dict[Group, dict[Any, list[Row]]] = {}
    for row in rows:
        if isinstance(row[y], bool) or not isinstance(row[y], int | float):
            raise InputError(f"{y}: expected a column of numbers to draw")
        key = json.dumps(row[x]) if isinstance(row[x], dict | list) else row[x]
        group = tuple(_text(row[name]) for name in by)
        groups.setdefault(group, {}).setdefault(key, []).append(row)
    return {
        group: {key: _estimate(chosen, y) for key, chosen in keys.items()}
        for group, keys in groups.items()
    }


def _estimate(rows: list[Row], y: str) -> Estimate:
    trainings: dict[Any, list[float]] = {}
    for row in rows:
        trainings.setdefault(row.get("training_seed"), []).append(row[y])
    values = [float(value) for each in trainings.values() for value in each]
    if len(rows) == 1 and f"{y}_ci95" in rows[0]:  # an average already, of a comparison
        return Estimate(values[0], rows[0][f"{y}_ci95"])
    if len(trainings) > 1:
        return estimate([sum(each) / len(each) for each in trainings.values()])
    traced = any(row.get("sources.kind") == "trace" for row in rows)
    if traced or len(set(values)) == 1:
        return Estimate(sum(values) / len(values), None)
    return estimate(values)


def _equal(value: Any, wanted: str) -> bool:
    """Compare as numbers where both are."""
    try:
        return float(value) == float(wanted)
    except (TypeError, ValueError):
        return _text(value) == wanted


def plot_table(
    table: pa.Table,
    x: str,
    y: str,
    by: Sequence[str],
    path: Path,
    where: Mapping[str, str] | None = None,
) -> None:
    """Draw a measure over a key with 95 % intervals, a line per group, to path.png and others."""
    path = path.with_suffix("") if path.suffix in SUFFIXES else path
    groups = series(table, x, y, by, where)
    keys = list(dict.fromkeys(key for values in groups.values() for key in values))
    numeric = all(isinstance(key, int | float) and not isinstance(key, bool) for key in keys)
    order = sorted(keys) if numeric else keys
    at = {key: float(key) if numeric else float(place) for place, key in enumerate(order)}
    with figure(path, 6.8, 4.2) as drawing:
        axis = drawing.subplots()
        for number, (group, values) in enumerate(groups.items()):
            chosen = sorted(values, key=lambda key: at[key])
            means, intervals = points_with_intervals([values[key] for key in chosen])
            axis.errorbar(
                [at[key] for key in chosen],
                means,
                yerr=intervals,
                label=", ".join(group),
                linewidth=1.2,
                **INTERVAL,
                **_look(by, group, number),
            )
        if not numeric or len(order) <= 8:  # noqa: PLR2004 (as many labels as fit)
            axis.set_xticks([at[key] for key in order], [_text(key) for key in order])
        shown = [value for values in groups.values() for value in values.values()]
        logarithmic = scale_axis(axis, "y", shown)
        axis.set_xlabel(x)
        measure = MEASURE_NAMES.get(y, y).replace("_", " ")
        scale = ", log scale" if logarithmic else ""
        axis.set_ylabel(f"{measure} (mean over seeds, 95 % interval{scale})")
        if len(groups) > 1 or any(next(iter(groups))):
            axis.legend(title=", ".join(by), frameon=False, loc="best", fontsize=8)


def _look(by: Sequence[str], group: Group, number: int) -> dict[str, Any]:
    """Return a policy's own colour where lines are policies, else colours in turn."""
    if list(by) == ["policy"]:
        return {"linestyle": line(str(group[0])), **style(str(group[0]))}
    return {"color": LOOKS[number % len(LOOKS)], "marker": MARKERS[number % len(MARKERS)]}


def _text(value: Any) -> str:
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return str(value)


def _listed(table: pa.Table) -> str:
    varied = [name for name in table.column_names if "." not in name or name == "fog.count"]
    return ", ".join(varied)
