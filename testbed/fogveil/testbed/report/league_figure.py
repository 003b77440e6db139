"""The figure of the league: every policy's ratio to the oracle, by scenario and as one score."""

from __future__ import annotations

from pathlib import Path

from fogveil.testbed.report.figures import figure
from fogveil.testbed.report.league_standings import FITTING, SHIPPED, Standings
from fogveil.testbed.report.methods import style


def plot_league(standings: Standings, path: Path) -> None:
    """Draw a row per policy, grouped by level: a dot per scenario, and the score."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    rows = [standing for standing in standings.ordered if standing.scenarios][::-1]
    with figure(path, 7.5, 1.2 + 0.32 * len(rows)) as drawing:
        axes = drawing.subplots()
        for place, standing in enumerate(rows):
            look = style(standing.policy)
            ratios = [result.ratio.mean for result in standing.scenarios.values()]
            axes.plot(ratios, [place] * len(ratios), "o", color=look["color"], ms=3.5, alpha=0.45)
            score = standing.scores.get(SHIPPED) or standing.scores[FITTING]
            low, high = score.low or score.mean, score.high or score.mean
            ends = [[score.mean - low], [high - score.mean]]
            axes.errorbar(
                [score.mean], [place], xerr=ends, **look, ms=8, mec="black", mew=0.8, capsize=3
            )
            if place and rows[place - 1].level != standing.level:
                axes.axhline(place - 0.5, color="#888888", lw=0.8)
        axes.axvline(1, color="black", lw=0.8)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_yticks(range(len(rows)), [f"{row.policy} ({row.level})" for row in rows])
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_xlabel(
            f"Fog loop delay / that of the oracle {standings.oracle} (smaller is better)"
        )
        axes.set_title(f"league {standings.version}: {len(standings.seeds)} seeds per scenario")
