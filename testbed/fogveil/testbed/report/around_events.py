"""Delays around events: before each, during the first time units after it, and later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import pyarrow as pa
from rich.table import Table

from fogveil.testbed.records.job_times import JobTimes
from fogveil.testbed.report.statistics import Estimate, estimate
from fogveil.testbed.report.tables import make_table
from fogveil.testbed.scenario.event_text import event_text
from fogveil.testbed.scenario.events import AnyEvent

PHASES = ("before", "during", "later")


class Stretch(NamedTuple):
    """An event, or several of one instant, and the times before and after."""

    what: str
    begin: float
    """The event before it, or 0."""
    at: float
    settled: float
    """The end of the first time units after it."""
    end: float
    """The next event, or the horizon."""

    @property
    def phases(self) -> dict[str, tuple[float, float]]:
        """From when to when each phase lasts."""
        ends = (self.begin, self.at, self.settled, self.end)
        return dict(zip(PHASES, pairwise(ends), strict=True))


class Around(NamedTuple):
    """A policy around an event."""

    event: Stretch
    policy: str
    means: dict[str, Estimate | None]
    """The mean Fog loop by phase, of workloads emitted in it; None where there were none."""
    regret: Estimate | None
    """Mean excess over the oracle on the same workloads, from the event to the next one."""


def stretches(events: Sequence[AnyEvent], first: float, horizon: float) -> list[Stretch]:
    """Return the events by instant; `first` is how long the phase `during` lasts."""
    found = [
        (at, "; ".join(event_text(event).what for event in same))
        for at, same in groupby(events, lambda event: event.at)
    ]
    begins = [0.0, *(at for at, _ in found)]
    ends = [*(at for at, _ in found[1:]), horizon]
    return [
        Stretch(what, begin, at, min(at + first, end), end)
        for (at, what), begin, end in zip(found, begins, ends, strict=False)
    ]


def around_events(
    events: Sequence[Stretch],
    runs: Mapping[str, Sequence[JobTimes]],
    oracle: Sequence[JobTimes] | None,
) -> list[Around]:
    """Return each policy around each event; runs are by policy, in one order of seeds for all."""
    return [
        Around(
            event,
            policy,
            {phase: _mean(each, *ends) for phase, ends in event.phases.items()},
            _regret(each, oracle, event.at, event.end) if oracle else None,
        )
        for event in events
        for policy, each in runs.items()
    ]


def _mean(runs: Sequence[JobTimes], begin: float, end: float) -> Estimate | None:
    delays = [run.delay[(run.emitted >= begin) & (run.emitted < end)] for run in runs]
    means = [float(delay.mean()) for delay in delays if delay.size]
    return estimate(means) if means else None


def _regret(
    runs: Sequence[JobTimes], oracle: Sequence[JobTimes], begin: float, end: float
) -> Estimate | None:
    excesses = []
    for run, best in zip(runs, oracle, strict=True):
        chosen = (run.emitted >= begin) & (run.emitted < end)
        if chosen.any():  # both have the same workloads, in the same order
            excesses.append(float((run.delay - best.delay)[chosen].mean()))
    return estimate(excesses) if excesses else None


def around_tables(rows: Sequence[Around], first: float, oracle: str) -> list[Table]:
    """Return a table for each event; policies in the order in which they were given."""
    tables = []
    for event, group in groupby(rows, lambda row: row.event):
        table = make_table(
            f"at {event.at:,g}: {event.what}",
            *("policy", "before", f"first {first:,g}", "later", f"regret to {oracle}"),
        )
        for row in group:
            cells = [row.means[phase] for phase in PHASES]
            table.add_row(
                row.policy, *("–" if c is None else c.compact() for c in (*cells, row.regret))
            )
        tables.append(table)
    if tables:
        tables[-1].caption_justify = "left"
        tables[-1].caption = (
            "mean Fog loop of the workloads emitted before the event (from the one before it), in "
            f"the first {first:,g} time units after, and later (up to the next one); regret: mean "
            f"excess over {oracle}, which is told every change, from the event on; ± 95 %"
        )
    return tables


def around_table(rows: Sequence[Around]) -> pa.Table:
    """Return the same as one table, a row per event and policy."""
    content = []
    for row in rows:
        cells: dict[str, Any] = {
            "at": row.event.at,
            "event": row.event.what,
            "during_until": row.event.settled,
            "later_until": row.event.end,
            "policy": row.policy,
        }
        for name, value in (*row.means.items(), ("regret", row.regret)):
            cells[name] = value.mean if value else None
            cells[f"{name}_ci95"] = value.half_width if value else None
        content.append(cells)
    types = {"event": pa.string(), "policy": pa.string()}
    names: tuple[str, ...] = ("at", "event", "during_until", "later_until", "policy")
    names += tuple(f"{name}{end}" for name in (*PHASES, "regret") for end in ("", "_ci95"))
    schema = pa.schema([(name, types.get(name, pa.float64())) for name in names])
    return pa.Table.from_pylist(content, schema)
