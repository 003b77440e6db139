"""The tables of docs/change.md, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fogveil.testbed.experiments.change.measures import FIRST, LAST, TOLERANCE, MethodRuns
from fogveil.testbed.experiments.change.plan import (
    AT,
    HORIZON,
    ORACLE,
    RATE,
    SCRATCH,
    TRAINING_SEEDS,
    TRANSFERRED,
    ChangeTraining,
    Kind,
)
from fogveil.testbed.privacy.leakage.change_report import attacker_name, known_cells
from fogveil.testbed.report.markdown import markdown_table
from fogveil.testbed.report.statistics import Estimate, format_number
from fogveil.testbed.scenario.world import build_world

MOST_DECISIONS = 150
"""The bar: decisions for the changed node until a method is back."""
SHARE = 0.2
"""The bar: of the training steps from scratch."""
JUDGED = ("ci-setr", "veil")
REFERENCE = "jsq"
MET, MISSED = "met", "**missed**"

Results = Mapping[tuple[str, str], MethodRuns]
"""By the names of kind and method."""


class Bar(NamedTuple):
    """One number that was to be reached."""

    kind: str
    method: str
    bar: str
    here: str
    met: bool


def kind_table(kind: Kind, results: Results) -> str:
    """Return all methods on one kind of change."""
    head = (
        *("method", "before", f"first {FIRST:,g}", f"last {LAST:,g}", "within 5 % after"),
        *("decisions for the node", "delay paid", f"÷ {REFERENCE}"),
    )
    rows = []
    for method in kind.methods:
        if method == ORACLE:
            continue
        runs = results[kind.name, method]
        phases = [(AT - LAST, AT), (AT, AT + FIRST), (HORIZON - LAST, HORIZON)]
        ratios = [_ratio(runs.ratio(*phase)) for phase in phases]
        if method in (SCRATCH, TRANSFERRED):
            ratios[0] = "–"
        rows.append(
            (
                f"`{method}`",
                *ratios,
                time_cell(runs),
                "–" if kind.node is None else _decisions(runs),
                str(_rounded(runs.mean_of("paid"))),
                "–" if method == REFERENCE else _ratio(runs.against(results[kind.name, REFERENCE])),
            )
        )
    return markdown_table(head, rows)


def _ratio(ratio: Estimate) -> str:
    width = "" if ratio.half_width is None else f" ± {ratio.half_width:.3f}"
    return f"{ratio.mean:.3f}{width}"


def _rounded(value: Estimate) -> Estimate:
    width = None if value.half_width is None else float(round(value.half_width))
    return Estimate(float(round(value.mean)), width)


def time_cell(runs: MethodRuns) -> str:
    """Return how long a method took to be back, and in how many runs it was."""
    back, of = runs.runs_back
    if not back:
        return "never"
    mean = _rounded(runs.mean_of("time"))
    return str(mean) if back == of else f"≥ {mean} ({back} of {of} runs)"


def _decisions(runs: MethodRuns) -> str:
    back, of = runs.runs_back
    mean = _rounded(runs.mean_of("decisions"))
    return str(mean) if back == of else f"≥ {mean}"


def bars(kinds: Iterable[Kind], results: Results) -> list[Bar]:
    """Return every bar, and whether it is met."""
    found = []
    for kind in kinds:
        for method in JUDGED:
            runs = results[kind.name, method]
            back, of = runs.runs_back
            decisions = runs.mean_of("decisions")
            highest = decisions.mean + (decisions.half_width or 0.0)
            found.append(
                Bar(
                    kind.title,
                    method,
                    f"within 5 % after at most {MOST_DECISIONS} decisions for the node",
                    _came_back(runs),
                    back == of and (kind.node is None or highest <= MOST_DECISIONS),
                )
            )
            ratio = runs.against(results[kind.name, REFERENCE])
            found.append(
                Bar(
                    kind.title,
                    method,
                    f"not worse than {REFERENCE} from the change on",
                    f"{_ratio(ratio)} of {REFERENCE}'s delay",
                    ratio.mean + (ratio.half_width or 0.0) <= 1,
                )
            )
    for kind in kinds:
        if TRANSFERRED in kind.methods:
            ratio = results[kind.name, TRANSFERRED].against(results[kind.name, SCRATCH])
            found.append(
                Bar(
                    kind.title,
                    TRANSFERRED,
                    f"the result from scratch with {SHARE:.0%} of its training steps",
                    f"{_ratio(ratio)} of its delay",
                    ratio.mean + (ratio.half_width or 0.0) <= TOLERANCE,
                )
            )
    return found


def _came_back(runs: MethodRuns) -> str:
    back, of = runs.runs_back
    text = f"{back} of {of} runs"
    if back < of and runs.outside_before:
        text += f" ({runs.outside_before} of the others outside before, too)"
    return text if runs.kind.node is None else f"{text}, {_decisions(runs)} decisions"


def bars_table(found: Sequence[Bar]) -> str:
    """Return the bars as a table."""
    head = ("change", "method", "bar", "here", "")
    rows = [
        (bar.kind, f"`{bar.method}`", bar.bar, bar.here, MET if bar.met else MISSED)
        for bar in found
    ]
    return markdown_table(head, rows)


def retraining_table(kinds: Iterable[Kind], results: Results) -> str:
    """Return what retraining costs, and what comes of it."""
    head = (
        *("change", "PARL", "decisions trained", "time units that they take"),
        *("training steps", "× oracle from the change on", "each training's delay"),
    )
    rows = []
    for kind in kinds:
        for method in ("parl", SCRATCH, TRANSFERRED):
            if SCRATCH not in kind.methods:
                continue
            runs = results[kind.name, method]
            cost = ("0", "0", "0")
            if method != "parl":
                cost = _cost(ChangeTraining(kind, method, TRAINING_SEEDS[0]))
            delays = ", ".join(map(format_number, runs.delays_by_training()))
            rows.append((kind.title, f"`{method}`", *cost, _ratio(runs.ratio(AT)), delays))
    return markdown_table(head, rows)


def _cost(training: ChangeTraining) -> tuple[str, str, str]:
    values = training.hyperparameters
    decisions = values.population_decisions + values.training_decisions
    scale = float((training.kind.after or {}).get("sources.scale", RATE))
    world = build_world(training.load_scenario())
    sources = len(world.clusters) * len(world.categories)
    return f"{decisions:,}", f"{decisions * scale / sources:,.0f}", f"{values.training_steps:,}"


def attack_table(found: Mapping[str, Sequence[dict[str, Any]]]) -> str:
    """Return after how many decisions each attacker knows of the upgrade."""
    head = (
        *("change", "attacker: sees, places by", "service time within 5 % after", "for the node"),
        *("rank correlation as before after", "for the node"),
    )
    rows = [
        (title, attacker_name(each), *known_cells(each, "service"), *known_cells(each, "rank"))
        for title, results in found.items()
        for each in results
    ]
    return markdown_table(head, rows)
