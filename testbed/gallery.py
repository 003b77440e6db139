"""The paper's figures from results: comparisons and trainings in, pictures out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fogveil.errors import InputError
from testbed.compare import MEASURES, Row
from testbed.figures import (
    LEARNED,
    plot_delays,
    plot_distribution,
    plot_loops,
    plot_training,
)
from testbed.statistics import estimate
from testbed.training import LOG

SHOWN_DISTRIBUTIONS = ("nearest", "fastest", "electre", "parl", "veil")
Result = dict[str, Any]


def method_of(label: str) -> str:
    """Return the method that a policy's label is of: trainings that differ in seed are one."""
    found = re.match(rf"({'|'.join(sorted(LEARNED, key=len, reverse=True))})(-|$)", label)
    return found.group(1) if found else label


def read_results(folders: Iterable[Path]) -> list[Result]:
    """Read every result of a comparison and every run.json below the folders, each once."""
    paths: dict[Path, None] = {}
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"{folder}: is not a folder of results")
        found = [*folder.rglob("runs/*.json"), *folder.rglob("run.json")]
        paths |= dict.fromkeys(path.resolve() for path in sorted(found))
    results = []
    for path in paths:
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            result["label"], result["summary"]["workloads"], result["scenario"]["sources"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: is not a result of fogveil") from error
        results.append(result)
    return results


def check_comparable(results: Iterable[Result]) -> None:
    """Refuse results of different scenarios, and two results of the same run."""
    kinds, seen = set(), set()
    for result in results:
        scenario = result["scenario"]
        common = {k: v for k, v in scenario.items() if k not in ("seed", "horizon", "disclosure")}
        common["sources"] = {k: v for k, v in scenario["sources"].items() if k != "scale"}
        kinds.add(json.dumps(common, sort_keys=True))
        rate, horizon = scenario["sources"].get("scale"), scenario["horizon"]
        run = (result["label"], rate, horizon, result["seed"])
        if run in seen:
            raise InputError(f"two different results of {run[0]} with seed {run[3]}: expected one")
        seen.add(run)
    if len(kinds) > 1:
        raise InputError(
            f"results of {len(kinds)} different scenarios cannot be averaged: name their folders "
            "one at a time"
        )


def rows_of(results: Iterable[Result]) -> list[Row]:
    """Average results by method, rate and horizon.

    Trainings of one method are averaged first over evaluation seeds and then over trainings, so
    that the interval of a learned method is over its trainings.
    """
    cells: dict[tuple[str, str, float | None, float], dict[str, list[Result]]] = {}
    for result in results:
        scenario = result["scenario"]
        key = (
            method_of(result["label"]),
            result["level"],
            scenario["sources"].get("scale"),
            scenario["horizon"],
        )
        cells.setdefault(key, {}).setdefault(result["label"], []).append(result)
    rows = []
    for key, trainings in cells.items():
        measures = {}
        for name in MEASURES:
            values = [
                [r["summary"][name] for r in runs if r["summary"][name] is not None]
                for runs in trainings.values()
            ]
            known = [found for found in values if found]
            if len(known) > 1:
                measures[name] = estimate([float(np.mean(found)) for found in known])
            elif known:
                measures[name] = estimate([float(value) for value in known[0]])
        rows.append(Row(*key, measures, None))
    order = {name: place for place, name in enumerate(dict.fromkeys(row.policy for row in rows))}
    return sorted(rows, key=lambda row: (row.horizon, -(row.rate or 0), order[row.policy]))


def read_trainings(folders: Iterable[Path]) -> dict[str, list[list[dict[str, Any]]]]:
    """Read the logs of trainings, by what they have in common but the seed."""
    found: dict[str, list[list[dict[str, Any]]]] = {}
    for folder in folders:
        for path in sorted(folder.rglob(LOG)):
            lines = path.read_text(encoding="utf-8").splitlines()
            name = re.sub(r"-\d+$", "", path.parent.name)
            found.setdefault(name, []).append([json.loads(text) for text in lines])
    return found


def draw_all(folders: list[Path], out: Path) -> list[Path]:
    """Draw every figure that the results are enough for."""
    results = read_results(folders)
    check_comparable(results)
    rows = rows_of(results)
    drawn = []
    if rows:
        plot_loops(rows, out / "loops")
        plot_delays(rows, out / "delays")
        drawn += ["loops", "delays"]
        placed = _placed(results)
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
        raise InputError(f"no results below {', '.join(map(str, folders))}")
    return [out / name for name in drawn]


def _placed(results: list[Result]) -> dict[str, Any]:
    """Where workloads go at the highest rate and longest horizon, over all seeds."""
    horizon = max(r["scenario"]["horizon"] for r in results)
    rates = [r["scenario"]["sources"].get("scale") or 0.0 for r in results]
    rate = min(rates)
    placed: dict[str, Any] = {}
    for result in results:
        scenario, method = result["scenario"], method_of(result["label"])
        here = (scenario["sources"].get("scale") or 0.0) == rate and scenario["horizon"] == horizon
        if here and method in SHOWN_DISTRIBUTIONS:
            placed[method] = placed.get(method, 0) + np.array(result["summary"]["placed"])
    return {name: placed[name] for name in SHOWN_DISTRIBUTIONS if name in placed}
