"""The paper's figures, drawn from folders of comparisons and trainings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fogveil.core.errors import InputError
from fogveil.testbed.report.averages import Result
from fogveil.testbed.report.figures import (
    plot_delays,
    plot_distribution,
    plot_loops,
    plot_training,
)
from fogveil.testbed.report.methods import LEARNED, method_of
from fogveil.testbed.report.result_files import (
    average_results,
    check_comparable,
    read_results,
    read_trainings,
)

SHOWN_DISTRIBUTIONS = ("nearest", "fastest", "electre", "parl", "veil")


def draw_all(folders: Sequence[Path], out: Path) -> list[Path]:
    """Draw every figure that the results suffice for; return their paths without suffix."""
    results = read_results(folders)
    check_comparable(results)
    averages = average_results(results)
    drawn = []
    if averages:
        plot_loops(averages, out / "loops")
        plot_delays(averages, out / "delays")
        drawn += ["loops", "delays"]
        placed = _placements(results)
        if placed:
            sample = results[0]
            plot_distribution(placed, sample["nodes"], sample["categories"], out / "distribution")
            drawn.append("distribution")
    trainings = read_trainings(folders)
    for agent in LEARNED:
        logs = {name: runs for name, runs in trainings.items() if method_of(name) == agent}
        if logs:
            plot_training(logs, out / f"training-{agent}")
            drawn.append(f"training-{agent}")
    if not drawn:
        raise InputError(
            f"no results below {', '.join(map(str, folders))}: give a folder that compare, "
            "evaluate, run or train wrote to"
        )
    return [out / name for name in drawn]


def _placements(results: Sequence[Result]) -> dict[str, Any]:
    """Count where workloads go at the highest rate and longest horizon, over all seeds."""
    horizon = max(result["scenario"]["horizon"] for result in results)
    rate = min(_rate(result) for result in results)
    placed: dict[str, Any] = {}
    for result in results:
        method = method_of(result["label"])
        here = _rate(result) == rate and result["scenario"]["horizon"] == horizon
        if here and method in SHOWN_DISTRIBUTIONS:
            placed[method] = placed.get(method, 0) + np.array(result["summary"]["placed"])
    return {name: placed[name] for name in SHOWN_DISTRIBUTIONS if name in placed}


def _rate(result: Result) -> float:
    return result["scenario"]["sources"].get("scale") or 0.0
