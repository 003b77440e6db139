"""Results averaged over seeds or trainings: what tables and figures show of a policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from fogveil.testbed.records.output import reporting_write_errors
from fogveil.testbed.records.summary import DELAYS, LOOPS
from fogveil.testbed.report.statistics import Estimate, estimate, paired_ratio

MEASURES = (*DELAYS, *LOOPS, "unserved")
Result = dict[str, Any]
"""The content of a run.json."""


class PolicyAverage(NamedTuple):
    """A policy at one rate and one horizon, averaged."""

    policy: str
    level: str
    rate: float | None
    """None is the scenario's own."""
    horizon: float
    measures: dict[str, Estimate]
    ratio: Estimate | None
    """Of the Fog loop to the reference policy's, paired by seed."""


def average_runs(
    label: str,
    rate: float | None,
    horizon: float,
    runs: Sequence[Result],
    reference: Sequence[Result] | None,
) -> PolicyAverage:
    """Average the runs of one policy, and take their ratio to the reference's, run by run."""
    ratio = paired_ratio(_fog_loops(runs), _fog_loops(reference)) if reference else None
    measures = {}
    for name in MEASURES:
        values = measured(runs, name)
        if values:
            measures[name] = estimate(values)
    return PolicyAverage(label, runs[0]["level"], rate, horizon, measures, ratio)


def measured(runs: Sequence[Result], measure: str) -> list[float]:
    """Return a measure of the runs that have it: a mean over no job is None."""
    values = (run["summary"][measure] for run in runs)
    return [float(value) for value in values if value is not None]


def _fog_loops(runs: Sequence[Result]) -> list[float]:
    return [run["summary"]["fog_loop"] for run in runs]


def write_tables(averages: Sequence[PolicyAverage], folder: Path) -> list[Path]:
    """Write compare.csv and compare.parquet; return their paths."""
    rows = []
    for average in averages:
        row: dict[str, Any] = {
            "policy": average.policy,
            "level": average.level,
            "rate": average.rate,
            "horizon": average.horizon,
        }
        estimates = {**average.measures, "fog_loop_ratio": average.ratio}
        for name in (*MEASURES, "fog_loop_ratio"):
            value = estimates.get(name)
            row[name] = value.mean if value else None
            row[f"{name}_ci95"] = value.half_width if value else None
        rows.append(row)
    table = pa.Table.from_pylist(rows)
    paths = [folder / "compare.csv", folder / "compare.parquet"]
    with reporting_write_errors(folder):
        pyarrow.csv.write_csv(table, paths[0])
        pyarrow.parquet.write_table(table, paths[1])
    return paths
