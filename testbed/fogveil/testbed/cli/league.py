"""`fogveil league`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import fogveil.agent.policies as policies
from fogveil.core.errors import InputError
from fogveil.testbed.cli.options import (
    AsJson,
    WorkersOption,
    err,
    out,
    print_line,
    progress_bar,
    say,
)
from fogveil.testbed.experiments import league as definition
from fogveil.testbed.experiments.comparison import RunWork
from fogveil.testbed.experiments.league_page import (
    commit_of_checkout,
    read_published,
    write_docs,
)
from fogveil.testbed.experiments.league_runs import ExpectedTime, LeagueRuns, Task
from fogveil.testbed.experiments.planned_work import describe_work
from fogveil.testbed.records.output import write_json
from fogveil.testbed.records.provenance import provenance
from fogveil.testbed.report import league_tables
from fogveil.testbed.report.league_standings import Standing, Standings
from fogveil.testbed.report.tables import print_table
from fogveil.testbed.workers.choice import Workers, execute, parse_workers

FEW = 3
"""Policies whose results on every scenario are printed."""
REPORT_SECONDS = 60.0
"""Between two lines about the remaining time, where no terminal shows a progress bar."""


def league(
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="A name from `fogveil policies`, a trained agent's file.npz, or file.py:Class. "
            "Repeatable. [default: all that ship]"
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            envvar="FOGVEIL_DATA",
            metavar="DIR",
            help="Folder of real data; without it the scenarios that need it are left out.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Two seeds, for a first look; NOT comparable.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list the scenarios and the expected time.")
    ] = False,
    folder: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="For results, also to continue from.")
    ] = Path("runs/league"),
    workers: WorkersOption = None,
    as_json: AsJson = False,
    docs: Annotated[
        bool,
        typer.Option("--write-docs", help="In a checkout: write docs/league.md from the outcome."),
    ] = False,
) -> None:
    """Measure policies on a fixed set of scenarios and seeds: one score that people can compare.

    The score is the geometric mean, over the scenarios, of the mean Fog loop delay divided by that
    of the oracle setr, which is told everything. 1 is as good as the oracle; smaller is better.
    Runs that finished before are not repeated. docs/league.md has the scores of all that ships.
    """
    if quick and docs:
        raise InputError("--write-docs: a quick look is not comparable; leave --quick out")
    chosen_workers = parse_workers(workers)
    commit = commit_of_checkout() if docs else ""
    chosen = tuple(dict.fromkeys(policy or policies.POLICIES))
    runs = LeagueRuns(chosen, folder, data, quick)
    finished, outstanding = runs.prepare()
    expected = ExpectedTime(finished)
    time_left = describe_work(expected.of(outstanding), chosen_workers.expected)
    _announce(runs, finished, outstanding, time_left)
    if dry_run:
        return
    _execute(finished, outstanding, expected, chosen_workers)
    standings = runs.evaluate()
    write_json(runs.out / "league.json", {**standings.plain(), "provenance": provenance()})
    if docs:
        print_line("written: " + ", ".join(map(str, write_docs(standings, commit))), err)
    shown = replace(standings, policies=[*standings.policies, *_published(standings)])
    if as_json:
        print(json.dumps(shown.plain()))  # noqa: T201 (the last line, for scripts)
        return
    _print(shown, [standing.policy for standing in standings.policies][: len(chosen)])
    print_line(f"written: {runs.out / 'league.json'}")


def _announce(
    runs: LeagueRuns,
    finished: list[Task],
    outstanding: list[Task],
    time_left: str,
) -> None:
    name = f"league {definition.VERSION} ({definition.digest()})"
    entries, left_out = runs.available
    lines = [
        f"{name}: {len(entries)} scenarios × {len(runs.seeds)} seeds: "
        + ", ".join(entry.name for entry in entries)
    ]
    lines += [
        f"left out: {entry.name} needs {entry.needed}, which is not part of fogveil "
        "(--data DIR or FOGVEIL_DATA)"
        for entry in left_out
    ]
    lines += [
        f"{policy}: left out of {', '.join(misfit.scenarios)}: {misfit.reason}"
        for policy, misfit in runs.misfits.items()
    ]
    lines.append(
        f"{len(finished) + len(outstanding)} runs, {len(finished)} of them done before, "
        f"{time_left} to go; results in {runs.out}"
    )
    for line in lines:
        print_line(line, err)


def _execute(
    finished: list[Task], outstanding: list[Task], expected: ExpectedTime, workers: Workers
) -> None:
    total, done = len(finished) + len(outstanding), len(finished)
    work = left = expected.of(outstanding)
    begun = reported = time.monotonic()
    try:
        with progress_bar("{task.fields[runs]} runs", lines=False) as progress:
            bar = progress.add_task("league", total=work, runs=f"{done}/{total}")
            for piece in execute([RunWork(*task) for task in outstanding], workers, say):
                done += 1
                left -= expected.of([(piece.comparison, piece.run)])
                progress.update(bar, completed=work - left, runs=f"{done}/{total}")
                now = time.monotonic()
                if not err.is_terminal and now - reported > REPORT_SECONDS:
                    reported = now
                    remaining = (now - begun) * left / max(work - left, 1e-9) / 60
                    err.print(f"{done} of {total} runs, about {remaining:.0f} minutes left")
    except KeyboardInterrupt:
        err.print(f"stopped with {done} of {total} runs done; the same command continues")
        raise


def _published(standings: Standings) -> list[Standing]:
    """Return the published standings of policies that were not run now."""
    if standings.quick:
        return []
    present = {standing.policy for standing in standings.policies}
    others = [standing for standing in read_published() if standing.policy not in present]
    return [
        s._replace(scores={k: v for k, v in s.scores.items() if k in standings.sets})
        for s in others
    ]


def _print(standings: Standings, chosen: Iterable[str]) -> None:
    chosen = list(chosen)
    if len(chosen) <= FEW:
        for standing in standings.policies:
            if standing.policy in chosen and standing.scenarios:
                print_table(league_tables.scenario_table(standings, standing), out)
    print_table(league_tables.standings_table(standings), out)
    for label, sentence in standings.misfits.items():
        print_line(f"{label} {sentence}")
    if standings.left_out:
        print_line(
            f"left out for want of real data: {', '.join(standings.left_out)}; the score is over "
            "the scenarios that ship, as everybody's"
        )
