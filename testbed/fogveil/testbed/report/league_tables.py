"""The league's tables for the terminal."""

from __future__ import annotations

from rich.table import Table

from fogveil.testbed.report.league_standings import ALL, FITTING, SHIPPED, Standing, Standings
from fogveil.testbed.report.tables import format_ratio, make_table


def title_of(standings: Standings) -> str:
    """Return which league and which seeds, and whether the scores can be compared."""
    seeds = f"seeds {standings.seeds[0]} to {standings.seeds[-1]}"
    name = f"league {standings.version} ({standings.digest}), {seeds}"
    return f"{name}: a quick look, NOT comparable" if standings.quick else name


def set_title(standings: Standings, name: str) -> str:
    """Return the heading of the score over a set of scenarios."""
    count = len(standings.sets[name])
    return f"score over {count}" if name == SHIPPED else f"over {count}, real data"


def standings_table(standings: Standings) -> Table:
    """Return everybody's scores, by level of disclosure; it fits 80 columns."""
    heads = [set_title(standings, name) for name in standings.sets]
    table = make_table(title_of(standings), "policy", "level", "place", *heads)
    for standing in standings.ordered:
        scores = [score_cell(standing, name) for name in standings.sets]
        table.add_row(standing.policy, standing.level, standings.place(standing), *scores)
    return table


def score_cell(standing: Standing, name: str) -> str:
    """Return a score and its interval; one over fewer scenarios says so."""
    if name in standing.scores:
        return str(standing.scores[name])
    if name == SHIPPED and FITTING in standing.scores:
        return f"{standing.scores[FITTING]} over {len(standing.scenarios)}"
    return "–"


def scenario_table(standings: Standings, standing: Standing) -> Table:
    """Return what one policy reached on each scenario."""
    title = f"{standing.policy}, level {standing.level}"
    ratio = f"× {standings.oracle}"
    table = make_table(title, "scenario", "fog loop", ratio, "unserved")
    for name in standings.sets.get(ALL, standings.sets[SHIPPED]):
        result = standing.scenarios.get(name)
        cells = ("–", "–", "–")
        if result:
            cells = (str(result.fog_loop), format_ratio(result.ratio), str(result.unserved))
        table.add_row(name, *cells)
    return table
