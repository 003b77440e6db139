"""Tables of runs, comparisons and scenarios."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

import fogveil.agent.policies as policies
from fogveil.core.safe_text import safe_text
from fogveil.testbed.records.summary import DELAYS, LOOPS, PERCENTILES
from fogveil.testbed.report.averages import PolicyAverage, average_table
from fogveil.testbed.report.statistics import Estimate, format_number
from fogveil.testbed.report.table_files import write_tables
from fogveil.testbed.scenario.event_text import event_texts
from fogveil.testbed.scenario.load import shipped_scenarios
from fogveil.testbed.scenario.world import World

LONGEST_LABEL = 60
"""Characters of a node's label in a graph file."""


def make_table(title: str, *columns: str) -> Table:
    """Return an empty table: the first column is text, the others are numbers."""
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place == 0 else "right", no_wrap=True)
    return table


def print_table(table: Table, console: Console) -> None:
    """Print a table without cutting a name or a number; one that cannot fit is wider."""
    table.columns[0].no_wrap = True
    unlimited = console.options.update(max_width=10_000)
    for column in table.columns:
        cells = (column.header, *column.cells)
        sizes = [Measurement.get(console, unlimited, cell) for cell in cells]
        column.min_width = max(size[1 if column.no_wrap else 0] for size in sizes)
    if Measurement.get(console, unlimited, table).maximum > console.width:
        for column in table.columns:
            if column.justify == "right":  # numbers wrap in all columns or in none
                column.max_width = column.min_width
        least = Measurement.get(console, unlimited, table).minimum
        table.width = least if least > console.width else None
    console.print(table, crop=False)


def run_tables(result: dict[str, Any]) -> list[Table]:
    """Return the tables of one run: delays and loops, then the nodes."""
    summary = result["summary"]
    title = f"{result['name']} under {result['policy']}, level {result['level']}"
    tails = [f"p{percentile}" for percentile in PERCENTILES]
    delays = make_table(f"{title}, seed {result['seed']}", "delay (time units)", "mean", *tails)
    for name in (*DELAYS, *LOOPS):
        keys = (name, *(f"{name}_{tail}" for tail in tails))
        delays.add_row(name.replace("_", " "), *(_or_dash(summary.get(key)) for key in keys))
    load = make_table("", "node", "workloads", "utilisation")
    placed = np.sum(summary["placed"], axis=(0, 1)).tolist()
    jobs = dict(zip(result["nodes"], placed, strict=True))
    for node, share in summary["utilisation"].items():
        load.add_row(node, f"{jobs[node]:,}" if node in jobs else "aggregates", f"{share:.1%}")
    return [delays, load]


def summary_line(summary: Mapping[str, Any]) -> str:
    """Return one line with a run's fairness, mean utilisation and, if it has any, deadlines."""
    fairness, used = summary["fairness"], summary["utilisation_mean"]
    line = f"fairness between clusters {_or_dash(fairness)} (Jain), mean utilisation {used:.1%}"
    if summary["deadline_met"] is None:
        return line
    shares = summary["deadline_met_by_application"].items()
    each = ", ".join(f"{name} {share:.1%}" for name, share in shares if share is not None)
    return f"{line}\ndeadlines met: {summary['deadline_met']:.1%} ({each})"


def _or_dash(value: float | None) -> str:
    return "–" if value is None else format_number(value)


def compare_rows(averages: Sequence[PolicyAverage], reference: str) -> list[dict[str, str]]:
    """Return what a comparison's tables show of some averages, by column."""
    judged = any("deadline_met" in average.measures for average in averages)
    rows = []
    for average in averages:
        measures = average.measures
        row = {
            "policy": average.policy,
            "level": average.level,
            "fog loop": _compact(measures.get("fog_loop")),
            "p95": _compact(measures.get("fog_loop_p95")),
            f"× {reference}": _compact(average.ratio, digits=3),
            "cloud loop": _compact(measures.get("cloud_loop")),
        }
        if judged:
            row["in time (%)"] = _compact(measures.get("deadline_met"), scale=100)
        rows.append(row | {"unserved": _compact(measures.get("unserved"))})
    return rows


def _compact(value: Estimate | None, *, scale: float = 1, digits: int | None = None) -> str:
    if value is None:
        return "–"
    if digits is not None and not value.half_width:
        return f"{value.mean:.{digits}f}"
    width = None if value.half_width is None else scale * value.half_width
    return Estimate(scale * value.mean, width).compact()


def interval_note(averages: Sequence[PolicyAverage]) -> str:
    """Return one sentence that says what the intervals of averages are over."""
    kinds = {average.interval for average in averages}
    seeds = max((average.seeds for average in averages), default=0)
    texts = {
        "seeds": f"± 95 % over {seeds} seeds",
        "blocks": "± 95 % by a block bootstrap over the time of the trace: its workloads are the "
        "same for every seed",
        "none": "without ±: one sample" + ", all seeds bring the same workloads" * (seeds > 1),
    }
    return "; ".join(texts[kind] for kind in ("seeds", "blocks", "none") if kind in kinds)


def ordered_averages(
    averages: Sequence[PolicyAverage],
) -> dict[tuple[float, float | None], list[PolicyAverage]]:
    """Return averages by horizon and rate, of each the best policy first."""
    groups: dict[tuple[float, float | None], list[PolicyAverage]] = {}
    for average in averages:
        groups.setdefault((average.horizon, average.rate), []).append(average)
    for group in groups.values():
        group.sort(key=lambda average: average.measures["fog_loop"].mean)
    return groups


def compare_tables(averages: Sequence[PolicyAverage], reference: str) -> list[Table]:
    """Return the tables of a comparison, one per horizon and rate, the best policy first."""
    tables = []
    for (horizon, rate), chosen in ordered_averages(averages).items():
        sources = "the scenario's own sources" if rate is None else f"β = {rate:g}"
        rows = compare_rows(chosen, reference)
        table = make_table(f"horizon {horizon:,.0f}, {sources}", *rows[0])
        table.collapse_padding = True
        for column in table.columns[2:]:
            column.no_wrap = False  # where it is narrow, an interval stands below its mean
        for row in rows:
            table.add_row(*row.values())
        if {average.interval for average in chosen} != {"seeds"}:
            table.caption, table.caption_justify = interval_note(chosen), "left"
        tables.append(table)
    return tables


def write_comparison(
    averages: Sequence[PolicyAverage],
    reference: str,
    folder: Path,
    provenance: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write compare.csv, .parquet, .md and .tex; return their paths."""
    groups = ordered_averages(averages)
    several = [len({key[place] for key in groups}) > 1 for place in (0, 1)]
    shown = []
    for (horizon, rate), chosen in groups.items():
        at = {"horizon": f"{horizon:,.0f}"} if several[0] else {}
        at |= {"β": "–" if rate is None else f"{rate:g}"} if several[1] else {}
        shown += [at | row for row in compare_rows(chosen, reference)]
    names = dict.fromkeys(name for row in shown for name in row)
    metadata = {"provenance": json.dumps(provenance)} if provenance else None
    return write_tables(
        average_table(averages),
        folder / "compare",
        shown=[{name: row.get(name, "–") for name in names} for row in shown],
        caption=f"Mean delays in simulated time units; {interval_note(averages)}.",
        metadata=metadata,
    )


def format_ratio(ratio: Estimate | None) -> str:
    """Format a ratio with three decimals."""
    if ratio is None:
        return "–"
    interval = "" if ratio.half_width is None else f" ± {ratio.half_width:.3f}"
    return f"{ratio.mean:.3f}{interval}"


def policy_table() -> Table:
    """Return the list of policies, ordered by the disclosure level they need."""
    table = Table("policy", "needs", "what it does", box=box.SIMPLE_HEAD)
    rows = [(name, policies.find(name).needs, entry) for name, entry in policies.POLICIES.items()]
    for name, needs, entry in sorted(rows, key=lambda row: row[1]):
        table.add_row(name, needs.word, entry.summary)
    return table


def shipped_scenarios_table() -> Table:
    """Return the list of shipped scenarios with the first sentence of each file."""
    table = Table("scenario", "what it is", box=box.SIMPLE_HEAD)
    for name, path in shipped_scenarios().items():
        first = path.read_text(encoding="utf-8").partition("\n")[0]
        table.add_row(name, first.lstrip("# "))
    return table


def scenario_tables(world: World) -> list[Table]:
    """Return the tables of a whole scenario, secrets included, for the experimenter."""
    scenario = world.scenario
    facts = make_table(f"scenario {scenario.name}", "what", "value")
    facts.add_row("horizon", f"{scenario.horizon:,.0f}")
    facts.add_row("seed", str(scenario.seed))
    facts.add_row("count", str(scenario.count))
    facts.add_row("disclosure", scenario.disclosure)
    facts.add_row("sources", _sources(world))
    facts.add_row("service", scenario.service.distribution)
    facts.add_row("network", f"{len(world.topology.graph)} nodes")
    nodes = make_table(
        "nodes (speed and memory are each provider's secret)",
        *("node", "IPT", "RAM", "clusters", "mean latency"),
    )
    up = world.paths.up
    for number, config in enumerate(world.fogs):
        nearest = [
            name
            for name, ways in zip(world.clusters, up, strict=True)
            if min(range(len(world.nodes)), key=lambda node: ways[0][node]) == number
        ]
        mean = sum(way[number] for ways in up for way in ways) / len(up) / len(up[0])
        row = (config.name, f"{config.ipt:,.0f}", f"{config.ram:,.0f}", " ".join(nearest) or "–")
        nodes.add_row(*row, f"{mean:.1f}")
    cloud = world.cloud_provider
    nodes.add_row(cloud.name, f"{cloud.ipt:,.0f}", f"{cloud.ram:,.0f}", "–", "–")
    labels = world.topology.labels
    named = [labels_table(labels)] if labels else []
    applications = make_table("applications", "name", "instructions", "bytes up", "bytes down")
    for app in scenario.applications:
        sizes = (app.instructions, app.bytes_up, app.bytes_down)
        applications.add_row(app.name, *(f"{size:,.0f}" for size in sizes))
    return [facts, nodes, *named, applications, *_event_tables(world)]


def _event_tables(world: World) -> list[Table]:
    """Return the table of events, if there are any; nobody but the experimenter gets all."""
    if not world.scenario.events:
        return []
    table = Table("at", "what happens", "who is told", box=box.SIMPLE_HEAD, title_justify="left")
    table.title, table.title_style = "events", "bold"
    for text in event_texts(world.scenario.events):
        table.add_row(f"{text.at:,g}", text.what, text.told)
    return [table]


def labels_table(labels: Mapping[str, str]) -> Table:
    """Return the table of what the user's graph file calls the nodes."""
    table = Table(title="names in the graph file", box=box.SIMPLE_HEAD, title_justify="left")
    table.title_style = "bold"
    for column in ("node", "in the file"):
        table.add_column(column, overflow="fold")
    for name, label in labels.items():
        table.add_row(name, safe_text(label, LONGEST_LABEL))
    return table


def _sources(world: World) -> str:
    sources = world.scenario.sources
    if sources.kind == "trace":
        assert world.sources.trace is not None
        return f"trace of {len(world.sources.trace.times):,} workloads"
    pairs = len(world.clusters) * len(world.categories)
    return f"{pairs} {sources.kind}, β = {sources.scale:g}"
