"""Changes that are measured: their kinds, how a run comes back, and what the page says of it."""

from __future__ import annotations

import numpy as np
import pytest

import fogveil.agent.policies as policies
from fogveil.agent.learning.transfer import Transfer
from fogveil.agent.policies.parl import FILE
from fogveil.testbed.engine.embedded import simulate
from fogveil.testbed.experiments.change import attack, execution, page, plan, tables, texts
from fogveil.testbed.experiments.change.handover import Handover
from fogveil.testbed.experiments.change.measures import WINDOW, MethodRuns, recover, rolling
from fogveil.testbed.experiments.change.plan import (
    AT,
    HORIZON,
    IN_SYSTEM,
    KINDS,
    ORACLE,
    RETRAINED,
    SCRATCH,
    TRANSFERRED,
    trainings,
)
from fogveil.testbed.experiments.planned_work import Task
from fogveil.testbed.records.job_times import JobTimes, JobTimesRecord
from fogveil.testbed.report.change_figure import Look, Panel, plot_changes
from fogveil.testbed.scenario.world import build_world
from fogveil.testbed.workers.work import compute_here

BY_NAME = {kind.name: kind for kind in KINDS}
GAP = 10.0
JOBS = int(HORIZON / GAP)
CHANGED = JOBS // 2
"""The first workload that is emitted at the change or later."""


def steady(delay: float = 10.0, node: int = 0) -> JobTimes:
    """Return a run in which a workload is emitted every `GAP`, and all take equally long."""
    emitted = GAP * np.arange(JOBS)
    return JobTimes(emitted, emitted + delay, np.full(JOBS, node, np.int16))


def late(until: int, delay: float = 20.0, node: int = 0) -> JobTimes:
    """Return a run that is slower than `steady` for so many workloads from the change on."""
    times = steady(node=node)
    returned = times.returned.copy()
    returned[CHANGED : CHANGED + until] += delay - 10.0
    return JobTimes(times.emitted, returned, times.node)


# --- the plan ------------------------------------------------------------------------------------


def test_every_kind_builds_and_something_happens_in_the_middle():
    assert len(BY_NAME) == len(KINDS)
    for kind in KINDS:
        level = "count" if kind.loses else "total"
        scenario = kind.scenario(1, level)
        world = build_world(scenario)
        assert any(event.at == AT for event in scenario.events)
        assert kind.node is None or kind.node in world.nodes
    speeds = {fog.name: fog.ipt for fog in world.fogs}
    assert max(speeds, key=speeds.__getitem__) == plan.NODE


def test_agents_are_trained_where_the_environment_afterwards_differs():
    trained = {training.kind.name for training in trainings()}
    assert trained == {"upgrade", "downgrade", "departure", "surge", "move"}
    assert not set(RETRAINED) & set(BY_NAME["return"].methods)
    for training in trainings():
        world = build_world(training.load_scenario())
        assert all(event.at == 0 for event in world.scenario.events)
    assert build_world(trainings()[0].load_scenario()).fogs[9].changes[0].ipt == 2000


def test_a_transfer_has_a_fifth_of_the_steps():
    scratch, transferred = (
        next(t for t in trainings() if t.method == method).hyperparameters
        for method in (SCRATCH, TRANSFERRED)
    )
    assert transferred.training_steps == scratch.training_steps / 5
    assert scratch.training_steps == 150_000 / 4
    assert transferred.epsilon_first < scratch.epsilon_first


def test_lost_jobs_are_not_measured_at_level_total():
    assert BY_NAME["crash-lost"].methods == (ORACLE, "jsq", "ci-setr", "veil")


def test_changes_of_speed_are_measured_with_counts_in_system_too():
    assert len(IN_SYSTEM) == 3
    for kind in IN_SYSTEM:
        assert kind.scenario(1, "count").count == "in_system"
        assert kind.methods == (ORACLE, "jsq", "ci-setr", "veil")


# --- the work ------------------------------------------------------------------------------------


def test_a_training_is_transferred_and_takes_over_at_the_change(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "OUT", tmp_path)
    monkeypatch.setattr(plan, "QUARTER", 4000)
    training = next(t for t in trainings() if (t.kind.name, t.method) == ("departure", TRANSFERRED))
    work = execution.transfer_of(training)
    compute_here(Task(1.0, other=work))
    assert work.name == "departure-transferred-41"
    assert training.finished
    assert Transfer(FILE).digest in training.light.read_bytes().decode(errors="ignore")
    world = build_world(training.kind.scenario(1, "total"))
    before = policies.load("parl", world.agent)
    handed = Handover(world.agent, "parl", training.light, AT)
    placed = []
    for policy in (before, handed):
        record = JobTimesRecord()
        simulate(world, policy, [record])
        placed.append(record.times())
    early = placed[0].emitted < AT
    assert (placed[0].node == placed[1].node)[early].all()
    assert (placed[0].node != placed[1].node)[~early].any()


def test_what_is_finished_is_not_done_again(tmp_path, monkeypatch):
    for module in (plan, execution, attack):
        monkeypatch.setattr(module, "OUT", tmp_path)
    todo = execution.find_outstanding()
    planned = len(trainings())
    assert len(todo.trainings) == planned
    assert len(todo.later_runs) == planned * plan.SEEDS
    run = next(task for task in todo.runs if task.run and task.run.policy == "jsq")
    compute_here(run)
    adapting = next(task for task in todo.runs if task.other and "auto" in task.other.path.name)
    compute_here(adapting)
    assert adapting.name == ""
    assert len(execution.find_outstanding().runs) == len(todo.runs) - 2
    assert execution.read_times(KINDS[0], "jsq", run.run.seed)[0].emitted.size > 1000


# --- measures ------------------------------------------------------------------------------------


def test_a_rolling_mean_is_named_by_its_first_workload():
    means = rolling(np.arange(float(WINDOW + 2)))
    assert means.tolist() == [(WINDOW - 1) / 2, (WINDOW + 1) / 2, (WINDOW + 3) / 2]


def test_a_run_is_back_with_the_first_window_within_the_tolerance():
    back = recover(late(300, node=4), steady(), 4)
    # Ten late workloads in a window of 200 add 5 %.
    assert back.back
    assert back.time == pytest.approx((300 - 10) * GAP)
    assert back.decisions == 290
    assert back.paid == pytest.approx(290 * 10.0)
    assert recover(late(300, node=4), steady(), 3).decisions == 0
    assert recover(late(10), steady(), 0)[:2] == (0.0, True)


def test_a_run_that_is_never_back_counts_to_the_end():
    never = recover(late(JOBS), steady(), None)
    assert (never.time, never.back, never.decisions) == (HORIZON - AT, False, 0)
    assert never.paid == pytest.approx((JOBS - CHANGED) * 10.0)


def test_who_was_under_way_at_the_change_pays_too():
    caught = steady()
    caught.returned[CHANGED - 1] += 500.0
    caught.returned[CHANGED - 100] += 500.0  # and is back before
    assert recover(caught, steady(), None).paid == pytest.approx(500.0)


def results(kind=BY_NAME["upgrade"]) -> dict[tuple[str, str], MethodRuns]:
    """Return results of all methods on a kind: the later in the list, the longer it is behind."""
    seeds = 3
    oracle = [steady(9.9 + seed / 100) for seed in range(seeds)]
    return {
        (kind.name, method): MethodRuns(
            kind,
            method,
            [
                [late(100 * place + seed, node=9) for _ in range(2 if method in RETRAINED else 1)]
                for seed in range(seeds)
            ],
            oracle,
        )
        for place, method in enumerate(reversed(kind.methods))
        if method != ORACLE
    }


def test_tables_say_who_was_back_and_who_was_not():
    kind = BY_NAME["upgrade"]
    found = results()
    rows = {
        line.split(" | ")[0].strip("| `"): line
        for line in tables.kind_table(kind, found).splitlines()
    }
    assert set(rows) >= {f"{method}" for method in kind.methods if method != ORACLE}
    assert "never" not in rows["ci-setr"]
    gone = found[kind.name, "jsq"]
    for runs in gone.runs:
        runs[0] = late(JOBS)
    assert tables.time_cell(gone) == "never"
    gone.runs[0][0] = steady()
    assert tables.time_cell(gone).endswith("(1 of 3 runs)")
    assert tables.time_cell(gone).startswith("≥ ")


def test_bars_are_judged_by_their_intervals():
    kind = BY_NAME["upgrade"]
    found = {(bar.method, bar.bar[:6]): bar for bar in tables.bars([kind], results())}
    assert not found["ci-setr", "within"].met, "about 700 decisions"
    assert found["ci-setr", "not wo"].met
    assert found[TRANSFERRED, "the re"].met
    table = tables.bars_table(list(found.values()))
    assert table.count(tables.MISSED) == sum(not bar.met for bar in found.values())
    slow = results()
    slow[kind.name, "jsq"] = slow[kind.name, "parl"]
    bars = {(bar.method, bar.bar[:6]): bar for bar in tables.bars([kind], slow)}
    assert not bars["veil", "not wo"].met


def test_retraining_costs_decisions_and_time():
    table = tables.retraining_table([BY_NAME["upgrade"]], results())
    scratch = next(line for line in table.splitlines() if SCRATCH in line)
    assert "| 175,000 | 1,093,750 | 37,500 |" in scratch


def test_a_panel_shows_every_method_and_the_key_has_each_once(tmp_path):
    looks = {"jsq": Look("#0072B2"), "veil": Look("#CC79A7", "--")}
    lines = {"jsq": [1.0, 2.0, 3.0], "veil": [1.0, 1.2, 1.0]}
    panels = [Panel("upgrade", lines), Panel("crash", {"jsq": [1.0, 1.0, 1.0]}, [500.0])]
    plot_changes([-1.0, 0.0, 1.0], panels, looks, 1.05, tmp_path / "change")
    drawn = (tmp_path / "change.svg").read_text()
    assert drawn.count("<!-- jsq -->") == drawn.count("<!-- veil -->") == 1
    assert "<!-- crash -->" in drawn


def test_the_page_is_written_from_the_results(tmp_path, monkeypatch):
    found = {name: runs for kind in (*KINDS, *IN_SYSTEM) for name, runs in results(kind).items()}
    monkeypatch.setattr(MethodRuns, "read", lambda kind, method: found[kind.name, method])
    course = {
        "name": "paper",
        "level": "count",
        "active": False,
        "policy": "jsq",
        "first": -2,
        "error": [0.1, 0.1, 0.9, 0.01],
        "rank": [0.9] * 4,
        "known": {what: [{"decisions": 70, "for_node": 7}] * 2 for what in ("service", "rank")},
    }
    monkeypatch.setattr(page, "read_attacks", lambda: {"upgrade": [course]})
    written = page.write_change(tmp_path, "abc").read_text()
    assert "at commit abc" in written
    for kind in KINDS:
        assert f"### {kind.title[0].upper()}{kind.title[1:]}" in written
    assert "| upgrade | counts, jsq | 70 | 7 | 70 | 7 |" in written
    assert "{" not in written, "nothing was left to fill in"
    for name in ("inference", "learning", "leakage", "day"):
        assert (tmp_path / page.FIGURES / f"{name}.png").exists()
    assert set(texts.KINDS) <= set(BY_NAME)
