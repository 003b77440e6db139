"""Carrying out a sweep: into a folder of its own, resumable by cell."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from fogveil.testbed.experiments.sweep.plan import SweepPlan
from fogveil.testbed.experiments.sweep.results import tidy_table
from fogveil.testbed.records.output import claim_folder, reporting_write_errors, write_json
from fogveil.testbed.records.provenance import provenance
from fogveil.testbed.records.sweep_files import SWEPT
from fogveil.testbed.scenario import load_scenario

TABLE = "results"


def claim(plan: SweepPlan, *, force: bool = False) -> None:
    """Take the sweep's folder, or refuse one that holds something else."""
    digest = hashlib.sha256(plan.sweep.model_dump_json().encode()).hexdigest()[:16]
    claim_folder(plan.out, {"kind": "sweep", "digest": digest}, force=force)


def write_results(plan: SweepPlan) -> pa.Table:
    """Write the table of a finished sweep, and what was swept."""
    table = tidy_table(plan)
    scenarios = [load_scenario(file, plan.sweep.set) for file in plan.sweep.scenarios]
    described = {
        "sweep": plan.sweep.model_dump(mode="json", exclude_defaults=True),
        "scenarios": [scenario.model_dump(mode="json") for scenario in scenarios],
        "provenance": provenance(),
    }
    with reporting_write_errors(plan.out):
        pyarrow.parquet.write_table(table, plan.out / f"{TABLE}.parquet")
        pyarrow.csv.write_csv(table, plan.out / f"{TABLE}.csv")
    write_json(plan.out / SWEPT, described)
    return table


def default_folder(name: str) -> Path:
    """Return the folder of a sweep that was not given one."""
    return Path("runs/sweep") / name
