"""The tables of docs/results.md about one environment, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fogveil.testbed.experiments.reproduce.claims import Claim, stable_trainings
from fogveil.testbed.experiments.reproduce.drawings import DISTRIBUTED
from fogveil.testbed.experiments.reproduce.methods import METHODS, PRIVACY_LACKING, names_of
from fogveil.testbed.experiments.reproduce.plan import (
    HEAVY,
    HORIZONS,
    RATES,
    TRAINING_COLUMNS,
    PlannedTraining,
    TrainingSet,
)
from fogveil.testbed.experiments.reproduce.section_results import SectionResults
from fogveil.testbed.records.summary import DELAYS
from fogveil.testbed.report.markdown import markdown_table
from fogveil.testbed.report.statistics import Estimate, format_number

NEEDS = {"total": "total", "count": "count", "full": "full", "none": "nothing"}


def training_table(sets: Iterable[TrainingSet]) -> str:
    """Return what was trained, and what of it at less than full length."""
    return markdown_table(TRAINING_COLUMNS, (each.describe() for each in sets))


def claims_table(claims: Iterable[Claim]) -> str:
    """Return the table of claims."""
    return markdown_table(("claim", "the paper", "here", "verdict", "reason, criterion"), claims)


def loops_table(results: SectionResults, measure: str, title: str, short: set[str]) -> str:
    """Return one loop of every method; methods in `short` had short trainings."""
    rows = []
    for name in [method.name for method in METHODS if method.name in results.levels]:
        cells = [_both(results, name, rate, measure) for rate in RATES]
        rows.append((_described(results, name, short), *cells))
    head = (f"{title}, 10K \\| 100K", *(f"β = {rate:g}" for rate in RATES))
    return markdown_table(head, rows)


def stability_line(results: SectionResults) -> str:
    """Return in how many trainings PARL is stable, at each rate."""
    counts = []
    for rate in RATES:
        stable, trained = stable_trainings(results, rate)
        if trained:
            counts.append(f"{len(stable)} of {len(trained)} at β = {rate:g}")
    return f"Stable trainings of PARL (criterion in the table of claims): {', '.join(counts)}.\n"


def _both(results: SectionResults, method: str, rate: float, measure: str) -> str:
    parts = [results.mean(method, rate, horizon, measure) for horizon in HORIZONS]
    return " \\| ".join("–" if part is None else str(part) for part in parts)


def _described(results: SectionResults, name: str, short: set[str]) -> str:
    level = NEEDS[results.levels[name]]
    if name in PRIVACY_LACKING:
        level = "trained at full, acts on count"
    counts = {
        len([t for t in results.trainings(name, rate, HORIZONS[0]) if t]) for rate in RATES
    } - {0}
    trained = f", {' or '.join(map(str, sorted(counts)))} trainings" if counts else ""
    mark = ", short" if name in short else ""
    return f"{name} ({level}{trained}{mark})"


def by_training_table(
    results: SectionResults, agent: str, trainings: Iterable[PlannedTraining]
) -> str:
    """Return an agent by training: an interval over trainings does not show how they scatter."""
    seeds = sorted({training.seed for training in trainings if training.agent == agent})
    rows = []
    for rate in RATES:
        for horizon in HORIZONS:
            means = results.by_training(agent, rate, horizon)
            by_seed = {int(name.rpartition("-")[2]): value for name, value in means.items()}
            cells = [format_number(by_seed[s]) if s in by_seed else "–" for s in seeds]
            rows.append((f"{rate:g}, {horizon:,.0f}", *cells))
    return markdown_table((f"{agent}, Fog loop: β, horizon", *(f"seed {s}" for s in seeds)), rows)


def delays_table(results: SectionResults) -> str:
    """Return the five delays at the highest rate and the short horizon."""
    rows = []
    for name in [method.name for method in METHODS if method.name in results.levels]:
        means = [results.mean(name, HEAVY, HORIZONS[0], delay) for delay in DELAYS]
        rows.append((name, *("–" if mean is None else str(mean) for mean in means)))
    head = (f"β = {HEAVY:g}, 10K", *(delay.replace("_", " ") for delay in DELAYS))
    return markdown_table(head, rows)


def distribution_table(results: SectionResults) -> str:
    """Return the share of all workloads that each Fog node gets."""
    rows = []
    for name in DISTRIBUTED:
        placed = results.placed(name, HEAVY, HORIZONS[-1])
        if not np.any(placed):
            continue
        shares = np.sum(placed, axis=(0, 1)) / np.sum(placed)
        rows.append((name, *(f"{share:.1%}" for share in shares)))
    return markdown_table((f"β = {HEAVY:g}, 100K", *results.nodes), rows)


def ours_table(results: SectionResults) -> str:
    """Return our agents, PARL and jsq as ratios to the oracle."""
    rows = []
    for name in ("parl", *names_of("ours"), "jsq"):
        if name not in results.levels:
            continue
        cells = []
        for rate in RATES:
            ratios = [results.ratio(name, rate, horizon) for horizon in HORIZONS]
            cells.append(" \\| ".join(map(format_ratio, ratios)))
        rows.append((f"{name} ({NEEDS[results.levels[name]]})", *cells))
    head = ("Fog loop / setr, 10K \\| 100K", *(f"β = {rate:g}" for rate in RATES))
    return markdown_table(head, rows)


def format_ratio(ratio: Estimate | None) -> str:
    """Format a ratio with three decimals."""
    if ratio is None:
        return "–"
    return f"{ratio.mean:.3f} ± {ratio.half_width or 0:.3f}"
