"""docs/change.md and its figures, from the runs of `fogveil change`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.experiments.change import tables, texts
from fogveil.testbed.experiments.change.attack import DECISIONS, read_attacks
from fogveil.testbed.experiments.change.measures import FIRST, LAST, TOLERANCE, WINDOW, MethodRuns
from fogveil.testbed.experiments.change.plan import (
    ADAPTING,
    AT,
    AUTO,
    BACK,
    HORIZON,
    KINDS,
    NODE,
    NOTICE,
    ON,
    ORACLE,
    PARL,
    RATE,
    SCRATCH,
    SEEDS,
    TRAINING_SEEDS,
    TRANSFERRED,
)
from fogveil.testbed.privacy.leakage.change_report import plot_courses
from fogveil.testbed.report.change_figure import Look, Panel, plot_changes
from fogveil.testbed.report.figures import figures_for_pages
from fogveil.testbed.report.gallery import draw_run
from fogveil.testbed.report.markdown import markdown_table
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.load import shipped_scenarios

PAGE, FIGURES = "change.md", "images/change"
WIDTH, STEP = 500.0, 100.0
"""Of the moving mean in the figures, in time units."""
FROM, TO = -1500.0, 6000.0
INFERRING = {
    "jsq": Look("#0072B2", "--"),
    "veil-total": Look("#E69F00", "-."),
    "ci-setr": Look("#009E73"),
    "veil": Look("#CC79A7"),
}
LEARNING = {
    PARL: Look("#B2182B", width=1.8),
    ON: Look("#0072B2", "--"),
    AUTO: Look("#56B4E9", "-."),
    SCRATCH: Look("#000000", ":"),
    TRANSFERRED: Look("#E69F00"),
}


def write_change(docs: Path, commit: str) -> Path:
    """Write the page and its figures to the folder of the documentation."""
    results = {
        (kind.name, method): MethodRuns.read(kind, method)
        for kind in KINDS
        for method in kind.methods
        if method != ORACLE
    }
    attacks = read_attacks()
    with figures_for_pages():
        draw(results, INFERRING, docs / FIGURES / "inference")
        draw(results, LEARNING, docs / FIGURES / "learning")
        plot_courses(attacks, docs / FIGURES / "leakage")
        draw_day(docs / FIGURES / "day")
    found = tables.bars(KINDS, results)
    parts = [
        texts.HEAD.format(
            commit=commit,
            rate=f"{RATE:g}",
            horizon=f"{HORIZON:,g}",
            at=f"{AT:,g}",
            seeds=SEEDS,
            window=WINDOW,
            percent=f"{TOLERANCE - 1:.0%}".replace("%", " %"),
            node=NODE,
        ),
        texts.KNOWS,
        markdown_table(texts.KNOWS_HEAD, texts.KNOWS_ROWS),
        texts.KNOWS_END,
        texts.BARS.format(met=sum(bar.met for bar in found), bars=len(found)),
        tables.bars_table(found),
        texts.WHY,
        texts.INFERRING.format(width=f"{WIDTH:g}"),
        texts.LEARNING.format(adapting=" and ".join(f"`{each}`" for each in ADAPTING)),
        texts.TABLES.format(first=f"{FIRST:,g}", last=f"{LAST:,g}"),
    ]
    for kind in KINDS:
        parts += [f"### {kind.title[0].upper()}{kind.title[1:]}\n"]
        if kind.name in texts.KINDS:
            parts += [texts.KINDS[kind.name].format(back=f"{BACK:g}", notice=f"{NOTICE:g}")]
        parts += [tables.kind_table(kind, results)]
    parts += [
        texts.RETRAINING.format(seeds=" and ".join(map(str, TRAINING_SEEDS))),
        tables.retraining_table(KINDS, results),
        texts.LEAKAGE.format(decisions=f"{DECISIONS:,}"),
        tables.attack_table(attacks),
        texts.LEAKAGE_END,
    ]
    page = docs / PAGE
    page.write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")
    return page


def draw_day(path: Path) -> None:
    """Draw a run of the scenario with all kinds of events, for the page about scenarios."""
    with TemporaryDirectory(prefix="fogveil-day-") as folder:
        run_embedded(load_scenario(shipped_scenarios()["day"]), "ci-setr", Path(folder))
        draw_run(Path(folder), path)


def draw(results: tables.Results, looks: dict[str, Look], path: Path) -> None:
    """Draw some methods on every kind of change."""
    times: list[float] = np.arange(FROM, TO + 1, STEP).tolist()
    panels = []
    for kind in KINDS:
        lines: dict[str, Sequence[float]] = {
            method: _course(results[kind.name, method], times)
            for method in looks
            if method in kind.methods
        }
        if lines:
            backs = [event["back"] - AT for event in kind.events if "back" in event]
            panels.append(Panel(kind.title, lines, backs))
    plot_changes(times, panels, looks, TOLERANCE, path)


def _course(runs: MethodRuns, times: Sequence[float]) -> list[float]:
    return runs.ratio_over_time([AT + time for time in times], WIDTH)
