"""Results of the leakage meter as tables and as a figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.table import Table

from fogveil.testbed.report.figures import figure
from fogveil.testbed.report.statistics import Estimate, format_number
from fogveil.testbed.report.tables import make_table

GUESSES = {"prior": "guess: one speed", "topology": "guess: topology"}
"""Without observation: every node has one speed, the best one, or speeds follow centrality."""
STYLES = {
    "count": ("counts", "#0072B2", "o", "-"),
    "count-active": ("counts, probing", "#0072B2", "s", "--"),
    "total": ("totals", "#D55E00", "o", "-"),
    "total-active": ("totals, probing", "#D55E00", "s", "--"),
}
"""Label, colour, marker and line of each attacker."""
GUESS_STYLES = {"prior": ("#666666", ":"), "topology": ("#AAAAAA", "-.")}


def tables(result: dict[str, Any]) -> list[Table]:
    """Return a table of the first permutation's nodes, and one of the means over all."""
    return [_nodes_table(result), _summary_table(result)]


def _nodes_table(result: dict[str, Any]) -> Table:
    table = make_table(
        f"permutation 1 after {result['decisions']:,} decisions: mean service times",
        *("node", "workloads", "true", "inferred", "error (%)", "rank: true", "inferred"),
    )
    for row in result["nodes"]:
        table.add_row(
            row["node"],
            f"{row['workloads']:,}",
            *(format_number(row[f"{kind}_service"]) for kind in ("true", "inferred")),
            format_number(100 * row["error"]),
            *(str(row[f"{kind}_place"]) for kind in ("true", "inferred")),
        )
    return table


def _summary_table(result: dict[str, Any]) -> Table:
    policy = "probing" if result["active"] else f"policy {result['policy']}"
    unit = "permutation" if result["permutations"] == 1 else "permutations"
    table = make_table(
        f"{result['name']}, level {result['level']}, {policy}: "
        f"{result['permutations']} {unit}, ± 95 %",
        *("after", "error of service times (%)", "rank correlation of speeds"),
    )
    for mark, means in zip(result["marks"], result["attacker"], strict=True):
        table.add_row(f"{mark:,} decisions", *_format(means))
    table.add_section()
    for guess, label in GUESSES.items():
        table.add_row(label, *_format(result[guess]))
    return table


def _format(means: dict[str, Any]) -> tuple[str, str]:
    error, rank = means["error"], means["rank"]
    width = None if error["ci95"] is None else 100 * error["ci95"]
    spread = "" if rank["ci95"] is None else f" ± {rank['ci95']:.2f}"
    return str(Estimate(100 * error["mean"], width)), f"{rank['mean']:.3f}{spread}"


def verdict(result: dict[str, Any]) -> str:
    """Return a sentence or two on how far the attacker got."""
    last = result["attacker"][-1]
    error, rank = last["error"]["mean"], last["rank"]["mean"]
    agent = "a probing agent" if result["active"] else f"an agent with policy {result['policy']}"
    text = (
        f"After {result['decisions']:,} decisions, {agent} infers from {result['level']}s and its "
        f"own placements the nodes' service times with a mean error of "
        f"{format_number(100 * error)} % and "
        f"a rank correlation of speeds of {rank:.3f}; a guess without observation has an error of "
        f"{format_number(100 * result['prior']['error']['mean'])} %."
    )
    if result["unexplained"]:
        text += (
            f" In {result['unexplained']} of {result['permutations']} permutations no constant "
            "service times explain all observations: service varies, the Cloud contributes much, "
            "or the search failed."
        )
    return text


def comparable_results(folder: Path, result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all attackers' results in the folder that are on the same scenario, this one too."""
    results = []
    for name in STYLES:
        path = folder / f"{name}.json"
        try:
            other = json.loads(path.read_text(encoding="utf-8"))
            same = all(other[key] == result[key] for key in ("scenario", "as_given"))
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if same:
            results.append(other)
    return results


def plot(results: list[dict[str, Any]], path: Path) -> None:
    """Draw error and rank correlation over the number of decisions, one line per attacker."""
    with figure(path, 9, 3.8) as canvas:
        panels = canvas.subplots(1, 2)
        for axis, (key, factor) in zip(panels, (("error", 100.0), ("rank", 1.0)), strict=True):
            for result in results:
                _draw_attacker(axis, result, key, factor)
            for guess, (colour, line) in GUESS_STYLES.items():
                value = factor * results[0][guess][key]["mean"]
                axis.axhline(value, color=colour, linestyle=line, label=GUESSES[guess])
            axis.set_xscale("log")
            axis.set_xlabel("decisions")
        marks = sorted({mark for result in results for mark in result["marks"]})
        for axis in panels:
            axis.set_xticks(marks, [f"{mark:,}" for mark in marks], rotation=45)
            axis.minorticks_off()
        panels[0].set_yscale("log")
        panels[0].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panels[0].set_ylabel("error of inferred service times (%)")
        panels[1].set_ylabel("rank correlation of speeds")
        handles, labels = panels[0].get_legend_handles_labels()
        canvas.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)


def _draw_attacker(axis: Any, result: dict[str, Any], key: str, factor: float) -> None:
    name = f"{result['level']}-active" if result["active"] else result["level"]
    label, colour, marker, line = STYLES[name]
    means = [factor * each[key]["mean"] for each in result["attacker"]]
    widths = [factor * (each[key]["ci95"] or 0.0) for each in result["attacker"]]
    if key == "error":  # on a logarithmic axis a bar must not reach zero
        widths = [min(width, 0.9 * mean) for width, mean in zip(widths, means, strict=True)]
    axis.errorbar(
        result["marks"],
        means,
        yerr=widths,
        color=colour,
        marker=marker,
        linestyle=line,
        capsize=2,
        linewidth=1.2,
        markersize=5,
        label=label,
    )
