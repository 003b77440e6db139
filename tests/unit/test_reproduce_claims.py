"""The claims of `fogveil reproduce`: verdicts computed from hand-made numbers."""

from __future__ import annotations

import pytest

from fogveil.testbed.experiments.reproduce.claims import (
    FAILS,
    HOLDS,
    OPEN,
    claims,
    curve_parts,
    rises,
    stable_trainings,
)
from fogveil.testbed.experiments.reproduce.methods import METHODS, TRADITIONAL
from fogveil.testbed.experiments.reproduce.plan import HORIZONS, RATES
from fogveil.testbed.experiments.reproduce.section_results import SectionResults
from fogveil.testbed.records.summary import DELAYS, LOOPS

SHORT, LONG = HORIZONS
TRAINED = [method.name for method in METHODS if method.trained]


def as_in_the_paper(method, rate):
    """Fog-loop delays with which every claim holds."""
    if method in ("parl", "plrl-edql", "plrl-ql"):
        return {"parl": 10.0, "plrl-edql": 11.0, "plrl-ql": 12.0}[method]
    if method == "fastest":
        return {200.0: 10.0, 150.0: 300.0, 100.0: 3000.0}[rate]
    return {"electre": 200.0, "plrl-ed": 4000.0, "electre with veto": 12.0}.get(method, 500.0)


def summary_of(method, delay):
    summary = dict.fromkeys((*DELAYS, *LOOPS), delay)
    summary |= {"latency": 0.5 if method == "nearest" else 2.0}
    return summary | {"service": 1.0 if method == "fastest" else 3.0}


def make_results(delay_of=as_in_the_paper, *, without=()):
    """Five trainings of the learning methods, two evaluation seeds each."""
    results = SectionResults()
    for method in METHODS:
        if method.name in without:
            continue
        for rate in RATES:
            for horizon in HORIZONS:
                for number in range(11, 16) if method.trained else [0]:
                    training = f"paper-{method.name}-{rate:g}-{number}" if number else ""
                    delay = delay_of(method.name, rate)
                    if callable(delay):
                        delay = delay(horizon, number)
                    summary = summary_of(method.name, delay)
                    for seed in (1, 2):
                        level = "total" if method.name == "parl" else "full"
                        at = (method.name, rate, horizon, training, seed)
                        results.add(*at, summary, level)
    return results


def make_log(returns):
    """A training whose steps go from 0 to 100, one episode per return, after one of population."""
    log = [{"phase": "buffer population", "training_steps": 0, "last_returns": -9999.0}]
    steps = [100 * number / (len(returns) - 1) for number in range(len(returns))]
    for step, returned in zip(steps, returns, strict=True):
        log.append({"phase": "training", "training_steps": step, "last_returns": returned})
    return log


def rising_logs(worst=-400.0):
    log = make_log([worst * (1 - min(share / 75, 1)) - 1 for share in range(101)])
    return {f"training-{number}": log for number in range(5)}


CURVES = {200.0: rising_logs(-100.0), 150.0: rising_logs(-200.0), 100.0: rising_logs(-400.0)}


def verdicts(results, curves=CURVES):
    return {claim.claim: claim.verdict for claim in claims(results, curves)}


def changed(results, curves=CURVES):
    """The claims whose verdicts differ from those of a results' set in which all hold."""
    whole = verdicts(make_results())
    now = verdicts(results, curves)
    return {name: now[name] for name in whole if now.get(name) != whole[name]}


def test_all_claims_hold_on_numbers_like_the_papers():
    rows = claims(make_results(), CURVES)
    others = [row for row in rows if row.verdict != HOLDS]
    assert {row.verdict for row in others} == {"the margin shrinks"}
    assert len(others) == 3
    assert len(rows) > 25


def delays(**changes):
    def delay_of(method, rate):
        return changes.get(method.replace("-", "_"), as_in_the_paper(method, rate))

    return make_results(delay_of)


def test_a_margin_below_the_papers_does_not_hold():
    """ELECTRE at 80: PARL is 87.5 % below, enough for 82 % and 87 %, not for 90 %."""
    lost = changed(delays(electre=80.0))
    assert lost == {"PARL below ELECTRE in total execution delay, β = 200": FAILS}
    rows = claims(delays(electre=80.0), CURVES)
    ours = {row.claim: row.ours for row in rows}
    assert ours["PARL below ELECTRE in total execution delay, β = 100"] == "88%"
    assert ours["the same against ELECTRE with a veto of 0.6 on slow service, β = 100"] == (
        "17% (10 against 12)"
    )


def test_a_training_that_grows_with_the_horizon_is_not_stable():
    def parl(horizon, number):
        return 10.0 if horizon == SHORT or number > 12 else 12.0

    results = delays(parl=parl)
    stable, trained = stable_trainings(results, 100.0)
    assert (len(stable), len(trained)) == (3, 5)
    lost = changed(results)
    assert {name for name in lost if name.startswith("PARL is stable")} == {
        "PARL is stable and below every traditional method, β = 100",
        "PARL is stable and below every traditional method, β = 150",
        "PARL is stable and below every traditional method (but fastest), β = 200",
    }
    assert set(lost.values()) == {FAILS}


def test_four_stable_trainings_of_five_suffice():
    def parl(horizon, number):
        return 10.0 if horizon == SHORT or number > 11 else 12.0

    assert not [name for name in changed(delays(parl=parl)) if name.startswith("PARL is stable")]


def test_stable_means_below_every_traditional_method_but_fastest_at_light_load():
    results = delays(parl=10.5)
    assert len(stable_trainings(results, 200.0)[0]) == 5, "above fastest, which is excepted"
    assert changed(results) == {"PARL at most equal to fastest, β = 200": FAILS}
    for method in TRADITIONAL:
        better = delays(**{method.replace("-", "_"): 9.0})
        stable = len(stable_trainings(better, 100.0)[0]), len(stable_trainings(better, 200.0)[0])
        assert stable == (0, 5 if method == "fastest" else 0)


@pytest.mark.parametrize(("long", "holds"), [(11.0, True), (11.2, False), (8.9, False)])
def test_carrying_over_is_within_ten_percent(long, holds):
    lost = changed(delays(parl=lambda horizon, _number: 10.0 if horizon == SHORT else long))
    assert bool([name for name in lost if name.startswith("PARL carries over")]) != holds


@pytest.mark.parametrize(("other", "holds"), [(11.7, True), (11.8, False), (8.6, False)])
def test_on_par_is_within_fifteen_percent(other, holds):
    lost = changed(delays(plrl_edql=other))
    assert bool([name for name in lost if name.startswith("PARL on par")]) != holds


def test_a_good_plrl_ed_is_not_bad():
    assert set(changed(delays(plrl_ed=199.0)).values()) == {FAILS}
    assert list(changed(delays(plrl_ed=2999.0))) == ["PLRL(ED) is even worse than fastest, β = 100"]


def test_another_best_method_is_named():
    rows = claims(delays(plrl_ql=9.0), CURVES)
    (cloud,) = [row for row in rows if "Cloud loop" in row.claim]
    assert (cloud.verdict, cloud.ours) == (FAILS, "plrl-ql (9); PARL 10")


def test_claims_without_results_are_not_measured():
    found = verdicts(make_results(without=("plrl-ed",)))
    assert found["PLRL(ED) is bad"] == OPEN
    assert [name for name, verdict in found.items() if verdict == OPEN] == [
        "PLRL(ED) is bad",
        "PARL the best of the paper's methods on the Cloud loop",
    ]


def test_without_parl_hardly_anything_is_measured():
    found = verdicts(make_results(without=("parl",)), {})
    assert found["PARL is stable and beats the traditional methods"] == OPEN
    assert found["privacy: the agent needs no load or resource of a node"] == OPEN
    assert len([verdict for verdict in found.values() if verdict == HOLDS]) == 2, "PLRL(ED)'s"


def test_the_five_parts_are_of_the_first_three_quarters():
    levels = (-100.0, -80.0, -60.0, -40.0, -20.0)
    returns = [level for level in levels for _ in range(150)] + [0.0] * 251
    parts = curve_parts(make_log(returns))
    assert parts == pytest.approx(levels, abs=0.5)  # an episode at a border may be on either side


def test_curves_that_do_not_rise():
    assert not rises(curve_parts(make_log([-5.0] * 101)))
    assert not rises(curve_parts(make_log([-float(share) for share in range(101)])))
    assert not rises([-400.0, -200.0]), "too short to tell"
    assert not curve_parts([{"phase": "buffer population", "training_steps": 0}])
    flat = {**CURVES, 150.0: {"one": make_log([-5.0] * 101)}}
    assert changed(make_results(), flat)["the training curve rises over the first 75 %, β = 150"]


def test_returns_that_are_higher_at_higher_rates_are_noticed():
    odd = {**CURVES, 100.0: rising_logs(-50.0)}
    assert changed(make_results(), odd) == {
        "it is harder to learn at higher rates: lower returns": FAILS
    }


def test_a_claim_about_the_worst_says_among_whom():
    (claim,) = [c for c in claims(make_results(), CURVES) if "is the worst" in c.claim]
    assert claim.claim.startswith("fastest is the worst of the 5 traditional methods")
    assert claim.verdict != FAILS
    assert claim.reason == "among these alone: plrl-ed did worse"
    (alone,) = [c for c in claims(delays(plrl_ed=2999.0), CURVES) if "is the worst" in c.claim]
    assert alone.reason == ""
