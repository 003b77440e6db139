"""Results averaged over seeds or trainings: what tables and figures show of a policy."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from fogveil.testbed.records.block_bootstrap import ratio_half_width
from fogveil.testbed.records.summary import DELAYS, LOOPS, TAILS
from fogveil.testbed.report.statistics import Estimate, estimate, paired_ratio

MEASURES = (
    *(*DELAYS, *LOOPS, "unserved"),
    *(*TAILS, "deadline_met", "fairness", "utilisation_mean"),
)
Result = dict[str, Any]
"""The content of a run.json."""
Interval = Literal["seeds", "blocks", "none"]
"""What an interval of 95 % is over: seeds, blocks of a trace (a bootstrap), or there is none."""


class PolicyAverage(NamedTuple):
    """A policy at one rate and one horizon, averaged."""

    policy: str
    level: str
    rate: float | None
    """None is the scenario's own."""
    horizon: float
    measures: dict[str, Estimate]
    ratio: Estimate | None
    """Of the Fog loop to the reference policy's, paired by seed or by block."""
    interval: Interval = "seeds"
    seeds: int = 0


def average_runs(
    label: str,
    rate: float | None,
    horizon: float,
    runs: Sequence[Result],
    reference: Sequence[Result] | None,
) -> PolicyAverage:
    """Average the runs of one policy, and take their ratio to the reference's, run by run."""
    interval = interval_of(runs)
    measures = {}
    for name in MEASURES:
        values = measured(runs, name)
        if values and interval == "seeds":
            measures[name] = estimate(values)
        elif values:
            width = _over_blocks(runs, name) if interval == "blocks" else None
            measures[name] = Estimate(fmean(values), width)
    ratio = _ratio(runs, reference) if reference else None
    return PolicyAverage(
        label, runs[0]["level"], rate, horizon, measures, ratio, interval, len(runs)
    )


def interval_of(runs: Sequence[Result]) -> Interval:
    """Say what the interval of an average over runs can be over.

    All runs of a trace have the same workloads, and so have runs whose Fog loops do not differ at
    all: such runs are one sample, however many seeds there are.
    """
    if all("blocks" in run["summary"] for run in runs):
        return "blocks"
    traced = any(_sources(run).get("kind") == "trace" for run in runs)
    return "none" if traced or len(set(measured(runs, "fog_loop"))) < 2 else "seeds"  # noqa: PLR2004


def _sources(run: Result) -> dict[str, Any]:
    sources: dict[str, Any] = run.get("scenario", {}).get("sources", {})
    return sources


def measured(runs: Sequence[Result], measure: str) -> list[float]:
    """Return a measure of the runs that have it.

    A mean over no job is None, and results of earlier versions have fewer measures.
    """
    values = (run["summary"].get(measure) for run in runs)
    return [float(value) for value in values if value is not None]


def _over_blocks(runs: Sequence[Result], measure: str) -> float | None:
    """Return the half-width over blocks of the trace, the mean over seeds."""
    widths = [run["summary"]["blocks"]["ci95"].get(measure) for run in runs]
    known = [width for width in widths if width is not None]
    return fmean(known) if known else None


def _ratio(runs: Sequence[Result], reference: Sequence[Result]) -> Estimate:
    values, references = (measured(chosen, "fog_loop") for chosen in (runs, reference))
    intervals = {interval_of(runs), interval_of(reference)}
    if "seeds" in intervals:
        return paired_ratio(values, references)
    width = None
    if intervals == {"blocks"}:
        blocks = [[run["summary"]["blocks"] for run in chosen] for chosen in (runs, reference)]
        if blocks[0][0]["workloads"] == blocks[1][0]["workloads"]:  # the same stretch of the trace
            sums = [np.mean([block["fog_loop"] for block in chosen], axis=0) for chosen in blocks]
            width = ratio_half_width(*sums)
    return Estimate(fmean(values) / fmean(references), width)


def average_table(averages: Sequence[PolicyAverage]) -> pa.Table:
    """Return a row per average, and of every measure the mean and the interval's half-width."""
    names = (*MEASURES, "fog_loop_ratio")
    rows = []
    for average in averages:
        row: dict[str, Any] = {
            "policy": average.policy,
            "level": average.level,
            "rate": average.rate,
            "horizon": average.horizon,
            "seeds": average.seeds,
            "interval": average.interval,
        }
        estimates = {**average.measures, "fog_loop_ratio": average.ratio}
        for name in names:
            value = estimates.get(name)
            row[name] = value.mean if value else None
            row[f"{name}_ci95"] = value.half_width if value else None
        rows.append(row)
    types = {"policy": pa.string(), "level": pa.string(), "interval": pa.string()}
    types |= {"rate": pa.float64(), "horizon": pa.float64(), "seeds": pa.int64()}
    columns = ["policy", "level", "rate", "horizon", "seeds", "interval"]
    columns += [f"{name}{end}" for name in names for end in ("", "_ci95")]
    schema = pa.schema([(name, types.get(name, pa.float64())) for name in columns])
    return pa.Table.from_pylist(rows, schema)


def read_averages(table: pa.Table) -> list[PolicyAverage]:
    """Return the averages of a table that `average_table` made."""
    averages = []
    for row in table.to_pylist():
        estimates = {
            name: Estimate(row[name], row[f"{name}_ci95"])
            for name in (*MEASURES, "fog_loop_ratio")
            if row.get(name) is not None
        }
        ratio = estimates.pop("fog_loop_ratio", None)
        average = PolicyAverage(
            row["policy"], row["level"], row["rate"], row["horizon"], estimates, ratio
        )
        averages.append(average._replace(interval=row["interval"], seeds=row["seeds"]))
    return averages
