"""The leakage meter: what an agent infers from what its level gives, and from nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from support import SCENARIOS, make_world
from typer.testing import CliRunner

import agent.policies as policies
from agent.inference.evidence import CountEvidence, Line, TotalEvidence
from agent.inference.inferring import infer
from agent.inference.transcript import Transcript, marks_of
from agent.policy import Level, Observation
from fogveil.errors import InputError
from provider_node.node import Node
from testbed.cli.app import app
from testbed.federated import split
from testbed.leakage.attackers import attacker, policy_at, watch, watch_testbed
from testbed.leakage.meter import (
    Plan,
    guess_prior,
    guess_topology,
    measure,
    permuted,
    rank_correlation,
    run_trial,
    score,
    true_service,
)
from testbed.leakage.placing import Prober
from testbed.scenario import load_scenario
from testbed.world import build_world

PAPER = SCENARIOS / "paper.toml"
KINDS = ["waiting", "in_system"]


def plan(level="count", decisions=200, policy="jsq", **options):
    given = {"permutations": 1, "as_given": False} | options
    overrides = {"sources.scale": given.pop("rate", 200.0), "count": given.pop("kind", "waiting")}
    overrides |= given.pop("overrides", {})
    scenario = load_scenario(PAPER, overrides)
    return Plan(scenario, Level.parse(level), decisions, policy, **given)


def attack(given, marks, number=0):
    """Score what the attacker infers by each mark of one permutation."""
    world = permuted(given, number)
    policy = attacker(given.policy, given.level, world.agent)
    transcript = watch(world, given.level, policy, given.decisions)
    found = infer(given.level, transcript, marks)
    return [score(found[mark].service, true_service(world)) for mark in marks]


def average(given, mark, permutations):
    """Return mean error and mean rank correlation over permutations."""
    scores = [attack(given, [mark], number)[0] for number in range(permutations)]
    return np.mean([one.error for one in scores]), np.mean([one.rank for one in scores])


# --- how far the attackers get ------------------------------------------------------------------


def test_counts_leak_as_much_as_was_reported():
    """Reported, with the job in service counted: Spearman 0.96 after 100 decisions, 1.5 to 4 %."""
    error, rank = average(plan(decisions=100, kind="in_system"), 100, 4)
    assert rank >= 0.96
    assert error < 0.04


def test_waiting_counts_leak_nearly_as_much():
    error, rank = average(plan(decisions=200), 200, 3)
    assert rank >= 0.96
    assert error < 0.04


def test_an_active_attacker_learns_faster_from_counts():
    active, passive = (
        average(plan(decisions=120, policy=policy), 120, 2) for policy in (None, "ci-setr")
    )
    assert active[0] < 0.6 * passive[0]
    assert active[0] < 0.04
    assert active[1] >= 0.96


def test_the_error_shrinks_with_the_number_of_decisions():
    scores = attack(plan(decisions=320), [40, 80, 320])
    errors = [found.error for found in scores]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.1 * errors[0]
    assert scores[-1].rank > scores[0].rank


def test_totals_leak_too():
    """Weak facts on purpose: how far a search gets is reported, not promised."""
    early, late = attack(plan("total", decisions=240, policy=None), [60, 240])
    assert late.error < 0.15 < early.error
    assert late.rank > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("rate", [200.0, 100.0])
@pytest.mark.parametrize("policy", [None, "random"])
def test_totals_leak_under_light_and_heavy_load(rate, policy):
    given = plan("total", decisions=400, policy=policy, rate=rate)
    scores = [attack(given, [400], number)[0] for number in range(3)]
    assert np.median([found.error for found in scores]) < 0.05
    assert np.median([found.rank for found in scores]) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", ["ci-setr", "jsq", None])
def test_counts_leak_whatever_the_policy(kind, policy):
    error, rank = average(plan(decisions=400, policy=policy, kind=kind), 400, 3)
    assert rank > 0.95
    assert error < 0.06


def test_service_that_varies_is_inferred_as_a_mean():
    """No constant service time explains the counts; the belief of a deciding agent remains."""
    varying = {"service.distribution": "exponential"}
    trial = run_trial(plan(decisions=400, overrides=varying, rate=100.0), 0)
    assert not trial.explained
    assert trial.attacker[400].rank > 0.6
    assert trial.attacker[400].error < 1.5 * trial.prior.error


# --- guesses without observation ----------------------------------------------------------------


def test_the_topology_tells_all_unpermuted_and_nothing_permuted():
    world = permuted(plan(as_given=True), 0)
    exact = score(guess_topology(world), true_service(world))
    assert exact.error == 0
    assert exact.rank == pytest.approx(1.0)
    worlds = [permuted(plan(), number) for number in range(12)]
    permuted_scores = [score(guess_topology(world), true_service(world)) for world in worlds]
    prior_scores = [score(guess_prior(world), true_service(world)) for world in worlds]
    assert abs(np.mean([found.rank for found in permuted_scores])) < 0.3
    assert np.mean([found.error for found in permuted_scores]) > prior_scores[0].error > 0.3
    assert [found.rank for found in prior_scores] == [0.0] * 12


def test_permutations_differ_and_keep_what_is_public():
    worlds = [permuted(plan(), number) for number in range(3)]
    speeds = [tuple(fog.ipt for fog in world.fogs) for world in worlds]
    assert len(set(speeds)) == 3
    assert len({tuple(sorted(dealt)) for dealt in speeds}) == 1
    public = [replace(world.agent, seed=0) for world in worlds]
    assert public[0] == public[1] == public[2]


def test_rank_correlation_agrees_with_scipy():
    from scipy.stats import spearmanr

    generator = np.random.default_rng(3)
    for _ in range(20):
        one, other = generator.integers(0, 6, size=(2, 10)).astype(float)
        expected = spearmanr(one, other).statistic
        assert rank_correlation(one, other) == pytest.approx(expected)
    assert rank_correlation(np.ones(4), np.arange(4.0)) == 0.0


# --- what the attacker is given -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "policy", "given"),
    [
        (Level.COUNT, "jsq", {"counts"}),
        (Level.COUNT, None, {"counts"}),
        (Level.TOTAL, "random", {"total"}),
        (Level.TOTAL, None, {"total"}),
    ],
)
def test_the_attacker_holds_what_its_level_gives(level, policy, given):
    world = permuted(plan(level.word), 0)
    transcript = watch(world, level, attacker(policy, level, world.agent), 40)
    optional = ("counts", "cloud_count", "total", "load")
    for seen, _ in transcript.decisions:
        assert type(seen) is Observation
        assert {name for name in optional if getattr(seen, name) is not None} == given
    assert transcript.view is world.agent
    assert set(vars(transcript)) == {"view", "decisions"}


@pytest.mark.parametrize(("level", "policy"), [(Level.COUNT, "nearest"), (Level.TOTAL, "nearest")])
def test_secrets_of_nodes_that_were_never_used_change_nothing(level, policy):
    """Swap the speeds of two nodes without jobs: what cannot be seen is not inferred."""
    world = permuted(plan(level.word), 0)
    transcript = watch(world, level, attacker(policy, level, world.agent), 60)
    idle = sorted(set(range(10)) - {node for _, node in transcript.decisions})
    assert len(idle) >= 2
    one, other = idle[:2]
    fogs = list(world.fogs)
    fogs[one] = replace(fogs[one], ipt=world.fogs[other].ipt)
    fogs[other] = replace(fogs[other], ipt=world.fogs[one].ipt)
    assert fogs != list(world.fogs)
    swapped = replace(world, fogs=tuple(fogs))
    again = watch(swapped, level, attacker(policy, level, world.agent), 60)
    assert again == transcript
    found, found_again = (infer(level, held, [60])[60] for held in (transcript, again))
    assert (found.service == found_again.service).all()


def test_an_estimate_uses_no_later_decision():
    world = permuted(plan(), 0)
    transcript = watch(world, Level.COUNT, attacker("jsq", Level.COUNT, world.agent), 120)
    early = infer(Level.COUNT, transcript.first(60), [30, 60])
    late = infer(Level.COUNT, transcript, [30, 60, 120])
    for mark in (30, 60):
        assert (early[mark].service == late[mark].service).all()


def test_the_same_seed_gives_the_same_figures():
    given = plan(decisions=40, permutations=2)
    one, other = measure(given), measure(given)
    assert one == other
    assert measure(replace(given, permutations=1))["attacker"] != one["attacker"]


# --- the evidence -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_vectorised_line_is_the_nodes_line(kind):
    world = make_world("paper", count=kind, disclosure="count", sources__scale=60.0)
    transcript = watch(world, Level.COUNT, policies.load("random", world.agent), 300)
    truth = true_service(world)
    for number in range(3):
        line = Line(transcript, number)
        node = Node(lambda _job, category, at=number: truth[at][category])
        for job, (arrival, category) in enumerate(
            zip(*transcript.arrivals_at(number), strict=True)
        ):
            node.accept(job, int(category), float(arrival))
        served = node.advance(float("inf"))
        event = 3 if kind == "waiting" else 4
        moves = line.moves(truth[[number, number]])
        assert moves[0] == pytest.approx([job[event] for job in served])
        assert (moves[0] == moves[1]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_truth_explains_what_was_seen(kind):
    given = plan(kind=kind)
    world = permuted(given, 0)
    truth = true_service(world)
    seen = {level: permuted(replace(given, level=level), 0) for level in (Level.COUNT, Level.TOTAL)}
    for level, evidence in ((Level.COUNT, CountEvidence), (Level.TOTAL, TotalEvidence)):
        transcript = watch(seen[level], level, Prober(world.agent), 300)
        held = evidence(transcript)
        misfits = [
            held.misfit(sum(held.part(node, guess[node][None]) for node in range(10)))[0]
            for guess in (truth, 1.1 * truth)
        ]
        assert held.explained(misfits[0]) or kind == "in_system"
        assert misfits[0] < 0.3 * misfits[1]
        if level is Level.COUNT:
            assert misfits[0] == pytest.approx(0.0, abs=1e-6)


def test_the_prober_forms_a_line_at_each_node_in_turn():
    world = permuted(plan(), 0)
    prober = Prober(world.agent)
    blank = Observation(0.0, 0, 0, 0)
    placed = [prober.place(blank) for _ in range(126)]
    runs = [placed[at : at + 6] for at in range(0, 126, 6)]
    assert all(len(set(run)) == 1 for run in runs)
    assert [run[0] for run in runs] == [*range(10), *range(10), 0]
    assert prober.needs is Level.NONE


def test_marks_double_up_to_all_decisions():
    marks = marks_of(1000)
    assert marks == (62, 125, 250, 500, 1000)
    assert all(other in (2 * one, 2 * one + 1) for one, other in pairwise(marks))


# --- the command --------------------------------------------------------------------------------


def leakage(*words):
    return CliRunner().invoke(app, ["leakage", str(PAPER), *map(str, words)])


def test_the_command_prints_draws_and_keeps(tmp_path):
    words = ("--decisions", 64, "--permutations", 2, "--policy", "jsq", "--out", tmp_path)
    done = leakage(*words, "--json")
    assert done.exit_code == 0, done.output
    line = json.loads(done.stdout.splitlines()[-1])
    assert line["marks"] == [4, 8, 16, 32, 64]
    assert len(line["attacker"]) == 5
    assert len(line["nodes"]) == 10
    for found in (*line["attacker"], line["prior"], line["topology"]):
        for key in ("error", "rank"):
            assert found[key]["ci95"] >= 0
    for word in ("fog-10", "true", "inferred", "64 decisions", "guess: topology", "jsq"):
        assert word in done.stderr
    kept = json.loads((tmp_path / "count.json").read_text())
    assert {key: kept[key] for key in line} == line
    assert (tmp_path / "leakage.png").stat().st_size > 10_000
    before = (tmp_path / "leakage.svg").read_text()
    assert leakage("--active", *words[:4], "--out", tmp_path).exit_code == 0
    assert (tmp_path / "count-active.json").exists()
    assert "places to learn" not in before
    assert (tmp_path / "leakage.svg").read_text() != before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--level", "full"), "--level full: expected count or total"),
        (("--level", "none"), "--level none: expected count or total"),
        (("--level", "everything"), "--level everything: expected count or total"),
        (("--decisions", 12), "--decisions 12: expected at least 32"),
        (("--permutations", 0), "--permutations 0: expected at least 1"),
        (("--active", "--policy", "jsq"), "an active attacker places by itself"),
        (("--policy", "best"), "no policy is called 'best'"),
        (("--policy", "setr"), "policy setr needs disclosure level 'full'"),
        (("--level", "total", "--policy", "jsq"), "needs disclosure level 'count'"),
        (("--out", "/proc/x"), "/proc/x: cannot be written"),
        (("--set", "fog.ipt=[1,2]"), "fog.ipt: expected 10 values"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(words, sentence):
    done = leakage(*words)
    assert isinstance(done.exception, InputError)
    assert done.exception.exit_code == 2
    assert sentence in str(done.exception)
    assert "\n" not in str(done.exception)


def test_a_trace_that_ends_too_early_is_refused(tmp_path):
    (tmp_path / "trace.csv").write_text("t\n" + "\n".join(str(5 * k) for k in range(40)))
    sources = {"kind": "trace", "file": str(tmp_path / "trace.csv"), "columns": {"time": "t"}}
    given = plan(decisions=64, overrides={"sources": sources})
    with pytest.raises(InputError, match="--decisions 64: .* trace has only 40 workloads"):
        run_trial(given, 0)


def test_one_application_and_few_nodes_are_enough():
    scenario = load_scenario(SCENARIOS / "tiny.toml")
    for level in (Level.COUNT, Level.TOTAL):
        trial = run_trial(Plan(scenario, level, 64, None, permutations=1), 0)
        assert np.isfinite(trial.attacker[64].error)
        assert len(trial.nodes) == 3


def test_a_transcript_ends_with_what_was_known_then():
    world = permuted(plan(), 0)
    transcript = watch(world, Level.COUNT, Prober(world.agent), 50)
    assert isinstance(transcript.first(20), Transcript)
    assert len(transcript.first(20)) == 20
    arrivals, _ = transcript.first(20).arrivals_at(0)
    assert (arrivals <= transcript.decisions[19][0].time).all()


@pytest.mark.parametrize(
    ("level", "name"), [("count", "jsq"), ("count", None), ("total", "random"), ("total", None)]
)
def test_the_record_of_a_testbeds_agent_is_what_the_embedded_attacker_holds(level, name):
    """So whatever the meter infers, an agent in its own process could have inferred."""
    scenario = load_scenario(SCENARIOS / "tiny.toml", {"disclosure": level})
    world, seen = build_world(scenario), Level.parse(level)
    embedded = watch(world, seen, attacker(name, seen, world.agent), 60)
    federated = watch_testbed(world, seen, name, 60, split.Plan(broker="builtin"))
    assert len(federated) == 60
    assert federated.times.tolist() == embedded.times.tolist()
    assert [node for _, node in federated.decisions] == [node for _, node in embedded.decisions]
    if level == "total":
        assert federated.totals.tolist() == embedded.totals.tolist()
        assert all(observed.counts is None for observed, _ in federated.decisions)
    else:
        for node in range(len(world.nodes)):
            assert federated.counts_of(node).tolist() == embedded.counts_of(node).tolist()


def test_a_testbeds_agent_is_shown_only_what_its_policy_needs(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from agent.policy import Policy\nclass P(Policy):\n    def place(self, seen):\n"
        "        return 0\n"
    )
    with pytest.raises(InputError, match="is shown only what its policy needs"):
        policy_at(f"{mine}:P", Level.COUNT)
