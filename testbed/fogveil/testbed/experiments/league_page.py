"""The page docs/league.md, its figure, and the standings that the package carries."""

from __future__ import annotations

import json
from pathlib import Path

import fogveil.agent.policies as policies
from fogveil.core.errors import InputError
from fogveil.core.version import source_commit
from fogveil.testbed.experiments import league
from fogveil.testbed.records.output import reporting_write_errors
from fogveil.testbed.report.league_standings import (
    ALL,
    SHIPPED,
    Standing,
    Standings,
    published_standings,
)
from fogveil.testbed.report.league_tables import score_cell, set_title
from fogveil.testbed.report.markdown import markdown_table
from fogveil.testbed.report.statistics import format_number
from fogveil.testbed.report.tables import format_ratio

PAGE = Path("docs/league.md")
FIGURE = Path("docs/images/league")
PUBLISHED = Path(__file__).parent / "league.json"


def read_published() -> list[Standing]:
    """Return the published standings; those of another league are none of this one's."""
    if not PUBLISHED.exists():
        return []
    content = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    if (content["league"], content["digest"]) != (league.VERSION, league.digest()):
        return []
    return published_standings(content)


def commit_of_checkout() -> str:
    """Return the commit of the source tree; refuse to run elsewhere than in it."""
    commit = source_commit()
    if commit is None or not PAGE.parent.is_dir():
        raise InputError(
            f"--write-docs: it writes {PAGE} with the commit; run it in a checkout of fogveil"
        )
    return commit


def write_docs(standings: Standings, commit: str) -> list[Path]:
    """Write the page, its figure and the published standings, in a checkout; return their paths."""
    from fogveil.testbed.report.figures import figures_for_pages  # matplotlib takes a while to load
    from fogveil.testbed.report.league_figure import plot_league

    with figures_for_pages():
        plot_league(standings, FIGURE)
    compact = standings.plain()
    for row in compact["policies"]:
        del row["scenarios"], row["place"]
    with reporting_write_errors(PAGE):
        PUBLISHED.write_text(json.dumps(compact, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(page(standings, commit), encoding="utf-8")
    return [PAGE, FIGURE.with_suffix(".png"), PUBLISHED]


def page(standings: Standings, commit: str) -> str:
    """Return the page in Markdown."""
    seeds = standings.seeds
    parts = [
        HEAD.format(
            version=standings.version,
            digest=standings.digest,
            shipped=len(standings.sets[SHIPPED]),
            seeds=len(seeds),
            first=seeds[0],
            last=seeds[-1],
            commit=commit,
            oracle=standings.oracle,
        ),
        "## Standings\n",
        _standings(standings),
        _absent(standings),
        FIGURE_TEXT,
        "## How to enter\n\n" + ENTER,
        "## The scenarios\n\n" + SCENARIOS_TEXT,
        _scenarios(standings),
        DATA_TEXT,
        "## By scenario\n\n" + BY_SCENARIO,
        *_by_scenario(standings),
    ]
    return "\n".join(part for part in parts if part).rstrip() + "\n"


def _standings(standings: Standings) -> str:
    rows = [
        (
            standing.level,
            standing.policy,
            standings.place(standing),
            *(score_cell(standing, name) for name in standings.sets),
            _worst(standing),
        )
        for standing in standings.ordered
    ]
    heads = [set_title(standings, name) for name in standings.sets]
    return markdown_table(("level", "policy", "place at its level", *heads, "worst scenario"), rows)


def _worst(standing: Standing) -> str:
    name, result = standing.worst
    return f"{name}: {format_number(result.ratio.mean)} ×"


def _absent(standings: Standings) -> str:
    lines = [
        f"Left out: {name}, which needs {files}." for name, files in standings.left_out.items()
    ]
    lines += [f"{label} {sentence}." for label, sentence in standings.misfits.items()]
    missing = policies.POLICIES.keys() - {standing.policy for standing in standings.policies}
    if missing:
        lines.append(f"Not entered here: {', '.join(sorted(missing))}.")
    return "\n".join(lines) + "\n" if lines else ""


def _scenarios(standings: Standings) -> str:
    oracle = next(s for s in standings.policies if s.policy == standings.oracle)
    rows = []
    for entry in league.ENTRIES:
        changes = "; ".join(_words(key, value) for key, value in entry.overrides.items())
        first = entry.file.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        about = changes if entry.scenario != entry.name else first
        result = oracle.scenarios.get(entry.name)
        rows.append(
            (entry.name, f"`{entry.scenario}`", about, str(result.fog_loop) if result else "–")
        )
    return markdown_table(
        ("name", "scenario file", "what it is", f"{standings.oracle}, Fog loop"), rows
    )


def _words(key: str, value: object) -> str:
    if key == "sources.scale":
        return f"β = {value:g}"
    if isinstance(value, dict):
        return f"{key}: " + ", ".join(f"{name} {part}" for name, part in value.items())
    return f"{key} = {value}"


def _by_scenario(standings: Standings) -> list[str]:
    parts = []
    for name in standings.sets.get(ALL, standings.sets[SHIPPED]):
        here = [(s, s.scenarios[name]) for s in standings.policies if name in s.scenarios]
        here.sort(key=lambda item: item[1].fog_loop.mean)
        rows = [
            (s.policy, s.level, str(r.fog_loop), format_ratio(r.ratio), str(r.unserved))
            for s, r in here
        ]
        head = (name, "level", "Fog loop", f"× {standings.oracle}", "unserved")
        parts.append(markdown_table(head, rows))
    return parts


HEAD = """# The league

A fixed set of scenarios and seeds on which any policy can be measured, so that people's results
can be compared. This page is written by `fogveil league --write-docs`.

League {version}, digest `{digest}`; {seeds} seeds ({first} to {last}) per scenario; commit
`{commit}`.

The **score** is the geometric mean, over the {shipped} scenarios that ship, of the mean Fog loop
delay divided by that of the oracle `{oracle}`, which is told everything. 1 is as good as the
oracle, smaller is better; the oracle is greedy, so a policy that looks ahead can be below 1. All
jobs count, also those served after the horizon. Both policies of a ratio see the same workloads,
seed by seed. Intervals are of 95 %, over seeds; that of the score says nothing about scenarios
outside the set. A place is among the policies that are told as much: `none` nothing, `total` the
sum of all counts, `count` each node's count, `full` everything.
"""

FIGURE_TEXT = """![Every policy's ratio to the oracle](images/league.png)

*A dot is a scenario, the large mark the score with its interval.*
"""

ENTER = """```
fogveil league --dry-run                              # scenarios, expected time
fogveil league --policy my_policy.py:MyPolicy --quick # a first look, not comparable
fogveil league --policy my_policy.py:MyPolicy         # the score, among all that ship
fogveil league --policy runs/parl/agent.npz --data DIR
```

Write a policy as in [agents.md](agents.md). It is told what its level says and no more, and it
gets the providers' disclosure that it needs. It may learn within a run; what it learned before
must not come from these seeds. Report the version, the digest, the level and the score with its
interval: all are in `runs/league/…/league.json` and, with `--json`, on standard output. A trained
agent whose network fits only scenarios of one shape is entered where it fits, and gets no place.
An interrupted league is continued by the same command; a result is computed again only if the
policy's code, or the code that every run executes, has changed.
"""

SCENARIOS_TEXT = """The digest is over everything below: the scenarios with their changes, the
seeds, the real files and the oracle. Whatever changes it makes another version, and results of
two versions are never mixed.
"""

DATA_TEXT = """`geant` and `azure` need files that are not part of fogveil: topologies of the
Internet Topology Zoo (Knight et al., IEEE JSAC 2011) and a trace of the Azure public data set,
both CC BY 4.0. Put them into a folder as `topologies/Geant2012.graphml`, `topologies/Abilene.gml`
and `traces/azure-llm-code.csv`, and name it by `--data` or in `FOGVEIL_DATA`; files with other
contents are refused. Without them the two are left out. The score is over the scenarios that ship
in either case, so that everybody's can be compared; with the files a second one is over all. On
`azure` arrivals and demands are the trace's for every seed, so that its intervals are small.

`park` is the load balancer of Park (Mao et al., NeurIPS 2019) as a fog: ten servers of rates 0.15
to 1.05, Pareto sizes of shape 1.5, load 91 %. Its mean is over few very large jobs, so its
intervals are wide. In Park the agent is told each job's size and the work left everywhere; here
only level `full` is.
"""

BY_SCENARIO = """Mean delay of the Fog loop in simulated time units, its ratio to the oracle's,
and the workloads that were not served at the horizon.
"""
