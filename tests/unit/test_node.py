"""The node core: Lindley's recursion, the order of one instant, disciplines and servers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogveil.provider_node.discipline import ShortestJobFirst
from fogveil.provider_node.node import Node

INF = float("inf")
# Whole numbers make ties common, which is where the order of one instant matters.
jobs_strategy = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), min_size=1, max_size=40)


def make_node(jobs, servers=1, **options):
    node = Node(lambda job, _category: float(jobs[job][1]), servers, **options)
    for job, (arrival, _) in enumerate(jobs):
        node.accept(job, 0, float(arrival))
    return node


@given(jobs_strategy)
def test_fifo_is_lindleys_recursion(jobs):
    served = make_node(jobs).advance(INF)
    free = 0.0
    order = sorted(range(len(jobs)), key=lambda job: (jobs[job][0], job))
    for job, (served_job, _, arrived, started, finished) in zip(order, served, strict=True):
        assert served_job == job
        assert (arrived, started) == (jobs[job][0], max(arrived, free))
        free = started + jobs[job][1]
        assert finished == free


@given(jobs_strategy, st.lists(st.integers(0, 400), max_size=12), st.integers(1, 3))
def test_how_time_is_cut_does_not_matter(jobs, cuts, servers):
    whole = make_node(jobs, servers).advance(INF)
    node = make_node(jobs, servers)
    parts = [job for until in [*sorted(cuts), INF] for job in node.advance(until)]
    assert parts == whole


@given(jobs_strategy, st.integers(1, 4))
def test_counts_match_what_was_served(jobs, servers):
    served = make_node(jobs, servers).advance(INF)
    node = make_node(jobs, servers)
    for now in range(60):
        node.advance(float(now))
        present = [s for s in served if s[2] <= now < s[4]]
        assert node.in_system == len(present)
        assert node.waiting == sum(started > now for _, _, _, started, _ in present)
        left = sum(finished - max(now, started) for _, _, _, started, finished in present)
        assert node.backlog(now) == pytest.approx(left / servers)


@given(jobs_strategy, st.integers(1, 4))
def test_no_server_idles_while_a_job_waits(jobs, servers):
    served = make_node(jobs, servers).advance(INF)
    for _, _, arrived, started, _ in served:
        if started > arrived:
            busy = sum(other[3] < started <= other[4] for other in served)
            assert busy >= servers


def test_finish_comes_before_arrival_before_start():
    # Job 1 arrives at the very instant at which job 0 leaves: it does not wait.
    node = make_node([(0, 5), (5, 1)])
    node.advance(5.0)
    assert (node.waiting, node.in_system) == (0, 1)


def test_equal_arrivals_go_by_job_id():
    jobs = [(3, 1), (3, 1), (3, 1)]
    node = Node(lambda _job, _category: 1.0)
    for job in (2, 0, 1):
        node.accept(job, 0, 3.0)
    assert [job for job, *_ in node.advance(INF)] == [0, 1, 2]
    assert make_node(jobs).advance(INF) == sorted(make_node(jobs).advance(INF))


def test_shortest_job_first_is_another_discipline():
    jobs = [(0, 5), (1, 9), (2, 1)]
    order = [job for job, *_ in make_node(jobs, discipline=ShortestJobFirst).advance(INF)]
    assert order == [0, 2, 1]
    assert [job for job, *_ in make_node(jobs).advance(INF)] == [0, 1, 2]


@given(jobs_strategy)
def test_shortest_job_first_never_passes_over_a_shorter_one(jobs):
    served = make_node(jobs, discipline=ShortestJobFirst).advance(INF)
    for one, other in pairwise(sorted(served, key=lambda job: job[3])):
        if other[2] <= one[3] and other[2] < one[3]:
            assert one[4] - one[3] <= other[4] - other[3]


def test_next_event_is_when_the_node_changes():
    node = make_node([(2, 3), (10, 1)])
    times = []
    while node.next_event < INF:
        times.append(node.next_event)
        node.advance(node.next_event)
    assert times == [2, 5, 10, 11]
    assert np.isinf(node.next_event)
