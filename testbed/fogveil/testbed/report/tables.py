"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

import fogveil.agent.policies as policies
from fogveil.core.safe_text import safe_text
from fogveil.testbed.records.summary import DELAYS, LOOPS
from fogveil.testbed.report.averages import PolicyAverage
from fogveil.testbed.report.statistics import Estimate, format_number
from fogveil.testbed.scenario.load import shipped_scenarios
from fogveil.testbed.scenario.world import World

LONGEST_LABEL = 60
"""Characters of a node's label in a graph file."""


def make_table(title: str, *columns: str) -> Table:
    """Return an empty table: the first column is text, the others are numbers."""
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place == 0 else "right", no_wrap=place > 0)
    return table


def run_tables(result: dict[str, Any]) -> list[Table]:
    """Return the tables of one run: delays and loops, then the nodes."""
    summary = result["summary"]
    title = f"{result['name']} under {result['policy']}, level {result['level']}"
    delays = make_table(f"{title}, seed {result['seed']}", "mean delay", "time units")
    for name in (*DELAYS, *LOOPS):
        delays.add_row(name.replace("_", " "), _or_dash(summary[name]))
    load = make_table("", "node", "workloads", "utilisation")
    placed = np.sum(summary["placed"], axis=(0, 1)).tolist()
    jobs = dict(zip(result["nodes"], placed, strict=True))
    for node, share in summary["utilisation"].items():
        load.add_row(node, f"{jobs[node]:,}" if node in jobs else "aggregates", f"{share:.1%}")
    return [delays, load]


def _or_dash(value: float | None) -> str:
    return "–" if value is None else format_number(value)


def compare_tables(averages: Sequence[PolicyAverage], reference: str) -> list[Table]:
    """Return the tables of a comparison, one per horizon and rate, the best policy first."""
    tables = []
    for horizon, rate in dict.fromkeys((average.horizon, average.rate) for average in averages):
        sources = "the scenario's own sources" if rate is None else f"β = {rate:g}"
        columns = ["policy", "level", "fog loop", f"× {reference}", "cloud loop", "unserved"]
        table = make_table(f"horizon {horizon:,.0f}, {sources}", *columns)
        chosen = [a for a in averages if (a.horizon, a.rate) == (horizon, rate)]
        for average in sorted(chosen, key=lambda average: average.measures["fog_loop"].mean):
            others = [average.measures.get(name) for name in ("cloud_loop", "unserved")]
            table.add_row(
                average.policy,
                average.level,
                str(average.measures["fog_loop"]),
                format_ratio(average.ratio),
                *("–" if value is None else str(value) for value in others),
            )
        tables.append(table)
    return tables


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
    return [facts, nodes, *named, applications]


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
