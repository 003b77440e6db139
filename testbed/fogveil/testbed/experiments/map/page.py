"""docs/map.md and its figure, from the runs of `fogveil map`."""

from __future__ import annotations

from pathlib import Path

from fogveil.testbed.experiments.map.plan import (
    BY_RATE,
    EVALUATION_SEEDS,
    FASTER,
    FULL,
    GRID,
    LATENCIES,
    LOADS,
    RIVALS,
    SEEDS,
    SLOWER,
    Point,
)
from fogveil.testbed.experiments.map.results import STABLE, PointResult, agreement, read_result
from fogveil.testbed.report.figures import figures_for_pages
from fogveil.testbed.report.map_figure import Cell, plot_map
from fogveil.testbed.report.markdown import markdown_table
from fogveil.testbed.report.statistics import format_number

PAGE, FIGURE = "map.md", "images/map"


def write_map(docs: Path, commit: str) -> Path:
    """Write the page and its figure to the folder of the documentation."""
    grid = [read_result(point) for point in GRID]
    with figures_for_pages():
        draw(grid, docs / FIGURE)
    full = [(_quarter_of(read_result(point), grid), read_result(point)) for point in FULL]
    others = [read_result(point) for point in (*SLOWER, *FASTER, *BY_RATE)]
    stable = sum(result.stable("parl") for result in grid)
    parts = [
        HEAD.format(
            trainings=" and ".join(map(str, SEEDS)),
            seeds=EVALUATION_SEEDS,
            stable=f"{STABLE:g}",
            commit=commit,
            points=len(grid),
            good=stable,
        ),
        grid_table(grid),
        FULL_TEXT.format(share=f"{agreement(full):.0%}"),
        full_table(full),
        WHY,
        intervention_table([*_bases(grid), *others]),
    ]
    page = docs / PAGE
    page.write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")
    return page


def draw(grid: list[PointResult], path: Path) -> None:
    """Draw the map: PARL, then its rivals."""

    def cell(result: PointResult, method: str) -> Cell:
        text = "\n".join(_short(ratio) for ratio in result.ratios(method))
        return Cell(result.mean_ratio(method), text, result.stable(method))

    panels = {
        title: {(r.point.latency, r.point.load): cell(r, method) for r in grid}
        for method, title in (
            ("parl", "PARL (two trainings)"),
            *((rival, rival) for rival in RIVALS),
        )
    }
    plot_map(LATENCIES, LOADS, panels, path)


def grid_table(grid: list[PointResult]) -> str:
    """Return the map as a table."""
    head = ("κ", "load", "oracle", *RIVALS, "PARL", "trainings stable")
    rows = [
        (
            f"{result.point.latency:g}",
            f"{result.point.load:.0%}",
            format_number(result.oracle.short),
            *(_cell(result, rival) for rival in RIVALS),
            _cell(result, "parl"),
            f"{result.stable_trainings} of {len(result.parl)}",
        )
        for result in grid
    ]
    return markdown_table(head, rows)


def full_table(pairs: list[tuple[PointResult, PointResult]]) -> str:
    """Return the points that were trained at both lengths."""
    head = ("κ", "load", "quarter length", "stable", "full length", "stable")
    rows = [
        (
            f"{quarter.point.latency:g}",
            f"{quarter.point.load:.0%}",
            _cell(quarter, "parl"),
            f"{quarter.stable_trainings} of {len(quarter.parl)}",
            _cell(full, "parl"),
            f"{full.stable_trainings} of {len(full.parl)}",
        )
        for quarter, full in pairs
    ]
    return markdown_table(head, rows)


def intervention_table(results: list[PointResult]) -> str:
    """Return the interventions, after the points that they start from."""
    head = ("κ", "reached by", "d keeps", "PARL", "at the long horizon", "trainings stable")
    rows = [
        (
            f"{result.point.latency:g}",
            "latency" if result.point.links is None else "the rate of workloads",
            f"{result.point.decay:g}",
            _cell(result, "parl"),
            ", ".join(_short(each.long / result.oracle.long) for each in result.parl),
            f"{result.stable_trainings} of {len(result.parl)}",
        )
        for result in results
    ]
    return markdown_table(head, rows)


def _bases(grid: list[PointResult]) -> list[PointResult]:
    starts = {(point.latency, point.load) for point in (*SLOWER, *FASTER)}
    return [result for result in grid if (result.point.latency, result.point.load) in starts]


def _quarter_of(full: PointResult, grid: list[PointResult]) -> PointResult:
    quarter = Point(full.point.latency, full.point.load)
    return next(result for result in grid if result.point == quarter)


def _cell(result: PointResult, method: str) -> str:
    return ", ".join(_short(ratio) for ratio in result.ratios(method))


def _short(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}"  # noqa: PLR2004


HEAD = """# Where the paper's agent works

Printed by `fogveil map` (resumable; it says first how long it will take), at commit {commit}.

PARL observes the cluster, the category and d, the distribution of its recent placements; it learns
from the change of the total of queued jobs from one decision to the next. Whether that suffices
depends on the environment. Two quantities are varied here, everything else is the scenario `tiered`
at β = 100 (at κ = 0.58 and a load of 39 % it is `tiered` itself; `stress` has κ = 7.3 and 85 %):

- **κ**, the latency in decisions: mean latency from a cluster to a Fog node, divided by the mean
  gap between two decisions. So many decisions are taken before a placement shows in the total.
- **load**: the share of the Fog's speed that the workloads demand.

![The map](images/map.png)

Numbers are mean delays of the Fog loop at horizon 10,000 divided by those of the clairvoyant oracle
`setr`. An orange bar marks methods that are not stable: at ten times the horizon their delay is
more than {stable} times as long, so queues grow. PARL was trained twice at each point (seeds
{trainings}), at a quarter of the paper's length; {seeds} evaluation seeds. Both trainings are
stable at {good} of {points} points.
"""

FULL_TEXT = """## Checked at full length

A quarter of the paper's training is a short look. At these points PARL was trained once at full
length as well; stable or not, both lengths agree at {share} of them:
"""

WHY = """## Why

The explanation that is tested here: d halves at every decision, so a placement of κ decisions ago
weighs 2⁻ᵏ. When its job arrives and shows in the total, the state no longer tells that it was this
placement, and one step of temporal-difference learning cannot give it the credit. If that is the
reason, then a d that forgets more slowly (`distribution_decay` above 1/2) should help at high κ,
one that forgets faster should hurt at low κ, and it should not matter whether κ is high by long
latencies or by a high rate. Load 40 %, quarter length:
"""
