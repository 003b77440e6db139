"""Tables for the terminal."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich import box
from rich.table import Table

import agent.policies as policies
from testbed.compare import Row
from testbed.statistics import Estimate, number
from testbed.summary import DELAYS, LOOPS
from testbed.world import World


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place == 0 else "right", no_wrap=place > 0)
    return table


def run_tables(result: dict[str, Any]) -> list[Table]:
    """Show one run: delays and loops, then the nodes."""
    summary = result["summary"]
    title = f"{result['name']} under {result['policy']}, level {result['level']}"
    delays = _table(f"{title}, seed {result['seed']}", "mean delay", "time units")
    for name in (*DELAYS, *LOOPS):
        delays.add_row(name.replace("_", " "), _or_dash(summary[name]))
    load = _table("", "node", "workloads", "utilisation")
    placed = np.sum(summary["placed"], axis=(0, 1)).tolist()
    jobs = dict(zip(result["nodes"], placed, strict=True))
    for node, share in summary["utilisation"].items():
        load.add_row(node, f"{jobs[node]:,}" if node in jobs else "aggregates", f"{share:.1%}")
    return [delays, load]


def _or_dash(value: float | None) -> str:
    return "–" if value is None else number(value)


def compare_tables(rows: list[Row], reference: str) -> list[Table]:
    """Show a comparison, one table per horizon and rate."""
    tables = []
    for horizon, rate in dict.fromkeys((row.horizon, row.rate) for row in rows):
        beta = "the scenario's own sources" if rate is None else f"β = {rate:g}"
        columns = ["policy", "level", "fog loop", f"× {reference}", "cloud loop"]
        table = _table(f"horizon {horizon:,.0f}, {beta}", *columns, "unserved")
        chosen = [row for row in rows if (row.horizon, row.rate) == (horizon, rate)]
        for row in sorted(chosen, key=lambda row: row.measures["fog_loop"].mean):
            measured = [row.measures.get(name) for name in ("cloud_loop", "unserved")]
            table.add_row(
                row.policy,
                row.level,
                str(row.measures["fog_loop"]),
                _ratio(row.ratio),
                *("–" if value is None else str(value) for value in measured),
            )
        tables.append(table)
    return tables


def _ratio(ratio: Estimate | None) -> str:
    if ratio is None:
        return "–"
    spread = "" if ratio.half_width is None else f" ± {ratio.half_width:.3f}"
    return f"{ratio.mean:.3f}{spread}"


def policy_table() -> Table:
    """List the policies by what they need to know."""
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("policy", "needs", "what it does"):
        table.add_column(column)
    found = [(name, policies.find(name).needs, entry) for name, entry in policies.POLICIES.items()]
    for name, needs, entry in sorted(found, key=lambda item: item[1]):
        table.add_row(name, needs.word, entry.summary)
    return table


def scenario_tables(world: World) -> list[Table]:
    """Summarise a scenario: the whole of it, secrets included, for the experimenter."""
    scenario = world.scenario
    facts = _table(f"scenario {scenario.name}", "what", "value")
    facts.add_row("horizon", f"{scenario.horizon:,.0f}")
    facts.add_row("seed", str(scenario.seed))
    facts.add_row("count", str(scenario.count))
    facts.add_row("disclosure", scenario.disclosure)
    facts.add_row("sources", _sources(world))
    facts.add_row("service", scenario.service.distribution)
    facts.add_row("network", f"{len(world.topology.graph)} nodes")
    nodes = _table(
        "nodes (speed and memory are each provider's secret)",
        *("node", "IPT", "RAM", "clusters", "mean latency"),
    )
    up = world.network.up
    for number_, config in enumerate(world.fogs):
        near = [
            name
            for name, ways in zip(world.clusters, up, strict=True)
            if min(range(len(world.nodes)), key=lambda node: ways[0][node]) == number_
        ]
        mean = sum(way[number_] for ways in up for way in ways) / len(up) / len(up[0])
        row = (config.name, f"{config.ipt:,.0f}", f"{config.ram:,.0f}", " ".join(near) or "–")
        nodes.add_row(*row, f"{mean:.1f}")
    cloud = world.cloud_provider
    nodes.add_row(cloud.name, f"{cloud.ipt:,.0f}", f"{cloud.ram:,.0f}", "–", "–")
    applications = _table("applications", "name", "instructions", "bytes up", "bytes down")
    for app in scenario.applications:
        sizes = (app.instructions, app.bytes_up, app.bytes_down)
        applications.add_row(app.name, *(f"{size:,.0f}" for size in sizes))
    return [facts, nodes, applications]


def _sources(world: World) -> str:
    sources = world.scenario.sources
    if sources.kind == "trace":
        assert world.sources.trace is not None
        return f"trace of {len(world.sources.trace.times):,} workloads"
    pairs = len(world.clusters) * len(world.categories)
    return f"{pairs} {sources.kind}, β = {sources.scale:g}"
