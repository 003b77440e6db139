"""Policies compared over rates, horizons and seeds: all cores, common random numbers, resumable.

The result of every run is a file of its own, written when the run is complete. So an interrupted
comparison loses no finished run, and the same command continues where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import fogveil.agent.policies as policies
from fogveil.agent.policy_files import read_policy_files
from fogveil.core.disclosure import Level
from fogveil.core.errors import InputError
from fogveil.core.files import write_private
from fogveil.core.python_imports import imported_modules
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.records.job_times import JobTimes, JobTimesRecord
from fogveil.testbed.records.output import (
    remove_leftovers,
    reporting_write_errors,
    write_json,
)
from fogveil.testbed.records.provenance import provenance
from fogveil.testbed.report.averages import PolicyAverage, Result, average_runs
from fogveil.testbed.scenario import Scenario, load_scenario
from fogveil.testbed.scenario.load import Table
from fogveil.testbed.source_tree import code_digest, search_path_files
from fogveil.testbed.workers.files import FileList, Located


class ComparedRun(NamedTuple):
    """One run of a comparison."""

    policy: str
    rate: float | None
    """None keeps the scenario's own sources."""
    horizon: float
    seed: int


@dataclass(frozen=True)
class Comparison:
    """What is compared, and where the results go."""

    file: Path | str | Table
    """The scenario: a file, the name of a shipped one, or the content of a file."""
    overrides: dict[str, Any]
    policies: tuple[str, ...]
    rates: tuple[float | None, ...]
    horizons: tuple[float, ...]
    seeds: int
    out: Path

    def runs(self) -> list[ComparedRun]:
        """Return all runs, long ones first so that the cores finish together."""
        first = load_scenario(self.file, self.overrides).seed
        return [
            ComparedRun(policy, rate, horizon, first + number)
            for horizon in sorted(self.horizons, reverse=True)
            for number in range(self.seeds)
            for rate in self.rates
            for policy in self.policies
        ]

    def scenario_of(self, run: ComparedRun) -> Scenario:
        """Return the scenario of one run.

        The providers disclose what each policy needs, unless the overrides fix a level.
        """
        overrides = {**self.overrides, "horizon": run.horizon, "seed": run.seed}
        if run.rate is not None:
            overrides["sources.scale"] = run.rate
        scenario = load_scenario(self.file, overrides)
        needs = policies.find(run.policy).needs
        if "disclosure" in self.overrides or Level.parse(scenario.disclosure) >= needs:
            return scenario
        return scenario.model_copy(update={"disclosure": needs.word})

    def path_of(self, run: ComparedRun) -> Path:
        """Return the file of one result; its name changes with whatever could change the result."""
        scenario = self.scenario_of(run)
        files = [policies.file_of(run.policy)]
        files += [getattr(table, "file", None) for table in (scenario.topology, scenario.sources)]
        content = [scenario.model_dump_json(), run.policy, _code_digest(run.policy)]
        content += [_file_digest(Path(file)) for file in files if file]
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]
        rate = "own" if run.rate is None else f"{run.rate:g}"
        label = policies.label_of(run.policy)
        return self.out / "runs" / f"{label}_{rate}_{run.horizon:g}_{run.seed}_{digest}.json"

    def times_path_of(self, run: ComparedRun) -> Path:
        """Return the file of a run's workloads, which is kept where a scenario has events."""
        return self.path_of(run).with_suffix(".npz")

    def times_of(self, run: ComparedRun) -> JobTimes:
        """Return the workloads of a finished run on a scenario with events."""
        return JobTimes.load(self.times_path_of(run))

    def digest(self, reference: str) -> str:
        """Return a digest of what is compared: it does not change with the code or the folder."""
        scenario = load_scenario(self.file, self.overrides)
        kept = scenario.model_dump_json(exclude_unset=True)
        content = [kept, self.policies, self.rates, self.horizons, self.seeds, reference]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def label_of(self, policy: str) -> str:
        """Return a policy's short name, or its full one where the short one is not unique."""
        labels = [policies.label_of(other) for other in self.policies]
        short = policies.label_of(policy)
        return short if labels.count(short) == 1 else policy


def _code_digest(policy: str) -> str:
    """Return a digest of the code that a run of the policy executes, and of no other policy's."""
    if not policies.is_foreign(policy):
        modules = {policies.find(policy).__module__}
        return code_digest(frozenset({*modules, run_embedded.__module__}))
    files = read_policy_files(policies.parse_file_spec(policy)[0])
    elsewhere = search_path_files(files.imports())
    sources = dict(files.contents[1:]) | {
        f"elsewhere/{name}": path.read_bytes() for name, path in elsewhere.items()
    }
    modules = {*files.imports(), run_embedded.__module__}
    for source in sources.values():
        with suppress(SyntaxError, ValueError, RecursionError):  # the run says what is wrong
            modules |= imported_modules(source)
    digest = hashlib.sha256(code_digest(frozenset(modules)).encode())
    for name, source in sorted(sources.items()):
        digest.update(f"{name} {hashlib.sha256(source).hexdigest()}\n".encode())
    return digest.hexdigest()


@lru_cache
def _file_digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def prepare(comparison: Comparison) -> tuple[list[ComparedRun], list[ComparedRun]]:
    """Check the comparison before anything runs; return finished runs and outstanding ones."""
    folder = comparison.out / "runs"
    with reporting_write_errors(comparison.out):
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
    return find_finished(comparison)


def find_finished(comparison: Comparison) -> tuple[list[ComparedRun], list[ComparedRun]]:
    """Return finished runs and outstanding ones, after a check; nothing is written."""
    if not comparison.policies:
        raise InputError(
            "--policies: expected at least one policy, such as jsq; `fogveil policies` lists them"
        )
    finished: list[ComparedRun] = []
    outstanding: list[ComparedRun] = []
    for run in comparison.runs():
        policies.check_level(
            run.policy,
            policies.find(run.policy),
            Level.parse(comparison.scenario_of(run).disclosure),
        )
        (finished if comparison.path_of(run).exists() else outstanding).append(run)
    return finished, outstanding


@dataclass(frozen=True)
class RunOrder:
    """A run as a worker executes it."""

    scenario: Scenario
    policy: str

    def list_files(self, files: FileList) -> None:
        """Name the files of the scenario and of the policy."""
        files.add_scenario(self.scenario)
        files.add_policy(self.policy)

    def compute(self, located: Located) -> tuple[Result, bytes | None]:
        """Return the result; where there are events, its workloads' times too."""
        times = JobTimesRecord()
        watchers = [times] if self.scenario.events else []
        scenario, policy = located.scenario(self.scenario), located.policy(self.policy)
        result = run_embedded(scenario, policy, watchers=watchers)
        return result, times.content() if watchers else None


@dataclass(frozen=True)
class RunWork:
    """A run of a comparison, from its order to its files."""

    comparison: Comparison
    run: ComparedRun

    def order(self) -> RunOrder:
        """Return what a worker has to compute."""
        return RunOrder(self.comparison.scenario_of(self.run), self.run.policy)

    def keep(self, found: tuple[Result, bytes | None]) -> None:
        """Write the result, in which files are where the driver has them."""
        result, times = found
        comparison, run = self.comparison, self.run
        if times is not None:
            path = comparison.times_path_of(run)
            with reporting_write_errors(path):
                write_private(path, times)
        own = {
            "scenario": comparison.scenario_of(run).model_dump(mode="json"),
            "label": policies.label_of(run.policy),
            "provenance": provenance(),
        }
        write_json(
            comparison.path_of(run), {**run._asdict(), **result, "policy": run.policy, **own}
        )


def results_by_policy(
    comparison: Comparison,
) -> dict[tuple[str, float | None, float], list[Result]]:
    """Read the results by policy, rate and horizon, each in order of seeds."""
    results: dict[tuple[str, float | None, float], list[Result]] = {}
    for run in sorted(comparison.runs(), key=lambda run: run.seed):
        result = json.loads(comparison.path_of(run).read_text(encoding="utf-8"))
        results.setdefault(run[:3], []).append(result)
    return results


def evaluate(comparison: Comparison, reference: str) -> list[PolicyAverage]:
    """Read the results and average them over the seeds."""
    results = results_by_policy(comparison)
    averages = []
    for horizon in comparison.horizons:
        for rate in comparison.rates:
            base = results.get((reference, rate, horizon))
            for policy in comparison.policies:
                runs = results[policy, rate, horizon]
                label = comparison.label_of(policy)
                averages.append(average_runs(label, rate, horizon, runs, base))
    return averages


def parse_numbers(text: str, option: str) -> tuple[float, ...]:
    """Parse a list such as 200,150,100 from the command line."""
    try:
        numbers = tuple(dict.fromkeys(float(word) for word in text.split(",") if word.strip()))
    except ValueError:
        numbers = ()
    if not numbers or not all(0 < number < inf for number in numbers):
        raise InputError(f"{option}: expected positive numbers such as 200,150,100, got {text!r}")
    return numbers
