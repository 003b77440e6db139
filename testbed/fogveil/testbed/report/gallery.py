"""The paper's figures, drawn from folders of comparisons and trainings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from fogveil.core.errors import InputError
from fogveil.testbed.report.averages import PolicyAverage, Result
from fogveil.testbed.report.figures import (
    busiest,
    plot_delays,
    plot_distribution,
    plot_loops,
    plot_training,
)
from fogveil.testbed.report.result_files import (
    average_results,
    check_comparable,
    method_name,
    rate_of,
    read_results,
    read_trainings,
)
from fogveil.testbed.report.run_figure import plot_over_time
from fogveil.testbed.scenario.event_text import recorded_events


class Drawn(NamedTuple):
    """The figures that were drawn."""

    paths: list[Path]
    """Without suffix."""
    left_out: list[str]
    """What a figure does not show of the results, and why; a sentence each."""


def draw_all(folders: Sequence[Path], out: Path) -> Drawn:
    """Draw every figure that the results suffice for."""
    results = read_results(folders)
    check_comparable(results)
    averages = average_results(results)
    drawn, left_out = [], []
    if averages:
        plot_loops(averages, out / "loops")
        plot_delays(averages, out / "delays")
        sample = results[0]
        placed = _placements(results, averages)
        plot_distribution(placed, sample["nodes"], sample["categories"], out / "distribution")
        drawn += ["loops", "delays", "distribution"]
        left_out += _left_out(averages)
    drawn += _draw_over_time(folders, out)
    trainings = read_trainings(folders)
    for agent in dict.fromkeys(training.agent for training in trainings):
        logs: dict[str, Any] = {}
        for training in trainings:
            if training.agent == agent and training.episodes:
                logs.setdefault(training.label, []).append(training.episodes)
        if logs:
            plot_training(logs, out / f"training-{agent}")
            drawn.append(f"training-{agent}")
    empty = sum(not training.episodes for training in trainings)
    if empty:
        left_out.append(f"{empty} trainings have no finished episode")
    if not drawn:
        raise InputError(
            f"no results below {', '.join(map(str, folders))}: give a folder that compare, "
            "evaluate, run or train wrote to"
        )
    return Drawn([out / name for name in drawn], left_out)


def draw_run(folder: Path, path: Path | None = None) -> Path:
    """Draw the delays of one run, by default beside its records; return the path without suffix."""
    path = path or folder / "over-time"
    _draw_jobs(folder / "jobs.parquet", _read_run(folder), path)
    return path


def _read_run(folder: Path) -> dict[str, Any]:
    run: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return run


def _draw_jobs(table: Path, run: dict[str, Any], path: Path) -> None:
    jobs = pq.read_table(table, columns=["emitted", "returned"])
    plot_over_time(jobs, run["scenario"]["horizon"], path, recorded_events(run))


def _draw_over_time(folders: Sequence[Path], out: Path) -> list[str]:
    """Draw the delays of each run that has kept its jobs; return the figures' names."""
    names: list[str] = []
    for table in sorted({path for folder in folders for path in folder.rglob("jobs.parquet")}):
        run = _read_run(table.parent)
        name = f"over-time-{run['label']}".replace("/", "-")
        name += f"-{names.count(name) + 1}" if name in names else ""
        _draw_jobs(table, run, out / name)
        names.append(name)
    return names


def _placements(results: Sequence[Result], averages: Sequence[PolicyAverage]) -> dict[str, Any]:
    """Count where workloads go at the highest rate of the longest horizon, over all seeds."""
    at = busiest(averages)
    placed: dict[str, Any] = {}
    for result in results:
        if (result["scenario"]["horizon"], rate_of(result)) == at:
            method = method_name(result)
            placed[method] = placed.get(method, 0) + np.array(result["summary"]["placed"])
    return placed


def _left_out(averages: Sequence[PolicyAverage]) -> list[str]:
    """Say what the figures of a single rate and horizon do not show."""
    horizon, rate = busiest(averages)
    others = {(a.horizon, a.rate) for a in averages} - {(horizon, rate)}
    if not others:
        return []
    load = f"horizon {horizon:,.0f}" + ("" if rate is None else f" and β = {rate:g}")
    sentence = f"delays and distribution show {load} alone, the busiest of {len(others) + 1}"
    here = {a.policy for a in averages if (a.horizon, a.rate) == (horizon, rate)}
    absent = [name for name in dict.fromkeys(a.policy for a in averages) if name not in here]
    return [sentence + (f", without {', '.join(absent)}: no run there" if absent else "")]
