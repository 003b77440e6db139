"""The leakage meter: what an agent infers from what its level discloses, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from support import SCENARIOS, make_world
from typer.testing import CliRunner

import fogveil.agent.policies as policies
from fogveil.agent.inference.estimator import infer
from fogveil.agent.inference.evidence import CountEvidence, JobLine, TotalEvidence
from fogveil.agent.inference.transcript import Transcript, marks_of
from fogveil.agent.policy import Level, Observation
from fogveil.core.errors import InputError
from fogveil.provider_node.node import Node
from fogveil.testbed.cli.app import app
from fogveil.testbed.launch import participant_config
from fogveil.testbed.privacy.leakage.attacker_policies import Prober
from fogveil.testbed.privacy.leakage.attackers import (
    load_attacker,
    policy_on_testbed,
    watch,
    watch_testbed,
)
from fogveil.testbed.privacy.leakage.meter import AttackPlan, measure, permuted_world, run_trial
from fogveil.testbed.privacy.leakage.scoring import (
    guess_prior,
    guess_topology,
    rank_correlation,
    score,
    true_service,
)
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import build_world
from fogveil.testbed.workers.local import local_crew

STRESS = SCENARIOS / "stress.toml"
KINDS = ["waiting", "in_system"]


def make_plan(level="count", decisions=200, policy="jsq", **options):
    options = {"permutations": 1, "as_given": False} | options
    overrides = {
        "sources.scale": options.pop("rate", 200.0),
        "count": options.pop("kind", "waiting"),
        **options.pop("overrides", {}),
    }
    scenario = load_scenario(STRESS, overrides)
    return AttackPlan(scenario, Level.parse(level), decisions, policy, **options)


def attack(plan, marks, number=0):
    """Return the scores on one permutation after each number of decisions in `marks`."""
    world = permuted_world(plan, number)
    policy = load_attacker(plan.policy, plan.level, world.agent)
    transcript = watch(world, plan.level, policy, plan.decisions)
    estimates = infer(plan.level, transcript, marks)
    return [score(estimates[mark].service, true_service(world)) for mark in marks]


def average(plan, mark, permutations):
    """Return mean error and mean rank correlation over permutations."""
    scores = [attack(plan, [mark], number)[0] for number in range(permutations)]
    return np.mean([each.error for each in scores]), np.mean([each.rank for each in scores])


# --- how far the attackers get ------------------------------------------------------------------


def test_counts_leak_as_much_as_was_reported():
    """Reported, with the job in service counted: Spearman 0.96 after 100 decisions, 1.5 to 4 %."""
    error, rank = average(make_plan(decisions=100, kind="in_system"), 100, 4)
    assert rank >= 0.96
    assert error < 0.04


def test_waiting_counts_leak_nearly_as_much():
    error, rank = average(make_plan(decisions=200), 200, 3)
    assert rank >= 0.96
    assert error < 0.04


def test_an_active_attacker_learns_faster_from_counts():
    active, passive = (
        average(make_plan(decisions=120, policy=policy), 120, 2) for policy in (None, "ci-setr")
    )
    assert active[0] < 0.6 * passive[0]
    assert active[0] < 0.04
    assert active[1] >= 0.96


def test_the_error_shrinks_with_the_number_of_decisions():
    scores = attack(make_plan(decisions=320), [40, 80, 320])
    errors = [each.error for each in scores]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.1 * errors[0]
    assert scores[-1].rank > scores[0].rank


def test_totals_leak_too():
    """Weak bounds on purpose: how far the search gets is reported, not promised."""
    early, late = attack(make_plan("total", decisions=240, policy=None), [60, 240])
    assert late.error < 0.15 < early.error
    assert late.rank > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("rate", [200.0, 100.0])
@pytest.mark.parametrize("policy", [None, "random"])
def test_totals_leak_under_light_and_heavy_load(rate, policy):
    plan = make_plan("total", decisions=400, policy=policy, rate=rate)
    scores = [attack(plan, [400], number)[0] for number in range(3)]
    assert np.median([each.error for each in scores]) < 0.05
    assert np.median([each.rank for each in scores]) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", ["ci-setr", "jsq", None])
def test_counts_leak_whatever_the_policy(kind, policy):
    error, rank = average(make_plan(decisions=400, policy=policy, kind=kind), 400, 3)
    assert rank > 0.95
    assert error < 0.06


def test_service_that_varies_is_inferred_as_a_mean():
    """No constant service time explains the counts; the estimate of the running belief remains."""
    varying = {"service.distribution": "exponential"}
    trial = run_trial(make_plan(decisions=400, overrides=varying, rate=100.0), 0)
    assert not trial.explained
    assert trial.attacker[400].rank > 0.6
    assert trial.attacker[400].error < 1.5 * trial.prior.error


# --- guesses without observation ----------------------------------------------------------------


def test_the_topology_reveals_all_unpermuted_and_nothing_permuted():
    world = permuted_world(make_plan(as_given=True), 0)
    exact = score(guess_topology(world), true_service(world))
    assert exact.error == 0
    assert exact.rank == pytest.approx(1.0)
    worlds = [permuted_world(make_plan(), number) for number in range(12)]
    permuted_scores = [score(guess_topology(world), true_service(world)) for world in worlds]
    prior_scores = [score(guess_prior(world), true_service(world)) for world in worlds]
    assert abs(np.mean([each.rank for each in permuted_scores])) < 0.3
    assert np.mean([each.error for each in permuted_scores]) > prior_scores[0].error > 0.3
    assert [each.rank for each in prior_scores] == [0.0] * 12


def test_permutations_change_secrets_and_nothing_public():
    worlds = [permuted_world(make_plan(), number) for number in range(3)]
    speeds = [tuple(fog.ipt for fog in world.fogs) for world in worlds]
    assert len(set(speeds)) == 3
    assert len({tuple(sorted(permutation)) for permutation in speeds}) == 1
    public = [replace(world.agent, seed=0) for world in worlds]
    assert public[0] == public[1] == public[2]


def test_rank_correlation_ignores_scale_and_rounding_errors():
    ranks, noise = np.arange(5.0), np.array([0.0, 1e-14, 0.0, 0.0, 0.0])
    assert rank_correlation(np.exp(ranks), ranks) == pytest.approx(1.0)
    assert rank_correlation(-ranks, ranks) == pytest.approx(-1.0)
    tied = np.array([1.0, 1.0, 2.0])
    assert rank_correlation(tied + noise[:3], tied) == pytest.approx(1.0)
    assert rank_correlation(np.array([1.0, 2.0, 3.0]), tied) == pytest.approx(0.75**0.5)
    assert rank_correlation(np.ones(5) + noise, ranks) == 0.0


# --- what the attacker knows --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "policy", "disclosed"),
    [
        (Level.COUNT, "jsq", {"counts"}),
        (Level.COUNT, None, {"counts"}),
        (Level.TOTAL, "random", {"total"}),
        (Level.TOTAL, None, {"total"}),
    ],
)
def test_the_attacker_knows_what_its_level_discloses(level, policy, disclosed):
    world = permuted_world(make_plan(level.word), 0)
    transcript = watch(world, level, load_attacker(policy, level, world.agent), 40)
    optional = ("counts", "cloud_count", "total", "load")
    for seen, _ in transcript.decisions:
        assert type(seen) is Observation
        assert {name for name in optional if getattr(seen, name) is not None} == disclosed
    assert transcript.view is world.agent
    assert set(vars(transcript)) == {"view", "decisions", "arrivals"}
    assert transcript.arrivals is None, "they follow from the view"


@pytest.mark.parametrize(("level", "policy"), [(Level.COUNT, "nearest"), (Level.TOTAL, "nearest")])
def test_speeds_of_unused_nodes_change_nothing(level, policy):
    """Swap the speeds of two nodes without jobs: what cannot be observed is not inferred."""
    world = permuted_world(make_plan(level.word), 0)
    transcript = watch(world, level, load_attacker(policy, level, world.agent), 60)
    idle = sorted(set(range(10)) - {node for _, node in transcript.decisions})
    assert len(idle) >= 2
    one, other = idle[:2]
    fogs = list(world.fogs)
    fogs[one] = replace(fogs[one], ipt=world.fogs[other].ipt)
    fogs[other] = replace(fogs[other], ipt=world.fogs[one].ipt)
    assert fogs != list(world.fogs)
    swapped = replace(world, fogs=tuple(fogs))
    again = watch(swapped, level, load_attacker(policy, level, world.agent), 60)
    assert again == transcript
    estimate, estimate_again = (infer(level, each, [60])[60] for each in (transcript, again))
    assert (estimate.service == estimate_again.service).all()


def test_an_estimate_uses_no_later_decision():
    world = permuted_world(make_plan(), 0)
    transcript = watch(world, Level.COUNT, load_attacker("jsq", Level.COUNT, world.agent), 120)
    early = infer(Level.COUNT, transcript.first(60), [30, 60])
    late = infer(Level.COUNT, transcript, [30, 60, 120])
    for mark in (30, 60):
        assert (early[mark].service == late[mark].service).all()


def test_the_same_seed_gives_the_same_figures():
    plan = make_plan(decisions=40, permutations=2)
    with local_crew(2) as crew:
        one, other = measure(plan, crew), measure(plan, crew)
        fewer = measure(replace(plan, permutations=1), crew)
    assert one == other
    assert fewer["attacker"] != one["attacker"]


# --- evidence -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_vectorised_queue_is_the_nodes_queue(kind):
    world = make_world("stress", count=kind, disclosure="count", sources__scale=60.0)
    transcript = watch(world, Level.COUNT, policies.load("random", world.agent), 300)
    truth = true_service(world)
    for number in range(3):
        line = JobLine(transcript, number)
        node = Node(lambda _job, category, at=number: truth[at][category])
        for job, (arrival, category) in enumerate(
            zip(*transcript.arrivals_at(number), strict=True)
        ):
            node.accept(job, int(category), float(arrival))
        served = node.advance(float("inf"))
        event = 3 if kind == "waiting" else 4
        departures = line.departures(truth[[number, number]])
        assert departures[0] == pytest.approx([job[event] for job in served])
        assert (departures[0] == departures[1]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_truth_explains_the_observations(kind):
    plan = make_plan(kind=kind)
    world = permuted_world(plan, 0)
    truth = true_service(world)
    worlds = {
        level: permuted_world(replace(plan, level=level), 0) for level in (Level.COUNT, Level.TOTAL)
    }
    for level, evidence in ((Level.COUNT, CountEvidence), (Level.TOTAL, TotalEvidence)):
        transcript = watch(worlds[level], level, Prober(world.agent), 300)
        fit = evidence(transcript)
        misfits = [
            fit.misfit(sum(fit.part(node, guess[node][None]) for node in range(10)))[0]
            for guess in (truth, 1.1 * truth)
        ]
        assert fit.explained(misfits[0]) or kind == "in_system"
        assert misfits[0] < 0.3 * misfits[1]
        if level is Level.COUNT:
            assert misfits[0] == pytest.approx(0.0, abs=1e-6)


def test_the_prober_builds_a_queue_at_each_node_in_turn():
    world = permuted_world(make_plan(), 0)
    prober = Prober(world.agent)
    blank = Observation(0.0, 0, 0, 0)
    placed = [prober.place(blank) for _ in range(126)]
    bursts = [placed[at : at + 6] for at in range(0, 126, 6)]
    assert all(len(set(burst)) == 1 for burst in bursts)
    assert [burst[0] for burst in bursts] == [*range(10), *range(10), 0]
    assert prober.needs is Level.NONE


def test_marks_double_up_to_all_decisions():
    marks = marks_of(1000)
    assert marks == (62, 125, 250, 500, 1000)
    assert all(other in (2 * one, 2 * one + 1) for one, other in pairwise(marks))


# --- the command --------------------------------------------------------------------------------


def leakage(*options):
    return CliRunner().invoke(app, ["leakage", str(STRESS), *map(str, options)])


def test_the_command_prints_tables_and_writes_result_and_figure(tmp_path):
    options = ("--decisions", 64, "--permutations", 2, "--policy", "jsq", "--out", tmp_path)
    result = leakage(*options, "--json")
    assert result.exit_code == 0, result.output
    line = json.loads(result.stdout.splitlines()[-1])
    assert line["marks"] == [4, 8, 16, 32, 64]
    assert len(line["attacker"]) == 5
    assert len(line["nodes"]) == 10
    for means in (*line["attacker"], line["prior"], line["topology"]):
        for key in ("error", "rank"):
            assert means[key]["ci95"] >= 0
    for text in ("fog-10", "true", "inferred", "64 decisions", "guess: topology", "jsq"):
        assert text in result.stderr
    written = json.loads((tmp_path / "count.json").read_text())
    assert {key: written[key] for key in line} == line
    assert (tmp_path / "leakage.png").stat().st_size > 10_000
    before = (tmp_path / "leakage.svg").read_text()
    assert leakage("--active", *options[:4], "--out", tmp_path).exit_code == 0
    assert (tmp_path / "count-active.json").exists()
    assert "probing" not in before
    assert (tmp_path / "leakage.svg").read_text() != before


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--level", "full"), "--level full: expected count or total"),
        (("--level", "none"), "--level none: expected count or total"),
        (("--level", "everything"), "--level everything: expected count or total"),
        (("--decisions", 12), "--decisions 12: expected at least 32"),
        (("--permutations", 0), "--permutations 0: expected at least 1"),
        (("--active", "--policy", "jsq"), "leave it out, --active has a policy of its own"),
        (("--policy", "best"), "no policy is called 'best'"),
        (("--policy", "setr"), "policy setr needs disclosure level 'full'"),
        (("--level", "total", "--policy", "jsq"), "needs disclosure level 'count'"),
        (("--out", "/proc/x"), "/proc/x: cannot be written"),
        (("--set", "fog.ipt=[1,2]"), "fog.ipt: expected 10 values"),
    ],
)
def test_wrong_options_are_reported_in_one_line(options, error):
    result = leakage(*options)
    assert isinstance(result.exception, InputError)
    assert result.exception.exit_code == 2
    assert error in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_trace_with_too_few_workloads_is_refused(tmp_path):
    (tmp_path / "trace.csv").write_text("t\n" + "\n".join(str(5 * k) for k in range(40)))
    sources = {"kind": "trace", "file": str(tmp_path / "trace.csv"), "columns": {"time": "t"}}
    plan = make_plan(decisions=64, overrides={"sources": sources})
    with pytest.raises(InputError, match="--decisions 64: .* trace has only 40 workloads"):
        run_trial(plan, 0)


def test_one_application_and_few_nodes_are_enough():
    scenario = load_scenario(SCENARIOS / "tiny.toml")
    for level in (Level.COUNT, Level.TOTAL):
        trial = run_trial(AttackPlan(scenario, level, 64, None, permutations=1), 0)
        assert np.isfinite(trial.attacker[64].error)
        assert len(trial.nodes) == 3


def test_the_beginning_of_a_transcript_has_nothing_later():
    world = permuted_world(make_plan(), 0)
    transcript = watch(world, Level.COUNT, Prober(world.agent), 50)
    assert isinstance(transcript.first(20), Transcript)
    assert len(transcript.first(20)) == 20
    arrivals, _ = transcript.first(20).arrivals_at(0)
    assert (arrivals <= transcript.decisions[19][0].time).all()


@pytest.mark.parametrize(
    ("level", "name"), [("count", "jsq"), ("count", None), ("total", "random"), ("total", None)]
)
def test_a_testbeds_agent_records_what_the_embedded_attacker_observes(level, name):
    """So whatever the meter infers, an agent in its own process could infer."""
    scenario = load_scenario(SCENARIOS / "tiny.toml", {"disclosure": level})
    world, shown = build_world(scenario), Level.parse(level)
    embedded = watch(world, shown, load_attacker(name, shown, world.agent), 60)
    federated = watch_testbed(world, shown, name, 60, participant_config.Plan(broker="builtin"))
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
    policy = tmp_path / "policy.py"
    policy.write_text(
        "from fogveil.agent.policy import Policy\nclass P(Policy):\n    def place(self, seen):\n"
        "        return 0\n"
    )
    with pytest.raises(InputError, match="is shown only what its policy needs"):
        policy_on_testbed(f"{policy}:P", Level.COUNT)
