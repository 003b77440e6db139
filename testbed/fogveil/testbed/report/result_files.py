"""Results and training logs read from folders, checked and averaged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fogveil.core.errors import InputError
from fogveil.testbed.records.training_log import LOG
from fogveil.testbed.report.averages import MEASURES, PolicyAverage, Result, measured
from fogveil.testbed.report.methods import method_of
from fogveil.testbed.report.statistics import estimate

TrainingLog = list[dict[str, Any]]


def read_results(folders: Iterable[Path]) -> list[Result]:
    """Read every result of a comparison and every run.json below the folders, each once."""
    paths: dict[Path, None] = {}
    for folder in folders:
        if not folder.is_dir():
            raise InputError(
                f"{folder}: is not a folder; give one that compare, evaluate, run or train wrote to"
            )
        files = [*folder.rglob("runs/*.json"), *folder.rglob("run.json")]
        paths |= dict.fromkeys(path.resolve() for path in sorted(files))
    results = []
    for path in paths:
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            result["label"], result["summary"]["workloads"], result["scenario"]["sources"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: is not a result of fogveil; remove it") from error
        results.append(result)
    return results


def check_comparable(results: Iterable[Result]) -> None:
    """Refuse results of different scenarios, and two results of the same run."""
    scenarios, runs = set(), set()
    for result in results:
        scenario = result["scenario"]
        common = {k: v for k, v in scenario.items() if k not in ("seed", "horizon", "disclosure")}
        common["sources"] = {k: v for k, v in scenario["sources"].items() if k != "scale"}
        scenarios.add(json.dumps(common, sort_keys=True))
        rate, horizon = scenario["sources"].get("scale"), scenario["horizon"]
        run = (result["label"], rate, horizon, result["seed"])
        if run in runs:
            raise InputError(
                f"two different results of {run[0]} with seed {run[3]}: expected one; remove the "
                "older one or choose one folder"
            )
        runs.add(run)
    if len(scenarios) > 1:
        raise InputError(
            f"results of {len(scenarios)} different scenarios cannot be averaged: name their "
            "folders one at a time"
        )


def average_results(results: Iterable[Result]) -> list[PolicyAverage]:
    """Average results by method, rate and horizon.

    Trainings of one method are averaged first over evaluation seeds and then over trainings, so
    that the interval of a learned method is over its trainings.
    """
    groups: dict[tuple[str, str, float | None, float], dict[str, list[Result]]] = {}
    for result in results:
        scenario = result["scenario"]
        key = (
            method_of(result["label"]),
            result["level"],
            scenario["sources"].get("scale"),
            scenario["horizon"],
        )
        groups.setdefault(key, {}).setdefault(result["label"], []).append(result)
    averages = []
    for key, trainings in groups.items():
        measures = {}
        for name in MEASURES:
            per_training = [measured(runs, name) for runs in trainings.values()]
            known = [values for values in per_training if values]
            if len(known) > 1:
                measures[name] = estimate([float(np.mean(values)) for values in known])
            elif known:
                measures[name] = estimate(known[0])
        averages.append(PolicyAverage(*key, measures, None))
    methods = dict.fromkeys(average.policy for average in averages)
    order = {name: place for place, name in enumerate(methods)}
    return sorted(averages, key=lambda a: (a.horizon, -(a.rate or 0), order[a.policy]))


def read_trainings(folders: Iterable[Path]) -> dict[str, list[TrainingLog]]:
    """Read the logs of trainings, by their folder's name without the seed."""
    logs: dict[str, list[TrainingLog]] = {}
    for folder in folders:
        for path in sorted(folder.rglob(LOG)):
            name = re.sub(r"-\d+$", "", path.parent.name)
            try:
                lines = path.read_text(encoding="utf-8").splitlines()
                logs.setdefault(name, []).append([json.loads(text) for text in lines])
            except (OSError, ValueError) as error:
                raise InputError(f"{path}: is not the log of a training; remove it") from error
    return logs
