"""What the meter found, for people: tables for the terminal, and a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from testbed.figures import figure
from testbed.statistics import Estimate, number

GUESSED = {
    "prior": "guess: every node as fast as the mean",
    "topology": "guess: by public centrality",
}
LOOKS = {
    "count": ("counts", "#0072B2", "o", "-"),
    "count-active": ("counts, places to learn", "#0072B2", "s", "--"),
    "total": ("totals", "#D55E00", "o", "-"),
    "total-active": ("totals, places to learn", "#D55E00", "s", "--"),
}
"""Label, colour, marker and line of each attacker."""
GREYS = {"prior": ("#666666", ":"), "topology": ("#AAAAAA", "-.")}


def tables(result: dict[str, Any]) -> list[Table]:
    """Show the nodes of one permutation, then the means over all."""
    return [_nodes(result), _summary(result)]


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place == 0 else "right", no_wrap=place > 0)
    return table


def _nodes(result: dict[str, Any]) -> Table:
    table = _table(
        f"the first permutation after {result['decisions']:,} decisions: service times, "
        "mean over the applications",
        *("node", "workloads", "true", "inferred", "error (%)", "rank: true", "inferred"),
    )
    for row in result["nodes"]:
        table.add_row(
            row["node"],
            f"{row['workloads']:,}",
            *(number(row[f"{kind}_service"]) for kind in ("true", "inferred")),
            number(100 * row["error"]),
            *(str(row[f"{kind}_place"]) for kind in ("true", "inferred")),
        )
    return table


def _summary(result: dict[str, Any]) -> Table:
    times = "permutation" if result["permutations"] == 1 else "permutations"
    table = _table(
        f"{result['name']}, level {result['level']}, {_who(result)}: "
        f"mean over {result['permutations']} {times}, ± 95 %",
        *("after", "error of service times (%)", "rank correlation of speeds"),
    )
    for mark, found in zip(result["marks"], result["attacker"], strict=True):
        table.add_row(f"{mark:,} decisions", *_spelled(found))
    table.add_section()
    for guess, words in GUESSED.items():
        table.add_row(words, *_spelled(result[guess]))
    return table


def _who(result: dict[str, Any]) -> str:
    return "placing to learn" if result["active"] else f"placing by {result['policy']}"


def _spelled(found: dict[str, Any]) -> tuple[str, str]:
    error, rank = found["error"], found["rank"]
    width = None if error["ci95"] is None else 100 * error["ci95"]
    spread = "" if rank["ci95"] is None else f" ± {rank['ci95']:.2f}"
    return str(Estimate(100 * error["mean"], width)), f"{rank['mean']:.3f}{spread}"


def verdict(result: dict[str, Any]) -> str:
    """Say in a sentence or two how far the attacker got."""
    last = result["attacker"][-1]
    error, rank = last["error"]["mean"], last["rank"]["mean"]
    said = (
        f"From {result['level']}s and its own placements alone, an agent {_who(result)} knows "
        f"the nodes' service times to {number(100 * error)} % after {result['decisions']:,} "
        f"decisions (rank correlation of speeds {rank:.3f}); guessing without observation is off "
        f"by {number(100 * result['prior']['error']['mean'])} %."
    )
    if result["unexplained"]:
        said += (
            f" In {result['unexplained']} of {result['permutations']} permutations no constant "
            "service times explain all that it saw: service varies, the Cloud adds much, or the "
            "search failed."
        )
    return said


def siblings(folder: Path, result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return this result and the other attackers' on the same scenario that lie in the folder."""
    found = []
    for name in LOOKS:
        path = folder / f"{name}.json"
        try:
            other = json.loads(path.read_text(encoding="utf-8"))
            same = all(other[key] == result[key] for key in ("scenario", "as_given"))
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if same:
            found.append(other)
    return found


def plot(results: list[dict[str, Any]], path: Path) -> None:
    """Draw error and rank correlation over the number of decisions, one line per attacker."""
    with figure(path, 9, 3.8) as made:
        panels = made.subplots(1, 2)
        for axis, (key, factor) in zip(panels, (("error", 100.0), ("rank", 1.0)), strict=True):
            for result in results:
                _draw_attacker(axis, result, key, factor)
            for guess, (colour, line) in GREYS.items():
                value = factor * results[0][guess][key]["mean"]
                axis.axhline(value, color=colour, linestyle=line, label=GUESSED[guess])
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
        made.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)


def _draw_attacker(axis: Any, result: dict[str, Any], key: str, factor: float) -> None:
    name = f"{result['level']}-active" if result["active"] else result["level"]
    label, colour, marker, line = LOOKS[name]
    means = [factor * found[key]["mean"] for found in result["attacker"]]
    widths = [factor * (found[key]["ci95"] or 0.0) for found in result["attacker"]]
    if key == "error":  # a bar that reaches zero has no place on a logarithmic axis
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
