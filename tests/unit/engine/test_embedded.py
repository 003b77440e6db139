"""The embedded engine: its records against an independent recomputation, and its laws."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from support import ANY_SHAPE, ROOT, MemorySink, make_run, make_world

from fogveil.core.disclosure import CountKind, Level
from fogveil.sources.core import streams
from fogveil.testbed.engine.embedded import Embedded

OWN = [name for name in ANY_SHAPE if name not in ("electre-queue", "ci-setr")]


def lindley(arrived, service, jobs):
    """Start and finish of a FIFO node with one server, from arrivals and service times alone."""
    started, finished = np.empty(len(jobs)), np.empty(len(jobs))
    free = 0.0
    for place in np.lexsort((jobs, arrived)):
        started[place] = max(arrived[place], free)
        free = finished[place] = started[place] + service[place]
    return started, finished


@pytest.mark.parametrize("distribution", ["deterministic", "exponential"])
@pytest.mark.parametrize("policy", ["round-robin", "jsq", "setr"])
def test_every_start_and_finish_follows_from_the_record(policy, distribution):
    run = make_run(policy, "stress", horizon=3000.0, service__distribution=distribution)
    jobs, world = run.jobs, run.world
    work = np.array([app.instructions for app in world.scenario.applications])
    for number, config in enumerate(world.fogs):
        here = jobs["node"] == number
        row = {name: column[here] for name, column in jobs.items()}
        mean = work[row["category"].astype(int)] / config.ipt
        service = mean if distribution == "deterministic" else row["finished"] - row["started"]
        started, finished = lindley(row["arrived"], service, row["job"])
        np.testing.assert_allclose(row["started"], started, rtol=0, atol=1e-9)
        np.testing.assert_allclose(row["finished"], finished, rtol=0, atol=1e-9)
    at_cloud = ~np.isnan(jobs["cloud_arrived"])
    row = {name: column[at_cloud] for name, column in jobs.items()}
    service = row["cloud_finished"] - row["cloud_started"]
    started, finished = lindley(row["cloud_arrived"], service, row["job"])
    np.testing.assert_allclose(row["cloud_started"], started, rtol=0, atol=1e-9)
    np.testing.assert_allclose(row["cloud_finished"], finished, rtol=0, atol=1e-9)


@pytest.mark.parametrize("policy", OWN)
def test_jobs_are_conserved(policy):
    run = make_run(policy)
    jobs = run.jobs
    emitted = [e for stream in streams(run.world.sources) for e in stream]
    assert len(jobs["job"]) == len(set(jobs["job"])) == len(emitted)
    assert not np.isnan(jobs["returned"]).any()
    order = ("emitted", "arrived", "started", "finished", "returned")
    for before, after in pairwise(order):
        assert (jobs[before] <= jobs[after]).all()
    assert (np.diff(jobs["emitted"]) >= 0).all()


@pytest.mark.parametrize("kind", list(CountKind))
def test_counts_observed_are_those_of_the_record(kind):
    run = make_run("jsq", "stress", horizon=2000.0, sources__scale=100.0, count=str(kind))
    jobs = run.jobs
    leaves = "started" if kind is CountKind.WAITING else "finished"
    for row in range(0, len(jobs["job"]), 7):
        now = jobs["emitted"][row]
        # A placement arrives after its decision, so jobs decided at this instant do not count.
        present = (jobs["arrived"] <= now) & (jobs[leaves] > now)
        expected = np.bincount(jobs["node"][present].astype(int), minlength=10)
        assert run.sink.observed[row][:10].tolist() == expected.tolist()
        assert run.sink.observed[row][10] == -1, "jsq does not watch the Cloud"


def test_total_is_the_sum_with_the_cloud():
    world = make_world("stress", horizon=2000.0, sources__scale=100.0, loops__to_cloud=1.0)
    levels = (Level.TOTAL, Level.COUNT)
    one, other = (Embedded(world, level, watches_cloud=True) for level in levels)
    seen_cloud = 0
    while (total := one.next_decision()) is not None:
        counts = other.next_decision()
        assert total.counts is None
        assert total.total == sum(counts.counts) + counts.cloud_count
        seen_cloud += counts.cloud_count
        for engine in (one, other):
            engine.place(total.job % 10)
    assert seen_cloud > 0


def test_looking_at_the_nodes_does_not_change_the_run():
    world = make_world("stress", horizon=3000.0)
    tables = []
    for level in Level:
        sink = MemorySink()
        engine = Embedded(world, level, watches_cloud=True, sinks=[sink])
        while (observation := engine.next_decision()) is not None:
            engine.place(observation.job % 10)
        engine.finish()
        tables.append(np.concatenate(sink.blocks))
    for table in tables[1:]:
        np.testing.assert_array_equal(tables[0], table)


def test_workloads_of_one_instant_are_decided_by_job_id():
    sources = {"kind": "deterministic", "scale": 50.0, "phase": "together"}
    run = make_run("jsq", sources=sources)
    emitted, job = run.jobs["emitted"], run.jobs["job"]
    assert len(set(emitted)) == len(emitted) / 4
    assert np.lexsort((job, emitted)).tolist() == list(range(len(job)))


def test_sources_stop_at_the_horizon_and_everything_drains():
    run = make_run("round-robin", horizon=500.0)
    assert run.jobs["emitted"].max() <= 500
    assert run.jobs["finished"].max() > 500


@pytest.mark.parametrize("policy", ["jsq", "random", "setr"])
def test_runs_repeat_across_processes(policy):
    script = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from support import make_run\n"
        f"print(make_run({policy!r}, 'stress', horizon=1000.0).hash)"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert hashes == {make_run(policy, "stress", horizon=1000.0).hash + "\n"}


def test_the_hash_tells_runs_apart():
    hashes = {
        make_run("jsq").hash,
        make_run("jsq", seed=2).hash,
        make_run("p2c").hash,
        make_run("jsq", count="in_system").hash,
        make_run("jsq", cloud__ipt=1501.0).hash,
        make_run("jsq", horizon=1999.0, fog__ipt=[201.0, 500.0, 1000.0]).hash,
    }
    assert len(hashes) == 6


def test_chance_belongs_to_the_job_not_to_who_serves_it():
    one, other = (make_run(p, "stress", horizon=4000.0).jobs for p in ("random", "jsq"))
    assert one["job"].tolist() == other["job"].tolist()
    for column in ("cloud_arrived", "cloud_returned"):
        assert np.isnan(one[column]).tolist() == np.isnan(other[column]).tolist()
    shares = [1 - np.isnan(one[c]).mean() for c in ("cloud_arrived", "cloud_returned")]
    assert 0.05 < shares[1] * 2 < 0.17
    assert 0.05 < shares[0] < 0.17


def test_second_discipline_and_more_servers_run_too():
    by_discipline = {
        name: make_run("round-robin", "stress", horizon=5000.0, sources__scale=100.0, **options)
        for name, options in {
            "fifo": {},
            "sjf": {"fog__discipline": "sjf"},
            "two": {"fog__servers": 2},
        }.items()
    }
    mean = {
        name: (run.jobs["returned"] - run.jobs["emitted"]).mean()
        for name, run in by_discipline.items()
    }
    assert mean["sjf"] < mean["fifo"]
    assert mean["two"] < mean["fifo"]
