"""Many runs: comparisons of policies, and sweeps over the keys of scenarios."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from fogveil.api.policy_specs import AnyPolicy, as_policy, label_of, needs_of
from fogveil.api.running import AnyScenario, as_scenario
from fogveil.core.disclosure import Level
from fogveil.core.errors import InputError
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.experiments.comparison import (
    Comparison,
    execute,
    prepare,
    results_by_policy,
)
from fogveil.testbed.experiments.sweep.definition import Sweep, read_sweep
from fogveil.testbed.experiments.sweep.execution import claim
from fogveil.testbed.experiments.sweep.execution import execute as execute_sweep
from fogveil.testbed.experiments.sweep.plan import SweepPlan
from fogveil.testbed.report.averages import PolicyAverage, Result, average_runs, average_table
from fogveil.testbed.scenario import Scenario

ORACLE = "setr"


def compare(
    scenarios: AnyScenario | Sequence[AnyScenario],
    policies: Iterable[AnyPolicy],
    *,
    rates: Sequence[float] | None = None,
    horizons: Sequence[float] | None = None,
    seeds: int = 5,
    reference: AnyPolicy = ORACLE,
    out: str | Path | None = None,
) -> pa.Table:
    """Compare policies on equal workloads: a row for each scenario, rate, horizon and policy.

    Every measure has its mean over the seeds, and in a column `…_ci95` the half-width of its 95 %
    interval; `fog_loop_ratio` is to the reference policy, paired by seed. Policies are names,
    files, classes or objects; each is given the disclosure level that it needs. Named ones run on
    all cores, and with `out` finished runs are kept and not repeated.
    """
    chosen = [scenarios] if isinstance(scenarios, Scenario | str | Path | dict) else list(scenarios)
    named = list(policies)
    if not named:
        raise InputError("policies: expected at least one, such as 'jsq'")
    with _folder(out) as folder:
        tables = [
            _compare_one(as_scenario(each), named, rates, horizons, seeds, reference, folder)
            for each in chosen
        ]
    return pa.concat_tables(tables)


def _compare_one(
    scenario: Scenario,
    policies: list[AnyPolicy],
    rates: Sequence[float] | None,
    horizons: Sequence[float] | None,
    seeds: int,
    reference: AnyPolicy,
    folder: Path,
) -> pa.Table:
    everybody = list({label_of(policy): policy for policy in (*policies, reference)}.values())
    comparison = Comparison(
        file=scenario.model_dump(mode="json", exclude_unset=True),
        overrides={},
        policies=tuple(str(p) for p in everybody if isinstance(p, str | Path)),
        rates=tuple(map(float, rates)) if rates else (None,),
        horizons=tuple(map(float, horizons)) if horizons else (scenario.horizon,),
        seeds=seeds,
        out=folder,
    )
    results: dict[tuple[str, float | None, float], list[Result]] = {}
    if comparison.policies:
        _, outstanding = prepare(comparison)
        for _ in execute(comparison, outstanding):
            pass
        results |= results_by_policy(comparison)
    for policy in everybody:
        if not isinstance(policy, str | Path):
            results |= _run_own(comparison, policy)
    averages = []
    for horizon in comparison.horizons:
        for rate in comparison.rates:
            base = results[_key(reference), rate, horizon]
            averages += [
                average_runs(label_of(p), rate, horizon, results[_key(p), rate, horizon], base)
                for p in policies
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
    return str(policy) if isinstance(policy, str | Path) else label_of(policy)


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
    workers: int | None = None,
    force: bool = False,
) -> pa.Table:
    """Run policies over a grid of scenario keys and seeds; return a row per run.

    `definition` is a TOML file, or its content: `scenario`, `policies`, `seeds`, `grid`, `points`,
    `set`, `agents`. With `out` the results are kept: the same sweep continues where it stopped, and
    a folder with something else is refused unless `force`.
    """
    if isinstance(definition, str | Path):
        definition = read_sweep(Path(definition))
    elif not isinstance(definition, Sweep):
        definition = read_sweep(definition)
    with _folder(out) as folder:
        plan = SweepPlan(definition, folder)
        claim(plan, force=force)
        return execute_sweep(plan, plan.find_outstanding(), workers)


def plot(
    table: pa.Table | str | Path,
    x: str,
    y: str = "mean",
    by: str | Sequence[str] = "policy",
    *,
    to: str | Path,
    where: Mapping[str, Any] | None = None,
) -> Path:
    """Draw a measure over a column, with 95 % intervals over seeds, a line for each group.

    `table` is what `sweep` returned, or the folder or file that it wrote. Writes `to` as .png, .svg
    and .pdf, and returns the path of the first.
    """
    from fogveil.testbed.report.sweep_figure import plot_table, read_table

    content = table if isinstance(table, pa.Table) else read_table(Path(table))[0]
    columns = [by] if isinstance(by, str) else list(by)
    conditions = {key: str(value) for key, value in (where or {}).items()}
    plot_table(content, x, y, columns, Path(to), conditions)
    return Path(f"{to}.png")
