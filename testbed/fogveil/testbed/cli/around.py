"""`--around-events` of `fogveil compare`: an option that may have a value, and what it prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pyarrow import csv
from rich.console import Console
from typer.core import TyperCommand

from fogveil.core.disclosure import Level
from fogveil.core.errors import InputError
from fogveil.testbed.cli.options import ORACLE
from fogveil.testbed.experiments.comparison import ComparedRun, Comparison
from fogveil.testbed.records.output import reporting_write_errors
from fogveil.testbed.report.around_events import (
    around_events,
    around_table,
    around_tables,
    stretches,
)
from fogveil.testbed.report.tables import print_table
from fogveil.testbed.scenario import Scenario

FLAG = "--around-events"
FIRST = 1000.0
"""Time units of the phase after an event, where none are given."""
AroundEvents = Annotated[
    float | None,
    typer.Option(
        FLAG,
        metavar="[N]",
        help="Also print the mean delay before each event of the scenario, in the first N "
        f"[{FIRST:g}] time units after it, and later; and the regret to {ORACLE}, which is told "
        "every change.",
    ),
]


class AroundCommand(TyperCommand):
    """A command in which `--around-events` alone means the default number of time units."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give the option its value, unless the next word is one."""
        words = list(args)
        for place, word in enumerate(args):
            if word == "--":
                break
            if word == FLAG and not _is_number(args[place + 1 : place + 2]):
                words[place] = f"{FLAG}={FIRST:g}"
        return super().parse_args(ctx, words)


def _is_number(words: list[str]) -> bool:
    try:
        return bool([float(word) for word in words])
    except ValueError:
        return False


def with_oracle(
    chosen: list[str], base: Scenario, first: float, overrides: dict[str, Any]
) -> list[str]:
    """Return the policies with the oracle among them; refuse what has no events."""
    if not base.events:
        raise InputError(f"{FLAG}: scenario {base.name} has no events; add [[events]] to its file")
    if not first > 0:
        raise InputError(f"{FLAG} {first:g}: expected a positive number of time units")
    if Level.parse(overrides.get("disclosure", "full")) < Level.FULL:
        return chosen  # the oracle is not told enough: no regret
    return [*chosen, *([] if ORACLE in chosen else [ORACLE])]


def print_around(
    comparison: Comparison, base: Scenario, first: float, folder: Path, console: Console
) -> list[Path]:
    """Print the tables of all rates and horizons and write each; return the files' paths."""
    paths = []
    for horizon in comparison.horizons:
        for rate in comparison.rates:
            seeds = range(base.seed, base.seed + comparison.seeds)
            runs = {
                comparison.label_of(policy): [
                    comparison.times_of(ComparedRun(policy, rate, horizon, seed)) for seed in seeds
                ]
                for policy in comparison.policies
            }
            rows = around_events(stretches(base.events, first, horizon), runs, runs.get(ORACLE))
            for table in around_tables(rows, first, ORACLE):
                print_table(table, console)
            several = len(comparison.horizons) > 1, len(comparison.rates) > 1
            name = "around-events" + f"-{horizon:g}" * several[0] + f"-{rate}" * several[1]
            path = folder / f"{name}.csv"
            with reporting_write_errors(path):
                csv.write_csv(around_table(rows), path)
            paths.append(path)
    return paths
