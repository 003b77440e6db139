"""Providers that misbehave in a run that recovers: they are marked, and harm only themselves."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from federated_support import embedded_hash, make_scenario, sabotage_participant

from fogveil.agent.decision_record import UNSEEN, read_record
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.launch.federated_run import run_federated
from fogveil.testbed.launch.participant_config import Plan

LIAR = "fog-2"
HORIZON = 600
FACTOR = 1.5
"""By which the others' jobs may take longer in the mean: with the liar goes 5/17 of the speed."""
SLOW = {"negative after wrap", "alternating", "two counts in one", "closed by an error"}
"""Others go the same way."""

COUNT = """
    from fogveil.provider_node.provider import Provider
    honest = Provider.count.fget
    calls = iter(range(10**9))
    def count(self):
        n, true = next(calls), honest(self)
        return {told}
    Provider.count = property(count)
    """
DISCLOSE = """
    import asyncio
    from fogveil.provider_node.boundary import QueueBoundary
    calls = iter(range(10**9))
    tell = QueueBoundary._send
    async def send(self, message):
        n = next(calls)
        {body}
    QueueBoundary._send = send
    """
WATCH = """
    from fogveil.provider_node.boundary import QueueBoundary
    async def watch(self, request, context):
        {body}
    QueueBoundary._serve_watcher = watch
    """
CAUGHT = {
    "huge": (COUNT.format(told="2**32 - 1 if n > 20 else true"), "disclosed 4294967295 queued"),
    "constant": (COUNT.format(told="7"), "disclosed 7 queued jobs"),
    "negative after wrap": (COUNT.format(told="(true - 1) % 2**32"), "disclosed 4294967295 queued"),
    "alternating": (COUNT.format(told="50 * (n % 2)"), "disclosed 50 queued jobs"),
    "two counts in one": (
        DISCLOSE.format(body="message.counts.extend([0] * (n > 9)); await tell(self, message)"),
        "disclosed 2 counts in a window of 1",
    ),
    "a flood": (
        DISCLOSE.format(body="[await tell(self, message) for _ in range(5000 if n > 9 else 1)]"),
        "disclosed the counts of windows that nobody was granted",
    ),
    "late": (
        DISCLOSE.format(body="await asyncio.sleep(8 * (n == 9)); await tell(self, message)"),
        "did not tell its count within 2 s",
    ),
    "silent": (
        DISCLOSE.format(body="n > 9 or await tell(self, message)"),
        "did not tell its count within 2 s",
    ),
    "closed at once": (
        WATCH.format(body="await context.send_initial_metadata(())"),
        "ended the stream of its counts 10 times",
    ),
    "closed by an error": (WATCH.format(body="raise ValueError"), "ended the stream of its counts"),
}


def others_delay(folder):
    """Return the mean time from emission to return of the jobs that the liar did not serve."""
    jobs = pq.read_table(folder / "jobs.parquet").to_pylist()
    delays = [j["returned"] - j["emitted"] for j in jobs if j["node"] != LIAR and j["returned"]]
    return sum(delays) / len(delays)


@pytest.mark.parametrize(
    "fault", [pytest.param(each, marks=[pytest.mark.slow] * (each in SLOW)) for each in CAUGHT]
)
def test_a_provider_that_misbehaves_harms_only_itself(tmp_path, monkeypatch, fault):
    code, why = CAUGHT[fault]
    scenario = make_scenario(horizon=HORIZON, disclosure="count")
    sabotage_participant(tmp_path, monkeypatch, LIAR, code)
    run = tmp_path / "run"
    plan = Plan(("jsq",), recovers=True, late_after=2.0, broker="builtin")
    (result,) = run_federated(scenario, plan, run)
    (mark,) = result["marked"]
    assert mark["who"] == LIAR
    assert why in mark["why"]
    assert result["losses"] == []
    log = (run / "testbed.log").read_text()
    assert "Traceback" not in log or "error" in fault
    assert f"marked {LIAR} at simulated time" in log
    decisions = list(read_record(run / "participants/agent/decisions-0000.csv"))
    later = [each for each in decisions if each.emitted > mark["simulated_time"]]
    assert len(later) > 10
    assert all(each.node != 1 and each.counts[1] == UNSEEN for each in later)
    run_embedded(scenario, "jsq", tmp_path / "honest")
    assert others_delay(run) < FACTOR * others_delay(tmp_path / "honest")


HANGS = """
    import asyncio
    from fogveil.provider_node.boundary import ResourcesBoundary
    calls = iter(range(10**9))
    async def look(self, requests, context):
        async for request in requests:
            if next(calls) > 8:
                await asyncio.Event().wait()
            view = self._core.view(request.window if request.HasField("window") else None)
            yield self._core.answer_look(request, view)
    ResourcesBoundary.Look = look
    """


@pytest.mark.parametrize(
    ("level", "policy", "code"),
    [
        ("count", "jsq", CAUGHT["silent"][0]),
        pytest.param("full", "setr", CAUGHT["silent"][0], marks=pytest.mark.slow),
        pytest.param("full", "setr", HANGS, marks=pytest.mark.slow),
    ],
    ids=["counts", "counts at level full", "looks"],
)
def test_an_agent_that_is_lost_after_a_mark_decides_the_same(
    tmp_path, monkeypatch, level, policy, code
):
    scenario = make_scenario(horizon=HORIZON, disclosure=level)
    sabotage_participant(tmp_path, monkeypatch, LIAR, code)
    plan = Plan((policy,), recovers=True, late_after=2.0, broker="builtin", speed=150.0)
    killed = []

    def kill_agent(testbed, _name, report):
        if "marked" in report.get("agent", ()) and not killed:
            agent = testbed.participants["agent"].process
            killed.append(agent.pid)
            agent.kill()

    (result,) = run_federated(scenario, plan, tmp_path / "run", kill_agent)
    assert killed
    assert [loss["who"] for loss in result["losses"]] == ["agent"]
    assert [mark["who"] for mark in result["marked"]] == [LIAR]
    assert (tmp_path / "run/testbed.log").read_text().count(f"marked {LIAR} at") == 2


AHEAD = """
from fogveil.agent.policy import Level, Policy

class Ahead(Policy):
    needs = Level.COUNT
    decides_ahead = True

    def place(self, seen):
        nodes = seen.available or range(3)
        return nodes[seen.job % len(nodes)]
"""


@pytest.mark.slow
def test_an_agent_that_decides_ahead_and_is_lost_has_the_same_run(tmp_path, monkeypatch):
    (tmp_path / "ahead.py").write_text(AHEAD)
    policy = f"{tmp_path}/ahead.py:Ahead"
    scenario = make_scenario(horizon=2 * HORIZON, disclosure="count")
    sabotage_participant(tmp_path, monkeypatch, LIAR, CAUGHT["constant"][0])
    plan = Plan((policy,), recovers=True, window=4, broker="builtin", speed=300.0)
    (quiet,) = run_federated(scenario, plan, tmp_path / "quiet")
    killed = []

    def kill_agent(testbed, _name, report):
        if report.get("clock", {}).get("time", 0.0) > HORIZON and not killed:
            killed.append(testbed.participants["agent"].process.kill())

    (result,) = run_federated(scenario, plan, tmp_path / "run", kill_agent)
    assert [loss["who"] for loss in result["losses"]] == ["agent"]
    assert result["run_hash"] == quiet["run_hash"]
    assert result["marked"] == quiet["marked"]
    assert [mark["who"] for mark in result["marked"]] == [LIAR]


def test_an_honest_provider_that_is_lost_is_not_marked(tmp_path):
    scenario = make_scenario(horizon=HORIZON, disclosure="count")
    plan = Plan(("jsq",), recovers=True, broker="builtin", speed=150.0)
    killed = []

    def kill_provider(testbed, _name, report):
        if report.get("clock", {}).get("time", 0.0) > HORIZON / 4 and not killed:
            provider = testbed.participants[LIAR].process
            killed.append(provider.pid)
            provider.kill()

    (result,) = run_federated(scenario, plan, tmp_path / "run", kill_provider)
    assert [loss["who"] for loss in result["losses"]] == [LIAR]
    assert result["marked"] == []
    assert result["run_hash"] == embedded_hash(scenario, "jsq")
