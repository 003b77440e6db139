"""Results and training logs read from folders, checked and averaged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fogveil.agent.learning.checkpoint import read_header
from fogveil.core.errors import InputError
from fogveil.testbed.records.training_log import DESCRIPTION, LOG
from fogveil.testbed.report.averages import (
    MEASURES,
    PolicyAverage,
    Result,
    average_runs,
    measured,
)
from fogveil.testbed.report.methods import method_of
from fogveil.testbed.report.statistics import estimate
from fogveil.testbed.scenario import load_scenario

PARTICIPANTS = "participants"
"""A testbed's folder of what participants wrote, in which no result of ours is."""
CHECKPOINTS = ("agent.npz", "checkpoint.npz")


Episodes = list[dict[str, Any]]


class TrainingLog(NamedTuple):
    """The episodes of one training."""

    agent: str
    """By its checkpoint; by its folder's name where there is none yet."""
    label: str
    """The folder's name without the seed."""
    episodes: Episodes


def read_results(folders: Iterable[Path]) -> list[Result]:
    """Read every result of a run below the folders, each once: a file is known by its content.

    A run.json that is no result is refused, and a damaged file in the folder of a comparison.
    """
    paths: dict[Path, None] = {}
    for folder in folders:
        if not folder.is_dir():
            raise InputError(
                f"{folder}: is not a folder; give one that compare, evaluate, run or train wrote to"
            )
        files = [path for path in folder.rglob("*.json") if PARTICIPANTS not in path.parts]
        paths |= dict.fromkeys(path.resolve() for path in sorted(files) if path.is_file())
    results = {}
    for path in paths:
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            result["label"], result["summary"]["workloads"], result["scenario"]["sources"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            damaged = path.parent.name == "runs" and isinstance(error, OSError | ValueError)
            if damaged or path.name == "run.json":
                raise InputError(f"{path}: is not a result of fogveil; remove it") from error
            continue
        # The same run may have been kept by several commands.
        results[result.get("run_hash"), _run_of(result)] = result
    return list(results.values())


def _run_of(result: Result) -> tuple[str, str, float | None, float, int]:
    scenario = result["scenario"]
    rate = rate_of(result)
    return (result["label"], scenario["name"], rate, scenario["horizon"], result["seed"])


def rate_of(result: Result) -> float | None:
    """Return β of a result; None for a trace."""
    rate: float | None = result["scenario"]["sources"].get("scale")
    return rate


def check_comparable(results: Iterable[Result]) -> None:
    """Refuse results of different scenarios, and different results of the same run."""
    scenarios: dict[str, dict[str, Any]] = {}
    for result in results:
        scenario = dict(_flat(_common(result["scenario"])))
        scenarios.setdefault(json.dumps(scenario, sort_keys=True), scenario)
    if len(scenarios) > 1:
        first, second = list(scenarios.values())[:2]
        keys = sorted(k for k in first.keys() | second.keys() if first.get(k) != second.get(k))
        names = " and ".join(dict.fromkeys(each["name"] for each in scenarios.values()))
        raise InputError(
            f"results of {len(scenarios)} different scenarios cannot be averaged: {names} differ "
            f"in {', '.join(keys[:5])}{' and more' if len(keys) > 5 else ''}; "  # noqa: PLR2004
            "name their folders one at a time"
        )
    runs = set()
    for result in results:
        run = _run_of(result)
        if run in runs:
            raise InputError(
                f"two different results of {run[0]} with seed {run[-1]}: the policy or the code "
                "has changed in between; remove the older one or choose one folder"
            )
        runs.add(run)


def _common(scenario: dict[str, Any]) -> dict[str, Any]:
    """Return what all results must share; keys that are newer than a result have defaults."""
    with suppress(InputError):  # one of another version is compared as it is
        scenario = load_scenario(scenario).model_dump(mode="json")
    common = {k: v for k, v in scenario.items() if k not in ("seed", "horizon", "disclosure")}
    common["sources"] = {k: v for k, v in scenario["sources"].items() if k != "scale"}
    return common


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested tables by their dotted keys."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _flat(each, f"{key}.{name}" if key else name)
    else:
        yield key, value


def average_results(results: Iterable[Result]) -> list[PolicyAverage]:
    """Average results by method, rate and horizon.

    Trainings of one method are averaged first over evaluation seeds and then over trainings, so
    that the interval of a learned method is over its trainings.
    """
    groups: dict[tuple[str, str, float | None, float], dict[str, list[Result]]] = {}
    for result in results:
        key = (method_name(result), result["level"], rate_of(result), result["scenario"]["horizon"])
        groups.setdefault(key, {}).setdefault(result["label"], []).append(result)
    averages = [_average(*key, list(runs.values())) for key, runs in groups.items()]
    order = {name: place for place, name in enumerate(dict.fromkeys(a.policy for a in averages))}
    return sorted(averages, key=lambda a: (a.horizon, -(a.rate or 0), order[a.policy]))


def _average(
    method: str,
    level: str,
    rate: float | None,
    horizon: float,
    trainings: Sequence[Sequence[Result]],
) -> PolicyAverage:
    if len(trainings) == 1:
        return average_runs(method, rate, horizon, trainings[0], None)
    measures = {}
    for name in MEASURES:
        known = [values for values in (measured(runs, name) for runs in trainings) if values]
        if known:
            measures[name] = estimate([float(np.mean(values)) for values in known])
    runs = sum(map(len, trainings))
    return PolicyAverage(method, level, rate, horizon, measures, None, "seeds", runs)


def method_name(result: Result) -> str:
    """Return the method of a result: a training's agent, or else the policy itself."""
    policy = result["policy"]
    trained = policy.endswith(".npz")
    return _agent_of((Path(policy),), result["label"]) if trained else str(result["label"])


@lru_cache
def _agent_of(checkpoints: tuple[Path, ...], label: str) -> str:
    """Return the agent that a checkpoint names; without a readable one, what the label says."""
    for path in checkpoints:
        try:
            return str(read_header(path)["agent"])
        except (InputError, KeyError):
            continue
    return method_of(label)


def read_trainings(folders: Iterable[Path]) -> list[TrainingLog]:
    """Read the logs of all trainings below the folders, each once."""
    paths = dict.fromkeys(
        path.resolve() for folder in folders for path in sorted(folder.rglob(LOG))
    )
    trainings = []
    for path in paths:
        folder = path.parent
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            episodes = [json.loads(text) for text in lines]
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: is not the log of a training; remove it") from error
        label = folder.name.removesuffix(f"-{_seed_of(folder)}")
        agent = _agent_of(tuple(folder / name for name in CHECKPOINTS), folder.name)
        trainings.append(TrainingLog(agent, label, episodes))
    return trainings


def _seed_of(folder: Path) -> Any:
    try:
        return json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))["seed"]
    except (OSError, ValueError, KeyError, TypeError):  # of an earlier version
        return folder.name.rpartition("-")[2] if folder.name[-1:].isdigit() else ""
