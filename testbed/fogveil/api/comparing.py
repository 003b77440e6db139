"""Many runs: comparisons of policies, and sweeps over the keys of scenarios."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from fogveil.agent.policy import Policy
from fogveil.api.policy_specs import AnyPolicy, as_policy, check_policy, label_of, needs_of
from fogveil.api.running import AnyScenario, as_scenario
from fogveil.core.disclosure import Level
from fogveil.core.errors import InputError
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.experiments.comparison import (
    Comparison,
    RunWork,
    prepare,
    results_by_policy,
)
from fogveil.testbed.experiments.planned_work import execute_outstanding
from fogveil.testbed.experiments.sweep.definition import Sweep, read_sweep
from fogveil.testbed.experiments.sweep.execution import claim, write_results
from fogveil.testbed.experiments.sweep.plan import SweepPlan
from fogveil.testbed.report.averages import PolicyAverage, Result, average_runs, average_table
from fogveil.testbed.scenario import Scenario
from fogveil.testbed.workers.choice import Workers, execute, parse_workers

ORACLE = "setr"
_log = logging.getLogger("fogveil")


def compare(
    scenarios: AnyScenario | Sequence[AnyScenario],
    policies: AnyPolicy | Iterable[AnyPolicy],
    *,
    rates: Sequence[float] | None = None,
    horizons: Sequence[float] | None = None,
    seeds: int = 5,
    reference: AnyPolicy = ORACLE,
    out: str | Path | None = None,
    workers: int | str | None = None,
) -> pa.Table:
    """Compare policies on equal workloads: a row for each scenario, rate, horizon and policy.

    Every measure has its mean over the seeds, and in a column `…_ci95` the half-width of its 95 %
    interval; `fog_loop_ratio` is to the reference policy, paired by seed. Policies are names,
    files, classes or objects; each is given the disclosure level that it needs. Named ones run on
    all cores, or on `workers` (as the option --workers); with `out` finished runs are kept and not
    repeated.
    """
    chosen = _listed(scenarios, (Scenario, str, Path, dict), "scenarios", "'tiny'")
    named = _listed(policies, (str, Path, Policy, type), "policies", "'jsq'")
    for policy in (*named, reference):
        check_policy(policy)
    check_count(seeds, "seeds", "runs")
    rates, horizons = _numbers(rates, "rates"), _numbers(horizons, "horizons")
    crew = parse_workers(workers, "workers")
    with _folder(out) as folder:
        tables = [
            _compare_one(as_scenario(each), named, rates, horizons, seeds, reference, folder, crew)
            for each in chosen
        ]
    return pa.concat_tables(tables)


def _listed(value: Any, single: tuple[type, ...], name: str, example: str) -> list[Any]:
    """Return one or several as a list."""
    try:
        values = [value] if isinstance(value, single) else list(value)
    except TypeError as error:
        raise InputError(f"{name}: expected a list, such as [{example}], got {value!r}") from error
    if not values:
        raise InputError(f"{name}: expected at least one, such as {example}")
    return values


def check_count(value: object, name: str, things: str) -> None:
    """Refuse what is no number of things."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name}: expected how many {things}, at least 1, got {value!r}")


def _numbers(values: Sequence[float] | None, name: str) -> tuple[float, ...] | None:
    if values is None:
        return None
    try:
        numbers = tuple(dict.fromkeys(float(value) for value in values))
    except (TypeError, ValueError):
        numbers = ()
    if not numbers or not all(0 < number < inf for number in numbers):
        raise InputError(f"{name}: expected positive numbers such as [200, 100], got {values!r}")
    return numbers


def _compare_one(
    scenario: Scenario,
    policies: list[AnyPolicy],
    rates: tuple[float, ...] | None,
    horizons: tuple[float, ...] | None,
    seeds: int,
    reference: AnyPolicy,
    folder: Path,
    workers: Workers,
) -> pa.Table:
    everybody = list({_key(policy): policy for policy in (*policies, reference)}.values())
    comparison = Comparison(
        file=scenario.model_dump(mode="json", exclude_unset=True),
        overrides={},
        policies=tuple(str(p) for p in everybody if isinstance(p, str | Path)),
        rates=rates or (None,),
        horizons=horizons or (scenario.horizon,),
        seeds=seeds,
        out=folder,
    )
    results: dict[tuple[str, float | None, float], list[Result]] = {}
    if comparison.policies:
        _, outstanding = prepare(comparison)
        pieces = [RunWork(comparison, run) for run in outstanding]
        for _ in execute(pieces, workers, _log.warning):
            pass
        results |= results_by_policy(comparison)
    for policy in everybody:
        if not isinstance(policy, str | Path):
            results |= _run_own(comparison, policy)
    labels = _labels(policies)
    averages = []
    for horizon in comparison.horizons:
        for rate in comparison.rates:
            base = results[_key(reference), rate, horizon]
            averages += [
                average_runs(label, rate, horizon, results[_key(p), rate, horizon], base)
                for p, label in zip(policies, labels, strict=True)
            ]
    return _named(averages, scenario)


def _run_own(
    comparison: Comparison, policy: AnyPolicy
) -> dict[tuple[str, float | None, float], list[Result]]:
    """Run a class or an object in this process: no other may be able to import it."""
    found: dict[tuple[str, float | None, float], list[Result]] = {}
    for horizon in comparison.horizons:
        for rate in comparison.rates:
            first = as_scenario(comparison.file)
            for number in range(comparison.seeds):
                changes: dict[str, Any] = {"horizon": horizon, "seed": first.seed + number}
                changes |= {} if rate is None else {"rate": rate}
                scenario = first.replace(changes)
                if Level.parse(scenario.disclosure) < needs_of(policy):
                    scenario = scenario.replace(disclosure=needs_of(policy).word)
                result = run_embedded(scenario, as_policy(policy))
                found.setdefault((_key(policy), rate, horizon), []).append(result)
    return found


def _key(policy: AnyPolicy) -> str:
    """Return what tells a policy from the others: two objects of one class differ."""
    return str(policy) if isinstance(policy, str | Path) else f"{label_of(policy)} {id(policy)}"


def _labels(policies: list[AnyPolicy]) -> list[str]:
    """Return a name for each policy: a short one, with its file or a number where two are equal."""
    short = [label_of(policy) for policy in policies]
    labels: list[str] = []
    for policy, label in zip(policies, short, strict=True):
        if short.count(label) == 1:
            labels.append(label)
        elif isinstance(policy, str | Path):
            labels.append(str(policy))
        else:
            earlier = sum(each.startswith(f"{label}#") for each in labels)
            labels.append(f"{label}#{earlier + 1}")
    return labels


def _named(averages: list[PolicyAverage], scenario: Scenario) -> pa.Table:
    table = average_table(averages)
    return table.add_column(0, "scenario", pa.array([scenario.name] * table.num_rows))


@contextmanager
def _folder(out: str | Path | None) -> Iterator[Path]:
    if out is not None:
        yield Path(out)
        return
    with TemporaryDirectory(prefix="fogveil-") as name:
        yield Path(name)


def sweep(
    definition: Sweep | Mapping[str, Any] | str | Path,
    *,
    out: str | Path | None = None,
    workers: int | str | None = None,
    force: bool = False,
) -> pa.Table:
    """Run policies over a grid of scenario keys and seeds; return a row per run.

    `definition` is a TOML file, or its content: `scenario`, `policies`, `seeds`, `grid`, `points`,
    `set`, `agents`. With `out` the results are kept: the same sweep continues where it stopped, and
    a folder with something else is refused unless `force`. `workers` is as for the option
    --workers: a number of processes, "dask://HOST:PORT" or "slurm:FILE".
    """
    chosen = parse_workers(workers, "workers")
    if isinstance(definition, str | Path):
        definition = read_sweep(Path(definition))
    elif not isinstance(definition, Sweep):
        definition = read_sweep(definition)
    with _folder(out) as folder:
        plan = SweepPlan(definition, folder)
        outstanding = plan.find_outstanding()  # which refuses what is wrong
        claim(plan, force=force)
        if any(outstanding):
            with chosen.open(_log.warning) as crew:
                execute_outstanding(outstanding, crew, lambda _task: None)
        return write_results(plan)


def plot(
    table: Any,
    x: str,
    y: str = "mean",
    by: str | Sequence[str] = "policy",
    *,
    to: str | Path,
    where: Mapping[str, Any] | None = None,
) -> Path:
    """Draw a measure over a column, with 95 % intervals over seeds, a line for each group.

    `table` is what `sweep` returned, a data frame, or the folder or file of a sweep. Writes `to` as
    .png, .svg and .pdf, and returns the path of the first.
    """
    from fogveil.testbed.report.sweep_figure import SUFFIXES, plot_table, read_table

    if isinstance(table, str | Path):
        content = read_table(Path(table))[0]
    elif isinstance(table, pa.Table):
        content = table
    elif hasattr(table, "__dataframe__") or hasattr(table, "iloc"):
        content = pa.Table.from_pandas(table, preserve_index=False)
    else:
        raise InputError(f"plot: expected a table, a data frame or a folder, got {type(table)}")
    columns = [by] if isinstance(by, str) else list(by)
    conditions = {key: str(value) for key, value in (where or {}).items()}
    plot_table(content, x, y, columns, Path(to), conditions)
    target = Path(to)
    return Path(f"{target.with_suffix('') if target.suffix in SUFFIXES else target}.png")
