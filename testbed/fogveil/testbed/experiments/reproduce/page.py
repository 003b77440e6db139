"""The page docs/results.md, put together from the runs of `fogveil reproduce`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from fogveil.agent.learning.checkpoint import read_header
from fogveil.core.version import source_commit
from fogveil.testbed.experiments.reproduce import tables, texts
from fogveil.testbed.experiments.reproduce.claims import claims
from fogveil.testbed.experiments.reproduce.drawings import draw_environment, read_curves
from fogveil.testbed.experiments.reproduce.methods import PAPER, STRESS
from fogveil.testbed.experiments.reproduce.plan import COUNTS, HORIZONS, OURS, Plan, total_section
from fogveil.testbed.experiments.reproduce.section_results import SectionResults
from fogveil.testbed.experiments.reproduce.veil_tables import (
    others_table,
    random_service_table,
    total_table,
    veil_table,
)
from fogveil.testbed.page import files as html_files
from fogveil.testbed.page.document import markdown_document
from fogveil.testbed.records.output import reporting_write_errors
from fogveil.testbed.report.figures import figures_for_pages
from fogveil.testbed.scenario import load_scenario

PAGE, IMAGES = "results.md", Path("images", "results")


def write_page(plan: Plan) -> list[Path]:
    """Write the page, its figures and the same as one HTML file; return the paths."""
    images = plan.scale.docs / IMAGES
    parts = [_head(plan)]
    drawn: list[Path] = []
    for scenario in (PAPER, STRESS):
        results = read_section(plan, scenario)
        curves = read_curves(plan, scenario)
        with figures_for_pages():
            drawn += draw_environment(scenario, results, curves, images)
        parts.append(environment_section(plan, scenario, results))
        if scenario == PAPER:
            text = tables.claims_table(claims(results, curves))
            parts.insert(1, f"## The paper's claims\n\n{texts.CLAIMS}\n{text}")
    by_horizon = {horizon: read_section(plan, total_section(horizon)) for horizon in HORIZONS}
    parts.append(f"## From the total alone\n\n{texts.TOTAL}\n{total_table(by_horizon)}")
    parts.append(_veil_part(plan))
    page, report = plan.scale.docs / PAGE, plan.scale.out / "report.html"
    text = "\n".join(parts).rstrip() + "\n"
    with reporting_write_errors(page):
        page.write_text(text, encoding="utf-8")
    html_files.write_page(markdown_document(text, plan.scale.docs), report)
    return [page, report, *(path.with_suffix(".png") for path in drawn)]


def read_section(plan: Plan, section: str) -> SectionResults:
    """Return the results of one section."""
    return SectionResults.read(e for e in plan.evaluations if e.section == section)


def _read_other(plan: Plan, section: str, scenario: str) -> SectionResults:
    return read_section(plan, f"{section}/{scenario}")


def _head(plan: Plan) -> str:
    first = load_scenario(PAPER).seed
    last = first + plan.scale.seeds - 1
    commits = sorted({str(read_header(t.light).get("commit")) for t in plan.trainings})
    head = texts.HEAD.format(
        seeds=plan.scale.seeds,
        first=first,
        last=last,
        commit=source_commit() or "unknown",
        commits=", ".join(commits),
    )
    warning = texts.QUICK if plan.scale.quick else ""
    return head + warning + "\n" + tables.training_table(plan.scale.sets)


def environment_section(plan: Plan, scenario: str, results: SectionResults) -> str:
    """Return the section of one environment: loops, delays, placements, trainings, our agents."""
    trainings = [t for t in plan.trainings if t.scenario == scenario]
    short = {t.agent for t in trainings if t.share < 1}

    def image(name: str, alternative: str) -> str:
        return f"![{alternative}]({(IMAGES / f'{scenario}-{name}.png').as_posix()})\n"

    agents = dict.fromkeys(t.agent for t in trainings if t.agent not in OURS)
    parts = [
        f"## The environment `{scenario}`\n",
        texts.ENVIRONMENTS[scenario],
        tables.stability_line(results),
        "### Training of PARL\n",
        image("training", "Return of PARL over its training"),
        "### Both loops\n",
        image("loops", "Mean delay of both loops, the paper's six methods"),
        tables.loops_table(results, "fog_loop", "Fog loop", short),
        tables.loops_table(results, "cloud_loop", "Cloud loop", short),
        "### The five delays\n",
        image("delays", "The five delays"),
        tables.delays_table(results),
        "### Where workloads go\n",
        image("distribution", "Share of workloads by Fog node, cluster and application"),
        tables.distribution_table(results),
        "### PARL, PLRL and the traditional methods over β\n",
        image("learning", "Both loops over β: learning methods solid, traditional ones dashed"),
        *(tables.by_training_table(results, agent, trainings) for agent in agents),
        "### Our agents and the oracle\n",
        texts.OURS,
        image("ours", "Both loops over β: PARL, our agents, jsq and the oracle"),
        tables.ours_table(results),
    ]
    return "\n".join(parts)


def _veil_part(plan: Plan) -> str:
    parts = ["## veil\n", texts.VEIL]
    for count in COUNTS:
        parts.append(f"{texts.COUNT_NAMES[count]} counts:\n")
        parts.append(veil_table(read_section(plan, f"veil-{count}")))
    parts += ["### Scenarios it was never trained on\n", texts.OTHERS]
    for count in COUNTS:
        parts.append(f"{texts.COUNT_NAMES[count]} counts:\n")
        parts.append(others_table(partial(_read_other, plan, f"others-{count}")))
    parts += ["## Random service times\n", texts.RANDOM_SERVICE]
    for name, title in texts.SERVICE_NAMES.items():
        parts.append(f"### {title}\n")
        for count in COUNTS:
            results = read_section(plan, f"{name}-{count}")
            parts.append(random_service_table(results, count))
    return "\n".join(parts)
