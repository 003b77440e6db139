"""The figures of docs/results.md: the paper's, and ours beside them."""

from __future__ import annotations

import json
from pathlib import Path

from fogveil.core.errors import InputError
from fogveil.testbed.experiments.reproduce.claims import Curves
from fogveil.testbed.experiments.reproduce.methods import OF_THE_PAPER, TRADITIONAL, names_of
from fogveil.testbed.experiments.reproduce.plan import HEAVY, HORIZONS, RATES, Plan
from fogveil.testbed.experiments.reproduce.section_results import SectionResults
from fogveil.testbed.records.training_log import LOG
from fogveil.testbed.report.figures import (
    plot_delays,
    plot_distribution,
    plot_loops,
    plot_training,
)

DISTRIBUTED = ("nearest", "fastest", "electre", "parl")
"""The methods whose placements the paper shows."""


def read_curves(plan: Plan, scenario: str) -> Curves:
    """Return the logs of PARL's trainings in an environment."""
    curves: Curves = {}
    for rate in RATES:
        for training in plan.trainings_of(scenario, "parl", rate):
            path = training.folder / LOG
            try:
                lines = path.read_text(encoding="utf-8").splitlines()
                log = [json.loads(line) for line in lines]
            except (OSError, ValueError) as error:
                raise InputError(
                    f"{path}: is missing or damaged; remove its folder to train again"
                ) from error
            curves.setdefault(rate, {})[training.folder.name] = log
    return curves


def draw_environment(
    scenario: str, results: SectionResults, curves: Curves, images: Path
) -> list[Path]:
    """Draw all figures of an environment; return their paths without suffix."""
    paper = (*TRADITIONAL, "parl")
    ours = ("parl", *names_of("ours"), "jsq", *names_of("oracle"))
    short = HORIZONS[:1]
    by_rate = {f"β = {rate:g}": list(curves[rate].values()) for rate in RATES if rate in curves}
    path = {
        name: images / f"{scenario}-{name}"
        for name in ("training", "loops", "learning", "ours", "delays", "distribution")
    }
    plot_training(by_rate, path["training"])
    plot_loops(results.averages(paper, HORIZONS), path["loops"])
    plot_loops(results.averages(OF_THE_PAPER, short), path["learning"])
    plot_loops(results.averages(ours, HORIZONS), path["ours"])
    plot_delays(results.averages((*OF_THE_PAPER, *ours[1:]), short), path["delays"])
    placed = {name: results.placed(name, HEAVY, HORIZONS[-1]) for name in DISTRIBUTED}
    plot_distribution(placed, results.nodes, results.categories, path["distribution"])
    return list(path.values())
