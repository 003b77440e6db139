"""Comparing policies over rates, horizons and seeds: all cores, common random numbers, resumable.

Every run's result is a file of its own, written by the worker when the run is done. So an
interrupted comparison loses no finished run, and the same command goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import agent
import agent.policies as policies
import fogveil
import provider_node
from fogveil.disclosure import Level
from fogveil.errors import InputError, SurroundingsError
from testbed.records import remove_leftovers, write_json, writing
from testbed.run import run_embedded
from testbed.scenario import Scenario, load_scenario
from testbed.statistics import Estimate, estimate, paired_ratio
from testbed.summary import DELAYS, LOOPS

SHOWING = (
    *("compare", "demo", "drawing", "figures", "gallery", "results", "results_page"),
    *("records", "statistics", "tables", "traffic", "trainee", "training"),
)
"""Modules that no run depends on."""
TRANSPORT = (
    *("__main__", "boundary", "channels", "clock_seat", "deciding", "journal", "ordering"),
    *("participant", "process", "record", "recording", "serving", "settings", "watching"),
)
"""Modules of federated runs alone; comparisons are embedded."""
MEASURES = (*DELAYS, *LOOPS, "unserved")


class Cell(NamedTuple):
    """One run of the comparison."""

    policy: str
    rate: float | None
    """None keeps the scenario's own sources."""
    horizon: float
    seed: int


@dataclass(frozen=True)
class Plan:
    """What is compared, and where the results go."""

    file: Path
    overrides: dict[str, Any]
    policies: tuple[str, ...]
    rates: tuple[float | None, ...]
    horizons: tuple[float, ...]
    seeds: int
    out: Path

    def cells(self) -> list[Cell]:
        """Return all runs, long ones first so that the cores finish together."""
        first = load_scenario(self.file, self.overrides).seed
        return [
            Cell(policy, rate, horizon, first + number)
            for horizon in sorted(self.horizons, reverse=True)
            for number in range(self.seeds)
            for rate in self.rates
            for policy in self.policies
        ]

    def scenario_of(self, cell: Cell) -> Scenario:
        """Return the scenario of one run.

        The providers disclose what each policy needs, unless the overrides fix a level.
        """
        overrides = {**self.overrides, "horizon": cell.horizon, "seed": cell.seed}
        if cell.rate is not None:
            overrides["sources.scale"] = cell.rate
        scenario = load_scenario(self.file, overrides)
        needs = policies.find(cell.policy).needs
        if "disclosure" in self.overrides or Level.parse(scenario.disclosure) >= needs:
            return scenario
        return scenario.model_copy(update={"disclosure": needs.word})

    def path_of(self, cell: Cell) -> Path:
        """Return the file of one result; its name changes with whatever could change the result."""
        scenario = self.scenario_of(cell)
        named = [policies.file_of(cell.policy)]
        named += [getattr(part, "file", None) for part in (scenario.topology, scenario.sources)]
        content = [scenario.model_dump_json(), cell.policy, _code_digest()]
        content += [_file_digest(Path(name)) for name in named if name]
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]
        rate = "own" if cell.rate is None else f"{cell.rate:g}"
        label = policies.label_of(cell.policy)
        return self.out / "runs" / f"{label}_{rate}_{cell.horizon:g}_{cell.seed}_{digest}.json"

    def label_of(self, policy: str) -> str:
        """Return a policy's short name, or all of it where that is another's short name, too."""
        labels = [policies.label_of(other) for other in self.policies]
        short = policies.label_of(policy)
        return short if labels.count(short) == 1 else policy


@lru_cache
def _file_digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


@lru_cache
def _code_digest() -> str:
    """The digest of all code and trained agents that a run depends on, and not of what shows it."""
    roots = [Path(package.__path__[0]) for package in (agent, fogveil, provider_node)]
    roots.append(Path(__file__).parent)
    files = [path for folder in roots for path in (*folder.rglob("*.py"), *folder.rglob("*.npz"))]
    unused = {*SHOWING, *TRANSPORT}
    files = [
        path
        for path in files
        if path.stem not in unused
        and not {"v1", "federated", "containers", "cli", "audit", "inspecting", "leakage"}
        & {*path.parts}
    ]
    digests = [f"{path.name} {_file_digest(path)}" for path in sorted(files)]
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()


def prepare(plan: Plan) -> tuple[list[Cell], list[Cell]]:
    """Check the plan before anything runs; return the runs that are done and those to do."""
    with writing(plan.out):
        (plan.out / "runs").mkdir(parents=True, exist_ok=True)
        remove_leftovers(plan.out / "runs")
    if not plan.policies:
        raise InputError("--policies: expected at least one policy")
    done: list[Cell] = []
    to_do: list[Cell] = []
    for cell in plan.cells():
        policies.check_level(
            cell.policy,
            policies.find(cell.policy),
            Level.parse(plan.scenario_of(cell).disclosure),
        )
        (done if plan.path_of(cell).exists() else to_do).append(cell)
    return done, to_do


def execute(plan: Plan, to_do: Iterable[Cell]) -> Iterator[Cell]:
    """Do the runs on all cores, yielding each as its result is safe on disk."""
    workers = len(os.sched_getaffinity(0))
    pool = ProcessPoolExecutor(workers, initializer=signal.signal, initargs=_IGNORE_INTERRUPT)
    try:
        futures = {pool.submit(_run_cell, plan, cell): cell for cell in to_do}
        for future in as_completed(futures):
            future.result()
            yield futures[future]
    except BrokenProcessPool as error:
        pool.shutdown()  # or it is still at it when Python ends, which then shows a traceback
        raise SurroundingsError("a worker process died; the same command goes on") from error
    except BaseException:
        # The parent alone hears Ctrl-C; workers finish the run they are at and start no other.
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()


_IGNORE_INTERRUPT = (signal.SIGINT, signal.SIG_IGN)


def _run_cell(plan: Plan, cell: Cell) -> None:
    result = run_embedded(plan.scenario_of(cell), cell.policy)
    write_json(plan.path_of(cell), {**cell._asdict(), **result})


class Row(NamedTuple):
    """One line of the comparison: a policy at a rate and a horizon, over all seeds."""

    policy: str
    level: str
    rate: float | None
    horizon: float
    measures: dict[str, Estimate]
    ratio: Estimate | None
    """Of the Fog loop to the reference policy's, paired by seed."""


def evaluate(plan: Plan, reference: str) -> list[Row]:
    """Read the results and average them over the seeds."""
    results: dict[tuple[str, float | None, float], list[dict[str, Any]]] = {}
    for cell in sorted(plan.cells(), key=lambda cell: cell.seed):
        result = json.loads(plan.path_of(cell).read_text(encoding="utf-8"))
        results.setdefault(cell[:3], []).append(result)
    rows = []
    for horizon in plan.horizons:
        for rate in plan.rates:
            base = results.get((reference, rate, horizon))
            for policy in plan.policies:
                runs = results[policy, rate, horizon]
                rows.append(row_of(plan.label_of(policy), rate, horizon, runs, base))
    return rows


def row_of(
    label: str,
    rate: float | None,
    horizon: float,
    runs: list[dict[str, Any]],
    base: list[dict[str, Any]] | None,
) -> Row:
    """Average the runs of one policy, and take their ratio to the reference's, run by run."""
    ratio = paired_ratio(_fog_loops(runs), _fog_loops(base)) if base else None
    measures = {name: _over_seeds(runs, name) for name in MEASURES}
    found = {name: value for name, value in measures.items() if value}
    return Row(label, runs[0]["level"], rate, horizon, found, ratio)


def _fog_loops(runs: list[dict[str, Any]]) -> list[float]:
    return [run["summary"]["fog_loop"] for run in runs]


def _over_seeds(runs: list[dict[str, Any]], measure: str) -> Estimate | None:
    values = [run["summary"][measure] for run in runs]
    known = [float(value) for value in values if value is not None]
    return estimate(known) if known else None


def write_tables(rows: list[Row], out: Path) -> list[Path]:
    """Write the comparison as CSV and Parquet."""
    flat = []
    for row in rows:
        line: dict[str, Any] = {
            "policy": row.policy,
            "level": row.level,
            "rate": row.rate,
            "horizon": row.horizon,
        }
        named = {**row.measures, "fog_loop_ratio": row.ratio}
        for name in (*MEASURES, "fog_loop_ratio"):
            value = named.get(name)
            line[name] = value.mean if value else None
            line[f"{name}_ci95"] = value.half_width if value else None
        flat.append(line)
    table = pa.Table.from_pylist(flat)
    paths = [out / "compare.csv", out / "compare.parquet"]
    with writing(out):
        pyarrow.csv.write_csv(table, paths[0])
        pyarrow.parquet.write_table(table, paths[1])
    return paths


def parse_numbers(text: str, option: str) -> tuple[float, ...]:
    """Read a list such as 200,150,100 from the command line."""
    try:
        numbers = tuple(dict.fromkeys(float(w) for w in text.split(",") if w.strip()))
    except ValueError:
        numbers = ()
    if not numbers or not all(0 < number < inf for number in numbers):
        raise InputError(f"{option}: expected positive numbers such as 200,150,100, got {text!r}")
    return numbers
