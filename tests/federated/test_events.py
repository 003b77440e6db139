"""Timed events in federated runs: every kind gives the embedded engine's run hash."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from federated_support import embedded_hash, make_scenario

from fogveil.core.errors import InputError
from fogveil.provider_node.journal import journal_path, read_journal
from fogveil.testbed.launch.federated_run import run_federated
from fogveil.testbed.launch.participant_config import Plan

OWN = Path(__file__).parent / "own_policies.py"
AHEAD = f"{OWN}:AheadOfChanges"
CRASH = {"at": 500.0, "kind": "crash", "node": "fog-1", "back": 700.0}
LOSS = {**CRASH, "jobs": "lost", "notice": 30.0}
EVENTS = {
    "speed": [
        {"at": 500.0, "kind": "speed", "node": "fog-1", "factor": 2.0},
        {"at": 600.0, "kind": "speed", "node": "cloud", "ipt": 300.0},
    ],
    "leave and join": [
        {"at": 400.0, "kind": "leave", "node": "fog-1"},
        {"at": 800.0, "kind": "join", "node": "fog-1"},
    ],
    "gone": [
        {"at": 400.0, "kind": "leave", "node": "fog-1", "gone": 600.0},
        {"at": 800.0, "kind": "join", "node": "fog-1"},
        {"at": 800.0, "kind": "join", "node": "fog-3"},
    ],
    "crash": [CRASH],
    "lost": [LOSS],
    "two crashes": [LOSS, {"at": 600.0, "kind": "crash", "node": "fog-2", "back": 900.0}],
    "rate": [
        {"at": 400.0, "kind": "rate", "scale": 30.0, "until": 600.0},
        {"at": 800.0, "kind": "rate", "scales": [20.0, 100.0, 50.0], "period": 150.0},
    ],
    "mix": [{"at": 500.0, "kind": "mix", "shares": {"light": 0.9, "demanding": 0.1}}],
    "demand": [{"at": 500.0, "kind": "demand", "application": "light", "factor": 2.0}],
    "link": [{"at": 300.0, "kind": "link", "link": ["fog-1", "fog-2"], "propagation": 9.0}],
    "move": [{"at": 500.0, "kind": "move", "cluster": "cluster-1", "to": "fog-3"}],
}
ALL = sorted(
    (
        event
        for name, events in EVENTS.items()
        if name not in ("gone", "two crashes", "crash", "leave and join")
        for event in events
    ),
    key=lambda event: event["at"],
)


def check(events, *policies, **options):
    scenario = make_scenario(horizon=1000.0, sources__scale=30.0, events=events)
    plan = Plan(policies=policies, broker="builtin", **{"secure": False, **options})
    results = run_federated(scenario, plan)
    for policy, result in zip(policies, results, strict=True):
        assert result["run_hash"] == embedded_hash(scenario, policy), policy


@pytest.mark.parametrize("kind", EVENTS)
def test_every_kind_of_event_has_one_run_hash(kind):
    """Lockstep, pipelined, and without any count; a crash is the end of a real process."""
    check(EVENTS[kind], "jsq", AHEAD, "round-robin")


def test_oracles_see_the_same_of_a_world_that_changes():
    check(ALL, "setr", "electre-queue", "ci-setr")


def test_several_sources_notice_losses_under_mutual_tls():
    check([LOSS], "jsq", AHEAD, source_processes=2, secure=True)


@pytest.mark.slow
@pytest.mark.parametrize("window", [0, 1, 7])
@pytest.mark.parametrize("broker", ["builtin", "mosquitto"])
@pytest.mark.parametrize("discipline", ["fifo", "sjf"])
def test_all_events_together_in_every_mode(window, broker, discipline):
    scenario = make_scenario(events=ALL, fog__discipline=discipline, fog__servers=2)
    plan = Plan(policies=("p2c", AHEAD, "lwl"), broker=broker, source_processes=2)
    if window:
        plan = Plan(policies=(AHEAD, AHEAD), broker=broker, window=window)
    for policy, result in zip(plan.policies, run_federated(scenario, plan), strict=True):
        assert result["run_hash"] == embedded_hash(scenario, policy)


def test_a_crash_ends_the_process_and_its_record_is_whole_all_the_same(tmp_path):
    """The journal is written anew by the process that follows, with what was served before."""
    scenario = make_scenario(horizon=1000.0, sources__scale=30.0, events=[CRASH])
    [result] = run_federated(scenario, Plan(policies=("jsq",), broker="builtin"), tmp_path)
    log = (tmp_path / "testbed.log").read_text()
    assert log.count("ended fog-1: it crashes in the scenario") == 1
    assert log.count("started fog-1 as process") == 2
    served = [job for job, _ in read_journal(journal_path(tmp_path / "participants/fog-1", 0))]
    before = [job for job in served if job[4] <= 500]
    after = [job for job in served if job[4] > 500]
    assert before
    assert after
    assert min(job[3] for job in after) >= 700
    jobs = pq.read_table(tmp_path / "jobs.parquet").to_pydict()
    assert len(jobs["job"]) == result["summary"]["workloads"]
    queued = pq.read_table(tmp_path / "decisions.parquet").to_pydict()
    away = [
        row for row, time in zip(queued["queued"], queued["time"], strict=True) if 500 <= time < 700
    ]
    assert away
    assert all(row[0] is None for row in away), "a node that has crashed tells no count"
    assert set(queued["attempt"]) == {1}


def test_a_policy_that_ignores_who_is_there_ends_a_federated_run_by_name():
    scenario = make_scenario(horizon=1000.0, events=[CRASH])
    with pytest.raises(InputError, match="policy OnFirst .*on fog-1 at time 5.*takes no jobs then"):
        run_federated(scenario, Plan(policies=(f"{OWN}:OnFirst",), broker="builtin"))
