"""The results of a sweep as one tidy table: a row per run, every key a column."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from fogveil.testbed.experiments.comparison import results_by_policy
from fogveil.testbed.experiments.sweep.plan import Cell, SweepPlan
from fogveil.testbed.report.averages import Result

FIRST = ("scenario", "policy", "level", "seed", "seeds", "training_seed")
VARIED = "varied"
"""In the table's metadata: the names of the columns that vary."""
HIDDEN = ("electre.", "events")
"""Keys of the scenario that are no columns unless they vary: policies' settings."""


def tidy_table(plan: SweepPlan) -> pa.Table:
    """Return the results of a finished sweep, a row per run.

    `seeds` is how many runs there are of this policy at this point, so how many samples an average
    over the rows has. Keys that vary come next, under the names of the sweep's file, then the
    measures, then all other keys of the scenario.
    """
    cells = [(cell, list(_results(cell))) for cell in plan.cells]
    sizes: Counter[str] = Counter()
    for cell, results in cells:
        sizes[_key(cell)] += len(results)
    rows = [
        _row(plan, cell, result, sizes[_key(cell)]) for cell, results in cells for result in results
    ]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = pa.table({name: _column([row.get(name) for row in rows]) for name in columns})
    varied = [name for key in plan.sweep.varied for name in (key, f"{key} (table)")]
    varied += ["scenario"] if len(plan.sweep.scenarios) > 1 else []
    kept = {VARIED: json.dumps([name for name in varied if name in columns])}
    return table.replace_schema_metadata(kept)


def results_digest(table: pa.Table) -> str:
    """Return a digest of what every run gave: equal wherever and however often it was computed."""
    varied = json.loads(table.schema.metadata[VARIED.encode()])
    columns = [*dict.fromkeys([*FIRST, *varied, "run_hash"])]
    rows = json.dumps(table.select(columns).to_pylist())
    return hashlib.sha256(rows.encode()).hexdigest()[:16]


def _results(cell: Cell) -> Iterator[Result]:
    for results in results_by_policy(cell.comparison).values():
        yield from results


def _key(cell: Cell) -> str:
    """Return what is equal for the runs that an average is taken over."""
    return json.dumps([str(cell.comparison.file), cell.point, cell.policy], default=str)


def _row(plan: SweepPlan, cell: Cell, result: Result, seeds: int) -> dict[str, Any]:
    summary = result["summary"]
    row: dict[str, Any] = {
        "scenario": result["name"],
        "policy": cell.policy,
        "level": result["level"],
        "seed": str(result["seed"]) if result["seed"] >= 2**63 else result["seed"],
        "seeds": seeds,
        "training_seed": cell.training.seed if cell.training else None,
    }
    for key in plan.sweep.varied:
        if key in cell.point:  # else the scenario's own value follows below
            value = cell.point[key]
            whole = isinstance(value, dict)  # such as service = {...}: the name of a measure, too
            row[f"{key} (table)" if whole else key] = _plain(value)
    row |= {key: value for key, value in summary.items() if not isinstance(value, dict | list)}
    row |= {f"utilisation.{node}": share for node, share in summary["utilisation"].items()}
    keys = {key: value for key, value in flatten(result["scenario"]).items() if key not in row}
    row |= {key: value for key, value in keys.items() if not key.startswith(HIDDEN)}
    for short, value in (
        ("fog.count", len(result["nodes"])),
        ("clusters.count", len(result["clusters"])),
        ("rate", result["scenario"]["sources"].get("scale")),
    ):
        row.setdefault(short, value)
    row |= {"run_hash": result["run_hash"], "cpu_seconds": result["cpu_seconds"]}
    row |= {f"version.{name}": text for name, text in result["versions"].items()}
    return row | {"commit": result.get("provenance", {}).get("commit")}


def flatten(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one, with dotted keys; the items of lists are numbered from 0.

    >>> flatten({"fog": {"ipt": [5, 7]}, "name": "tiny"})
    {'fog.ipt.0': 5, 'fog.ipt.1': 7, 'name': 'tiny'}
    """
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, list):
            value = dict(enumerate(value))  # noqa: PLW2901 (a list is a table by numbers)
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list) else value


def _column(values: list[Any]) -> pa.Array:
    """Return a column; one of mixed types becomes text."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        numbers = all(value is None or isinstance(value, int | float) for value in values)
        if numbers:
            return pa.array([None if value is None else float(value) for value in values])
        return pa.array([None if value is None else str(value) for value in values])
