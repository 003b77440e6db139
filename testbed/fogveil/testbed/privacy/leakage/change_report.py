"""Results of the leakage meter after a change of speed, as a table and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from fogveil.testbed.privacy.leakage.after_change import KEPT, WITHIN
from fogveil.testbed.report.figures import figure
from fogveil.testbed.report.statistics import format_number
from fogveil.testbed.report.tables import make_table

LOOKS = (
    ("#009E73", "-"),
    ("#0072B2", "--"),
    ("#CC79A7", "-."),
    ("#D55E00", ":"),
    ("#666666", "-"),
)
"""Colour and dashes of the attackers, in order."""
WHAT = {"service": f"service time within {WITHIN:.0%}", "rank": "rank correlation as before"}
SHOWN = (25, 50, 100, 200, 400, 800, 1600, 3200)


def attacker_name(result: dict[str, Any]) -> str:
    """Return an attacker in words: what it sees, and how it places."""
    policy = "probing" if result["active"] else str(result["policy"])
    return f"{result['level']}s, {policy}"


def known_cells(result: dict[str, Any], what: str) -> tuple[str, str]:
    """Return after how many decisions something was known, and after how many for the node.

    The median over those permutations in which it was, and how many they are.
    """
    found = [each for each in result["known"][what] if each["decisions"] is not None]
    if not found:
        return "never", "–"
    share = "" if len(found) == len(result["known"][what]) else f" ({len(found)} of "
    share += f"{len(result['known'][what])})" if share else ""
    medians = [median(each[key] for each in found) for key in ("decisions", "for_node")]
    return f"{format_number(medians[0])}{share}", format_number(medians[1])


def change_tables(result: dict[str, Any]) -> list[Table]:
    """Return a table of when the attacker knew, and one of its course."""
    event = result["event"]
    known = make_table(
        f"{result['name']}, {attacker_name(result)}: {event['node']} changes at {event['at']:,g}",
        *("known after the change", "decisions", "of them for the node"),
    )
    for what, words in WHAT.items():
        known.add_row(words, *known_cells(result, what))
    course = make_table(
        f"medians over {result['permutations']} permutations",
        *("decisions since", "error of its service time (%)", "rank correlation"),
    )
    for since in (0, *(each for each in SHOWN if each < result["decisions"])):
        place = since - result["first"]
        error, rank = 100 * result["error"][place], result["rank"][place]
        course.add_row(f"{since:,}", format_number(error), f"{rank:.3f}")
    course.caption, course.caption_justify = f"known: it stays so for {KEPT} decisions", "left"
    return [known, course]


def plot_courses(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw error and rank correlation over the decisions before and since the change."""
    with figure(path, 9, 3.8) as canvas:
        panels = canvas.subplots(1, 2)
        for axis, (key, factor) in zip(panels, (("error", 100.0), ("rank", 1.0)), strict=True):
            for result, (colour, dashes) in zip(results, LOOKS, strict=False):
                decisions = range(result["first"], result["first"] + len(result[key]))
                values = [max(factor * value, 0.01) for value in result[key]]
                label = attacker_name(result)
                axis.plot(decisions, values, color=colour, linestyle=dashes, label=label)
            axis.axvline(0, color="#D55E00", linestyle="--", linewidth=0.9)
            axis.set_xlabel("decisions since the secret change")
        panels[0].axhline(100 * WITHIN, color="#666666", linestyle=":", linewidth=1.0)
        panels[0].set_yscale("log")
        panels[0].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panels[0].set_ylabel("error of the node's service time (%)")
        panels[1].set_ylabel("rank correlation of all speeds")
        handles, labels = panels[0].get_legend_handles_labels()
        canvas.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
