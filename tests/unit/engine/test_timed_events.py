"""Timed events in the cores: what they mean, against models written here for the purpose."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import MemorySink, make_run, make_world

import fogveil.agent.policies as policies
from fogveil.agent.policy import Level, Policy
from fogveil.core.errors import InputError
from fogveil.provider_node.discipline import DISCIPLINES
from fogveil.provider_node.forecast import FinishForecast
from fogveil.provider_node.node import Node
from fogveil.provider_node.timetable import Change, Timetable
from fogveil.sources.core import streams
from fogveil.sources.pace import Pace, PaceChange
from fogveil.testbed.engine.embedded import simulate

times = st.integers(1, 160).map(lambda eighths: eighths / 8)  # so that events coincide
jobs_of_a_node = st.dictionaries(
    st.integers(0, 99), st.tuples(times, st.integers(1, 24)), min_size=1, max_size=25
)
crashes = st.lists(
    st.tuples(times, times, st.booleans()).filter(lambda crash: crash[0] < crash[1]), max_size=3
)
speeds = st.lists(st.tuples(times, st.sampled_from((0.5, 1.0, 2.0, 4.0))), max_size=3)


def make_changes(crashes, speeds):
    """Changes of a provider: crashes that do not overlap, and speeds."""
    apart, busy = [], 0.0
    for at, back, loses in sorted(crashes):
        if at >= busy:
            apart.append(Change(at, back=back, notice=1.0 if loses else None))
            busy = back
    changed = [Change(at, ipt=ipt) for at, ipt in speeds]
    return sorted([*apart, *changed], key=lambda change: change.at)


def make_node(changes, work, servers=1, discipline="fifo"):
    timetable = Timetable(1.0, (1.0,), (), changes)

    def service(job, _category, _arrival, start):
        return work[job] / timetable.ipt.at(start)

    node = Node(
        lambda job, _: service(job, 0, 0.0, 0.0),
        servers,
        DISCIPLINES[discipline],
        timetable.node_changes,
        service,
    )
    return node, FinishForecast(service, servers, timetable.stops)


def model(jobs, changes, servers, discipline):
    """A node as a plain loop over its instants: finishes, changes, arrivals, starts.

    Returns who was served when, and who was lost.
    """
    arriving = sorted((arrival, job) for job, (arrival, _) in jobs.items())
    instants = [arrival for arrival, _ in arriving]
    instants += [time for each in changes for time in (each.at, each.back) if time is not None]
    heap = sorted(set(instants))
    speed, down, waiting, serving, served, lost = 1.0, None, [], [], {}, set()
    while heap:
        now = heappop(heap)
        for finished, _, job, started in sorted(serving):
            if finished == now:
                served[job] = (started, finished)
        serving = [each for each in serving if each[0] != now]
        if down and down.back == now:
            down = None
        for change in changes:
            if change.at == now and change.ipt is not None:
                speed = change.ipt
            if change.at == now and change.back is not None:
                down = change
                waiting += [(jobs[job][0], job) for _, _, job, _ in serving]
                serving = []
                if change.notice is not None:
                    lost |= {job for _, job in waiting}
                    waiting = []
        for arrival, job in arriving:
            if arrival == now:
                if down and down.notice is not None:
                    lost.add(job)
                else:
                    waiting.append((arrival, job))
        while waiting and not down and len(serving) < servers:
            key = None if discipline == "fifo" else lambda each: (jobs[each[1]][1], *each)
            chosen = min(waiting, key=key) if key else min(waiting)
            waiting.remove(chosen)
            finish = now + jobs[chosen[1]][1] / speed
            serving.append((finish, chosen[0], chosen[1], now))
            if finish not in heap:
                heappush(heap, finish)
    return served, lost


@pytest.mark.parametrize("discipline", ["fifo", "sjf"])
@given(jobs=jobs_of_a_node, crashes=crashes, speeds=speeds, servers=st.integers(1, 3))
def test_a_node_that_changes_serves_as_the_model_says(discipline, jobs, crashes, speeds, servers):
    changes = make_changes(crashes, speeds)
    work = {job: size for job, (_, size) in jobs.items()}
    node, _ = make_node(changes, work, servers, discipline)
    for job, (arrival, _) in jobs.items():
        node.accept(job, 0, arrival)
    served = {job: (started, finished) for job, _, _, started, finished in node.advance(inf)}
    expected, lost = model(jobs, changes, servers, discipline)
    assert served == expected
    assert {job for job, _, _, _ in node.take_lost()} == lost
    assert served.keys() | lost == jobs.keys()


@given(
    jobs=jobs_of_a_node,
    crashes=crashes,
    speeds=speeds,
    servers=st.integers(1, 3),
    cuts=st.lists(times, max_size=6).map(sorted),
)
def test_how_time_is_cut_does_not_matter(jobs, crashes, speeds, servers, cuts):
    changes = make_changes(crashes, speeds)
    work = {job: size for job, (_, size) in jobs.items()}
    whole, _ = make_node(changes, work, servers)
    cut, _ = make_node(changes, work, servers)
    for job, (arrival, _) in jobs.items():
        whole.accept(job, 0, arrival)
        cut.accept(job, 0, arrival)
    pieces = [served for end in (*cuts, inf) for served in cut.advance(end)]
    assert pieces == whole.advance(inf)


@given(jobs=jobs_of_a_node, crashes=crashes, speeds=speeds, servers=st.integers(1, 3))
def test_finishes_and_losses_are_foretold_through_changes(jobs, crashes, speeds, servers):
    changes = make_changes(crashes, speeds)
    work = {job: size for job, (_, size) in jobs.items()}
    node, forecast = make_node(changes, work, servers)
    for job, (arrival, _) in jobs.items():
        node.accept(job, 0, arrival)
        forecast.accept(job, 0, arrival)
    assert sorted(forecast.advance(inf)) == sorted(node.advance(inf))
    assert sorted(forecast.take_lost()) == sorted(node.take_lost())


def test_a_job_in_service_keeps_its_speed_and_the_next_one_has_the_new():
    node, _ = make_node([Change(5.0, ipt=4.0)], {1: 8.0, 2: 8.0})
    for job in (1, 2):
        node.accept(job, 0, float(job))
    assert node.advance(inf) == [(1, 0, 1.0, 1.0, 9.0), (2, 0, 2.0, 9.0, 11.0)]


def test_the_backlog_is_that_of_the_new_speed():
    node, _ = make_node([Change(5.0, ipt=4.0)], {1: 8.0, 2: 8.0})
    for job in (1, 2):
        node.accept(job, 0, float(job))
    node.advance(5.0)
    assert node.backlog(5.0) == 4.0 + 2.0


# --- the pace of emissions -----------------------------------------------------------------------


def test_a_ramp_passes_as_many_gaps_as_its_integral_says():
    pace = Pace(10.0, 1, 0, [PaceChange(100.0, scale=20.0, until=200.0)])
    gaps = 100 / 10 + 100 / 10 * log(20 / 10)  # before the ramp, and along it
    assert pace.after(0.0, gaps) == pytest.approx(200.0)
    assert pace.after(200.0, 3.0) == pytest.approx(260.0)


def test_a_curve_repeats():
    pace = Pace(10.0, 1, 0, [PaceChange(50.0, scales=(10.0, 30.0), period=40.0)])
    in_a_period = 2 * 20 * log(30 / 10) / 20
    assert pace.after(50.0, in_a_period) == pytest.approx(90.0)
    assert pace.after(50.0, 25 * in_a_period) == pytest.approx(50.0 + 25 * 40.0)
    assert pace.after(90.0, in_a_period / 2) == pytest.approx(110.0)


def test_shares_change_the_rate_of_each_category_and_not_of_all():
    changes = [PaceChange(0.0, shares=(0.75, 0.25)), PaceChange(100.0, shares=(0.0, 1.0))]
    often, seldom = (Pace(10.0, 2, category, changes) for category in (0, 1))
    assert often.after(0.0, 1.5) == pytest.approx(10.0)
    assert seldom.after(0.0, 1.0) == pytest.approx(20.0)
    assert often.after(100.0, 1e-9) == inf
    assert seldom.after(100.0, 1.0) == pytest.approx(105.0)


@pytest.mark.parametrize("kind", ["poisson", "deterministic"])
def test_emissions_before_a_change_are_those_without_it(kind):
    sources = {"kind": kind, "scale": 60.0}
    change = [{"at": 900.0, "kind": "rate", "scale": 20.0}]
    plain, changed = (
        [list(stream) for stream in streams(make_world(**options).sources)]
        for options in ({"sources": sources}, {"sources": sources, "events": change})
    )
    for before, after in zip(plain, changed, strict=True):
        early = [each for each in before if each[0] <= 900]
        assert [each[1:] for each in after[: len(early)]] == [each[1:] for each in early]
        np.testing.assert_allclose(
            [each[0] for each in after[: len(early)]], [each[0] for each in early], rtol=1e-12
        )
        assert len(after) > len(before)


# --- whole runs ----------------------------------------------------------------------------------

CRASH = {"at": 500.0, "kind": "crash", "node": "fog-1", "back": 900.0}
LOSS = {**CRASH, "jobs": "lost", "notice": 30.0}
LEAVE = {"at": 500.0, "kind": "leave", "node": "fog-1"}


@pytest.mark.parametrize("policy", ["jsq", "round-robin", "ci-setr"])
@pytest.mark.parametrize("event", [CRASH, LOSS, LEAVE], ids=lambda event: event["kind"])
def test_every_workload_is_served_exactly_once(policy, event):
    run = make_run(policy, events=[event], sources__scale=30.0)
    jobs = run.jobs
    emitted = {job: time for stream in streams(run.world.sources) for time, job, _, _ in stream}
    assert len(jobs["job"]) == len(emitted)
    assert dict(zip(jobs["job"].astype(int), jobs["emitted"], strict=True)) == emitted
    assert not np.isnan(jobs["returned"]).any()
    held = (jobs["arrived"] < 500) & (jobs["finished"] > 500) & (jobs["node"] == 0)
    lost = np.concatenate(run.sink.decisions)[:, 3] > 1
    assert lost.any() if event is LOSS else held.any(), "the event found jobs at the node"
    if event["kind"] == "crash":
        started = jobs["started"][jobs["node"] == 0]
        finished = jobs["finished"][jobs["node"] == 0]
        assert not ((started < 900) & (finished > 500)).any()


def test_lost_jobs_are_decided_again_when_their_loss_is_noticed():
    run = make_run("jsq", events=[LOSS], sources__scale=30.0)
    job, time, node, attempt = np.concatenate(run.sink.decisions).T
    again = attempt > 1
    assert again.sum() > 3
    assert set(time[again]) == {530.0}
    assert (np.diff(job[again]) > 0).all(), "at one instant in the order of their ids"
    assert 0 not in node[again], "the node is still away"
    first = {number: n for number, n, tries in zip(job, node, attempt, strict=True) if tries == 1}
    assert {first[number] for number in job[again]} == {0}
    row = {number: place for place, number in enumerate(run.jobs["job"])}
    for number, chosen in zip(job[again], node[again], strict=True):
        assert run.jobs["node"][row[number]] == chosen
        assert run.jobs["emitted"][row[number]] < 500
        assert run.jobs["arrived"][row[number]] > 530


def test_a_node_that_is_away_tells_no_count_and_gets_no_job():
    run = make_run("jsq", events=[{**CRASH, "back": 700.0}], sources__scale=30.0)
    _, time, node, _ = np.concatenate(run.sink.decisions).T
    away = (time >= 500) & (time < 700)
    assert away.any()
    assert (run.sink.observed[away, 0] == -1).all()
    assert (run.sink.observed[~away, 0] >= 0).all()
    assert 0 not in node[away]
    assert 0 in node[time >= 700]


def test_one_that_leaves_tells_its_count_until_it_is_gone():
    events = [{**LEAVE, "gone": 800.0}, {"at": 1200.0, "kind": "join", "node": "fog-1"}]
    run = make_run("jsq", events=events, sources__scale=30.0)
    _, time, node, _ = np.concatenate(run.sink.decisions).T
    told = run.sink.observed[:, 0]
    assert (told[(time >= 500) & (time < 800)] >= 0).all()
    assert (told[(time >= 800) & (time < 1200)] == -1).all()
    assert 0 not in node[(time >= 500) & (time < 1200)]
    assert 0 in node[time >= 1200]


def test_a_policy_that_ignores_who_is_there_is_refused_by_name():
    class Stubborn(Policy):
        needs = Level.NONE

        def place(self, observation):
            return 0

    world = make_world(events=[LEAVE])
    with pytest.raises(InputError, match=r"policy Stubborn .* on fog-1 at time 5.*takes no job"):
        simulate(world, Stubborn(world.agent))


def test_ways_change_with_links_for_what_is_sent_from_then_on():
    event = {"at": 800.0, "kind": "link", "link": ["fog-1", "fog-2"], "propagation": 40.0}
    run = make_run("round-robin", events=[event], sources__scale=30.0)
    world, jobs = run.world, run.jobs
    paths = [world.paths_over_time.at(time) for time in (799.0, 800.0)]
    assert paths[0].up != paths[1].up
    for row in range(len(jobs["job"])):
        kind = int(jobs["cluster"][row]), int(jobs["category"][row]), int(jobs["node"][row])
        cluster, category, node = kind
        up = paths[int(jobs["emitted"][row] >= 800)].up[cluster][category][node]
        down = paths[int(jobs["finished"][row] >= 800)].down[cluster][category][node]
        assert jobs["arrived"][row] == jobs["emitted"][row] + up
        assert jobs["returned"][row] == jobs["finished"][row] + down


def test_a_policy_is_told_of_new_latencies_before_it_decides_by_them():
    told = []

    class Listens(Policy):
        needs = Level.NONE

        def update(self, view):
            super().update(view)
            told.append(view.up)

        def place(self, observation):
            assert self.view.up == world.latency_changes[int(observation.time >= 800.0)].up
            return 0

    event = {"at": 800.0, "kind": "move", "cluster": "cluster-1", "to": "fog-3"}
    world = make_world(events=[event])
    simulate(world, Listens(world.agent))
    assert told == [change.up for change in world.latency_changes]


def test_level_full_tells_the_speed_of_now():
    seen = []

    class Looks(Policy):
        needs = Level.FULL

        def place(self, observation):
            load = observation.load
            seen.append((observation.time, load.ipt[0], load.expected[1][0], load.service[0]))
            return 1

    events = [
        {"at": 500.0, "kind": "speed", "node": "fog-1", "factor": 2.0},
        {"at": 900.0, "kind": "demand", "application": "demanding", "factor": 3.0},
    ]
    world = make_world(events=events)
    simulate(world, Looks(world.agent))
    speed = world.fogs[0].ipt
    work = world.scenario.applications[1].instructions
    for time, ipt, expected, _ in seen:
        assert ipt == (2 * speed if time >= 500 else speed)
        assert expected == (3 * work if time >= 900 else work) / ipt


def test_runs_without_events_have_the_same_hash_as_with_none_that_matter():
    late = [{"at": 1999.9, "kind": "speed", "node": "cloud", "factor": 1.0}]
    assert make_run("jsq").hash == make_run("jsq", events=late).hash


@pytest.mark.parametrize("policy", ["jsq", "ci-setr", "setr", "nearest", "p2c"])
def test_members_change_for_every_kind_of_policy(policy):
    world = make_world("other/few", events=[{**CRASH, "back": 700.0}, {**LEAVE, "at": 800.0}])
    sink = MemorySink()
    simulate(world, policies.load(policy, world.agent), [sink])
    _, time, node, _ = np.concatenate(sink.decisions).T
    assert 0 not in node[((time >= 500) & (time < 700)) | (time >= 800)]
