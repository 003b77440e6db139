"""The league: its definition is fixed, scores are right, and nothing incomparable is mixed."""

from __future__ import annotations

import json
from math import exp, log, sqrt
from pathlib import Path

import pytest
from scipy import stats
from support import DATA, run_outstanding

from fogveil.core.errors import InputError
from fogveil.testbed.experiments import league, league_page
from fogveil.testbed.experiments.league import Entry, available, digest
from fogveil.testbed.experiments.league_runs import (
    SHIPPED_SECONDS,
    ExpectedTime,
    LeagueRuns,
)
from fogveil.testbed.report.league_standings import (
    ALL,
    FITTING,
    SHIPPED,
    Standings,
    published_standings,
    standing_of,
)
from fogveil.testbed.report.league_tables import scenario_table, standings_table
from fogveil.testbed.report.statistics import Score, geometric_mean_ratio, paired_ratio
from fogveil.testbed.scenario.world import build_world

OWN = '''
from fogveil.agent.policy import Level, Policy

class First(Policy):
    def place(self, seen):
        return 0

class ThreeNodes(First):
    """Runs on three nodes only."""
    def __init__(self, view):
        if len(view.nodes) != 3:
            raise ValueError("I want three nodes")
        super().__init__(view)

class Nowhere(First):
    def __init__(self, view):
        raise ValueError("never")
'''


# --- the definition ------------------------------------------------------------------------------


def test_the_definition_of_league_3_is_fixed():
    """If this fails, the set has changed: raise league.VERSION, and pin the new digest here."""
    assert (league.VERSION, digest()) == (3, "9d708be1a703f2e1")


def test_the_set_is_what_its_page_says():
    names = [entry.name for entry in league.ENTRIES]
    assert len(set(names)) == len(names) == 21
    assert set(names) - set(league.SHIPPED) == {"geant", "azure"}
    rates = {e.load().sources.scale for e in league.ENTRIES if e.name.startswith("stress-")}
    assert rates == {200.0, 150.0, 100.0}
    services = {e.load().service.distribution for e in league.ENTRIES if not e.files}
    assert services == {"deterministic", "exponential", "erlang", "pareto"}


def test_a_change_of_a_scenario_a_seed_or_a_file_changes_the_digest(monkeypatch):
    changed = {digest()}
    for name, value in (
        ("ENTRIES", league.ENTRIES[:-1]),
        (
            "ENTRIES",
            (*league.ENTRIES[:-3], Entry("park", "park", {"cloud.ipt": 11}), *league.ENTRIES[-2:]),
        ),
        ("SEEDS", range(1001, 1007)),
        ("SEEDS", range(1002, 1007)),
        ("VERSION", 99),
        ("ORACLE", "lwl"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(league, name, value)
            digest.cache_clear()
            changed.add(digest())
    with monkeypatch.context() as patch:
        other = league.GEANT._replace(sha256="0" * 64)
        entry = Entry("geant", "geant", files={"topology.file": other})
        patch.setattr(league, "ENTRIES", (*league.ENTRIES[:-2], entry, league.ENTRIES[-1]))
        digest.cache_clear()
        changed.add(digest())
    digest.cache_clear()
    assert len(changed) == 8


def test_a_scenario_of_the_working_directory_is_not_meant(tmp_path, monkeypatch):
    (tmp_path / "paper").write_text("name = 'mine'\n")
    monkeypatch.chdir(tmp_path)
    assert league.ENTRIES[0].load().name == "paper"


def test_park_is_parks_load_balancer():
    world = build_world(next(e for e in league.ENTRIES if e.name == "park").load())
    speeds = [fog.ipt for fog in world.fogs]
    assert speeds == pytest.approx([0.15 + 0.1 * place for place in range(10)])
    (work,) = world.fogs[0].instructions
    assert work / 3 == 100  # the least size: (1 - 1 / 1.5) of the mean
    assert work / world.scenario.sources.scale / sum(speeds) == pytest.approx(0.91, abs=0.002)


# --- real data -----------------------------------------------------------------------------------


def test_without_data_its_scenarios_are_left_out_by_name():
    entries, left_out = available(None)
    assert [entry.name for entry in left_out] == ["geant", "azure"]
    assert left_out[1].needed == "topologies/Abilene.gml and traces/azure-llm-code.csv"
    assert len(entries) == 19


def test_data_that_is_missing_or_other_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"expected topologies/Abilene.gml in this folder"):
        available(tmp_path)
    (tmp_path / "topologies").mkdir()
    (tmp_path / "topologies/Abilene.gml").write_bytes((DATA / "cities.gml").read_bytes())
    with pytest.raises(
        InputError, match=r"Abilene.gml: is not the file of league 3, whose SHA-256"
    ):
        available(tmp_path)


def test_with_the_real_data_everything_is_run(real_data):
    entries, left_out = available(real_data)
    assert (len(entries), left_out) == (21, [])
    world = build_world(entries[-1].load(real_data))
    assert world.sources.trace is not None
    assert len(world.nodes) == 8


# --- scores --------------------------------------------------------------------------------------


def test_a_score_is_the_geometric_mean_of_the_ratios_of_means():
    # Ratios of means: 6 / 3 = 2 and 40 / 5 = 8; their geometric mean is 4.
    score = geometric_mean_ratio([([4.0, 8.0], [2.0, 4.0]), ([40.0, 40.0], [5.0, 5.0])])
    assert score.mean == pytest.approx(4)
    assert (score.low, score.high) == pytest.approx((4, 4)), "every seed has the same ratios"


def test_the_interval_of_a_score_by_hand():
    # One scenario, ratio 30 / 10 = 3: residuals -3 and 3, relative to the mean of 30: ∓ 0.1.
    # Another one, constant. On average over the two ∓ 0.05.
    pairs = [([27.0, 33.0], [10.0, 10.0]), ([5.0, 5.0], [5.0, 5.0])]
    score = geometric_mean_ratio(pairs)
    width = stats.t.ppf(0.975, 1) * 0.05 * sqrt(2) / sqrt(2)
    assert score.mean == pytest.approx(sqrt(3))
    assert score.low == pytest.approx(exp(log(3) / 2 - width))
    assert score.high == pytest.approx(exp(log(3) / 2 + width))


def test_the_score_over_one_scenario_has_the_interval_of_its_ratio():
    values, references = [103.0, 96.0, 110.0, 99.0], [100.0, 97.0, 104.0, 99.0]
    ratio = paired_ratio(values, references)
    score = geometric_mean_ratio([(values, references)])
    assert score.mean == pytest.approx(ratio.mean)
    assert log(score.high / score.mean) == pytest.approx(ratio.half_width / ratio.mean)


def test_errors_of_one_seed_that_cancel_over_scenarios_leave_no_interval():
    score = geometric_mean_ratio([([9.0, 11.0], [10.0, 10.0]), ([11.0, 9.0], [10.0, 10.0])])
    assert (score.low, score.high) == pytest.approx((1, 1))


def test_a_single_seed_has_no_interval():
    assert geometric_mean_ratio([([3.0], [1.0])]) == Score(pytest.approx(3), None, None)
    assert str(Score(1.25, None, None)) == "1.250"
    assert str(Score(1.25, 1.2, 1.3)) == "1.250 (1.200–1.300)"


def runs_of(level: str, *delays: float) -> list[dict]:
    names = ("latency", "waiting", "service", "response", "total_response", "cloud_loop")
    others = {**dict.fromkeys(names, 1.0), "unserved": 2}
    return [{"level": level, "summary": {**others, "fog_loop": delay}} for delay in delays]


SETS = {SHIPPED: ("a", "b"), ALL: ("a", "b", "real")}
ORACLE_RUNS = {name: runs_of("full", 10.0, 10.0) for name in SETS[ALL]}


def standing(label: str, level: str, **delays: float):
    runs = {name: runs_of(level, delay, delay) for name, delay in delays.items()}
    return standing_of(label, runs, ORACLE_RUNS, SETS)


def make_standings(*policies, **options) -> Standings:
    fields = {"version": 1, "digest": "d", "seeds": (1, 2), "quick": False, "oracle": "setr"}
    fields |= {"sets": SETS, "left_out": {}, "misfits": {}}
    return Standings(**{**fields, **options}, policies=policies)


def test_a_standing_has_a_score_per_complete_set():
    complete = standing("x", "count", a=20.0, b=80.0, real=40.0)
    assert {name: score.mean for name, score in complete.scores.items()} == pytest.approx(
        {SHIPPED: 4, ALL: 4}
    )
    assert complete.worst[0] == "b"
    assert complete.scenarios["b"].ratio.mean == 8
    assert complete.scenarios["b"].unserved.mean == 2
    without_data = standing("x", "count", a=20.0, b=80.0)
    assert without_data.scores.keys() == {SHIPPED}
    partial = standing("x", "count", a=20.0)
    assert partial.scores.keys() == {FITTING}
    assert partial.scores[FITTING].mean == pytest.approx(2)


def test_places_are_within_a_level_and_only_for_comparable_scores():
    good, bad = (standing(n, "count", a=d, b=d) for n, d in (("good", 11.0), ("bad", 30.0)))
    partial, other = standing("partial", "count", a=5.0), standing("other", "none", a=99.0, b=9.0)
    standings = make_standings(bad, partial, good, other)
    assert [s.policy for s in standings.ordered] == ["other", "good", "bad", "partial"]
    assert [standings.place(s) for s in standings.ordered] == ["1 of 1", "1 of 2", "2 of 2", "–"]


def test_tables_say_over_what_a_score_is():
    standings = make_standings(
        standing("x", "count", a=20.0, b=80.0), standing("p", "count", a=5.0)
    )
    table = standings_table(standings)
    cells = {column.header: list(column.cells) for column in table.columns}
    assert cells["score over 2"] == [
        "4.000 (4.000–4.000)",
        "0.500 (0.500–0.500) over 1",
    ]
    assert cells["over 3, real data"] == ["–", "–"]
    assert "NOT comparable" not in table.title
    assert (
        "NOT comparable" in standings_table(make_standings(*standings.policies, quick=True)).title
    )
    rows = scenario_table(standings, standings.policies[1])
    assert list(rows.columns[1].cells) == ["5", "–", "–"]


def test_published_standings_of_another_league_are_not_shown(tmp_path, monkeypatch):
    content = make_standings(standing("x", "count", a=20.0, b=80.0)).plain()
    again = published_standings(json.loads(json.dumps(content)))
    assert again[0].scores == {SHIPPED: Score(*(pytest.approx(4),) * 3)}
    path = tmp_path / "league.json"
    monkeypatch.setattr(league_page, "PUBLISHED", path)
    assert league_page.read_published() == []
    for version, name, shown in ((3, digest(), 1), (3, "other", 0), (2, digest(), 0)):
        path.write_text(json.dumps({**content, "league": version, "digest": name}))
        assert len(league_page.read_published()) == shown


def test_what_is_published_is_of_this_league():
    published = league_page.read_published()
    assert {"setr", "jsq", "veil", "random"} <= {standing.policy for standing in published}
    page = (Path(__file__).parents[2] / "docs/league.md").read_text(encoding="utf-8")
    assert f"digest `{digest()}`" in page
    for row in published:
        assert row.scores
        assert all(str(score) in page for score in row.scores.values())


# --- runs ----------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    """A league of two short scenarios: tiny with its three nodes, and another one with ten."""
    entries = (
        Entry("tiny", "tiny", {"horizon": 400.0}),
        Entry("stress", "stress", {"horizon": 300.0}),
    )
    monkeypatch.setattr(league, "ENTRIES", entries)
    monkeypatch.setattr(league, "SHIPPED", ("tiny", "stress"))
    monkeypatch.setattr(league, "SEEDS", range(1001, 1004))
    digest.cache_clear()
    yield
    digest.cache_clear()


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    return path


def complete(runs: LeagueRuns) -> int:
    """Execute what is outstanding; return how many runs were done before."""
    done, to_do = runs.prepare()
    run_outstanding(to_do)
    return len(done)


def test_the_league_is_run_resumed_and_scored_against_the_oracle(small, tmp_path):
    runs = LeagueRuns(("jsq",), tmp_path)
    done, to_do = runs.prepare()
    assert (len(done), len(to_do)) == (0, 12)
    assert {run.seed for _, run in to_do} == {1001, 1002, 1003}
    run_outstanding(to_do[:5])
    assert complete(runs) == 5
    assert complete(LeagueRuns(("jsq", "random"), tmp_path)) == 12, (
        "another policy adds its own runs"
    )
    jsq, oracle = runs.evaluate().policies
    assert (jsq.policy, oracle.policy) == ("jsq", "setr")
    assert oracle.scores[SHIPPED] == Score(*(pytest.approx(1),) * 3)
    ratios = [result.ratio.mean for result in jsq.scenarios.values()]
    assert jsq.scores[SHIPPED].mean == pytest.approx(sqrt(ratios[0] * ratios[1]))
    assert jsq.scores[SHIPPED].mean > 1.05


def test_results_of_another_version_are_not_found(small, tmp_path, monkeypatch):
    assert complete(LeagueRuns(("jsq",), tmp_path)) == 0
    monkeypatch.setattr(league, "VERSION", 99)
    digest.cache_clear()
    assert complete(LeagueRuns(("jsq",), tmp_path)) == 0


def test_an_own_policy_gets_a_score(small, own, tmp_path):
    runs = LeagueRuns((f"{own}:First",), tmp_path)
    complete(runs)
    first, _ = runs.evaluate().policies
    assert (first.policy, first.level) == ("First", "none")
    assert first.scores[SHIPPED].mean > 2


def test_a_policy_runs_where_it_fits_and_the_rest_is_said(small, own, tmp_path):
    spec = f"{own}:ThreeNodes"
    runs = LeagueRuns((spec,), tmp_path)
    assert runs.misfits[spec].scenarios == ("stress",)
    assert "I want three nodes" in runs.misfits[spec].reason
    complete(runs)
    standings = runs.evaluate()
    partial = standings.policies[0]
    assert (partial.policy, list(partial.scenarios)) == ("ThreeNodes", ["tiny"])
    assert partial.scores.keys() == {FITTING}
    assert "runs on 1 of 2 scenarios" in standings.misfits["ThreeNodes"]


def test_a_policy_that_fits_nowhere_is_refused(small, own, tmp_path):
    with pytest.raises(InputError, match=r"Nowhere: runs on no scenario of the league: .*never"):
        LeagueRuns((f"{own}:Nowhere",), tmp_path).prepare()
    with pytest.raises(InputError, match="no policy is called 'best'"):
        LeagueRuns(("best",), tmp_path).prepare()


def test_the_expected_time_is_that_of_the_runs_that_are_done(small, tmp_path):
    runs = LeagueRuns(("jsq",), tmp_path)
    _, to_do = runs.prepare()
    assert ExpectedTime([]).of(to_do) == pytest.approx(12 * SHIPPED_SECONDS)
    mine = [task for task in to_do if task[1].policy == "jsq"]
    run_outstanding(mine[:1])
    path = mine[0][0].path_of(mine[0][1])
    path.write_text(json.dumps({**json.loads(path.read_text()), "cpu_seconds": 50.0}))
    done, to_do = runs.prepare()
    assert ExpectedTime(done).of(mine[1:]) == pytest.approx(5 * 50.0)


def test_quick_runs_are_the_first_of_the_complete_ones_and_marked(tmp_path):
    quick, whole = (LeagueRuns(("jsq",), tmp_path, quick=quick) for quick in (True, False))
    for name, comparison in quick.comparisons.items():
        paths = {whole.comparisons[name].path_of(run) for run in whole.comparisons[name].runs()}
        assert {comparison.path_of(run) for run in comparison.runs()} < paths


def test_the_page_holds_every_number(small, tmp_path):
    runs = LeagueRuns(("jsq",), tmp_path)
    complete(runs)
    standings = runs.evaluate()
    page = league_page.page(standings, "abc1234")
    assert "commit\n`abc1234`" in page
    for row in standings.policies:
        assert str(row.scores[SHIPPED]) in page
        assert all(str(result.fog_loop) in page for result in row.scenarios.values())
