"""What the agent is sent and told: whoever sends what cannot be is named."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from math import nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import make_world

from fogveil.agent.core import DecisionCore
from fogveil.agent.inbox import EmissionRules, Inbox
from fogveil.agent.policy import Level, Policy
from fogveil.agent.visibility import Disclosed
from fogveil.core.errors import MisbehaviourError
from fogveil.v1.workload_pb2 import Workload

WORLD = make_world()
OWNERS = ("one", "two")
"""The sources process of each of tiny's clusters."""
times = st.integers(1, 400).map(lambda eighths: eighths / 8)  # so that events coincide

# --- workloads ------------------------------------------------------------------------------------

RULES = EmissionRules(owners=OWNERS, numbered=True, demands=False)
STREAMS = [(cluster, category) for cluster in range(2) for category in range(2)]


def emit(streams):
    """Return what tiny's streams emit: the time of each job is drawn, its id follows from it."""
    return sorted(
        (
            Workload(job=4 * k + i, cluster=cluster, category=category, emitted=time)
            for i, ((cluster, category), times) in enumerate(zip(STREAMS, streams, strict=True))
            for k, time in enumerate(sorted(times))
        ),
        key=lambda workload: (workload.emitted, workload.job),
    )


emitted = st.lists(st.lists(times, max_size=8, unique=True), min_size=4, max_size=4).map(emit)


def announce(workloads, until):
    numbers = Counter(OWNERS[each.cluster] for each in workloads if each.emitted <= until)
    return {name: numbers[name] for name in OWNERS}


@settings(max_examples=150)
@given(coming=emitted, cuts=st.lists(times, max_size=5).map(sorted), first=st.sampled_from(OWNERS))
def test_workloads_of_several_senders_are_decided_in_order_of_emission(coming, cuts, first):
    inbox = Inbox(WORLD.agent, RULES)
    for owner in sorted(OWNERS, key=lambda name: name != first):
        inbox.add(owner, [each for each in coming if OWNERS[each.cluster] == owner])
    taken = []
    for begin, end in pairwise([0.0, *cuts, 1000.0]):
        instants = [each.emitted for each in coming if begin < each.emitted <= end]
        taken += inbox.take(instants, end, announce(coming, end))
    assert taken == coming


IMPOSSIBLE = [
    (Workload(job=2**40, emitted=2.0), "the next job of its cluster and category has id 4"),
    (Workload(job=0, emitted=2.0), "has id 4"),
    (Workload(job=6, cluster=1, emitted=2.0), "its cluster 1 belongs to two"),
    (Workload(job=5, category=0, emitted=2.0), "has id 4"),
    (Workload(job=4, cluster=9, emitted=2.0), "cluster 9 is unknown"),
    (Workload(job=4, category=2**32 - 1, emitted=2.0), "category 4294967295 is unknown"),
    (Workload(job=4, emitted=nan), "its emission time is nan"),
    (Workload(job=4, emitted=-13.6), "its emission time is -13.6"),
    (Workload(job=4, emitted=0.5), "0.5 is no time for it after its predecessor"),
    (Workload(job=4, emitted=2.0, demand=3.0), "its demand is 3.0"),
]


@pytest.mark.parametrize(("workload", "fault"), IMPOSSIBLE)
def test_the_sender_of_a_workload_that_cannot_be_is_named(workload, fault):
    """In the first version a sources process took another's job ids, and the other was blamed."""
    inbox = Inbox(WORLD.agent, RULES)
    inbox.add("one", [Workload(job=0, emitted=1.0)])
    with pytest.raises(MisbehaviourError) as error:
        inbox.add("one", [workload])
    assert error.value.who == "one"
    assert str(error.value).startswith(f"one sent the agent workload {workload.job}, but ")
    assert fault in str(error.value)


def test_in_a_trace_both_senders_of_one_id_are_named():
    inbox = Inbox(WORLD.agent, replace(RULES, numbered=False, demands=True))
    inbox.add("one", [Workload(job=7, emitted=1.0, demand=1.0)])
    with pytest.raises(MisbehaviourError, match="^two sent .* but one had emitted a job of that"):
        inbox.add("two", [Workload(job=7, cluster=1, emitted=1.0, demand=1.0)])
    with pytest.raises(MisbehaviourError, match="^one sent .* its demand is missing"):
        inbox.add("one", [Workload(job=8, emitted=2.0)])


@settings(max_examples=150)
@given(coming=emitted.filter(bool), data=st.data())
def test_whoever_tells_the_agent_other_times_than_the_clock_is_named(coming, data):
    told = deepcopy(coming)
    liar = data.draw(st.sampled_from(told))
    liar.emitted = data.draw(times.filter(lambda time: time != liar.emitted))
    inbox, until = Inbox(WORLD.agent, RULES), data.draw(times)
    announced, name = announce(coming, until), OWNERS[liar.cluster]
    instants = [each.emitted for each in coming if each.emitted <= until]
    blamed = ""
    try:
        for owner in OWNERS:
            inbox.add(owner, [each for each in told if OWNERS[each.cluster] == owner])
        inbox.take(instants, until, announced)
    except MisbehaviourError as error:
        blamed = str(error)
    told.sort(key=lambda each: (each.emitted, each.job))
    not_due_yet = [each.emitted for each in told[: len(instants)]] == instants
    assert name in blamed.split() or (not_due_yet and not blamed)


# --- counts ---------------------------------------------------------------------------------------

EVERY = 1000.0
"""Seconds between two jobs, in which the first arrives wherever it is placed."""
IMPLAUSIBLE = [
    (
        Disclosed((0, 2, 0)),
        "fog-2 disclosed 2 queued jobs at time 2000, when 1 had been placed on it",
    ),
    (
        Disclosed((0, 0, 2**32 - 1)),
        "fog-3 disclosed 4294967295 queued jobs at time 2000, when 0 had",
    ),
    (
        Disclosed((1, 1, 0), 3),
        "cloud disclosed 3 queued jobs at time 2000, when 2 had been placed any",
    ),
]


class Looks(Policy):
    needs = Level.COUNT
    watches_cloud = True

    def place(self, seen):
        return seen.job % 3


class Ahead(Looks):
    decides_ahead = True


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize(("disclosed", "sentence"), IMPLAUSIBLE)
def test_whoever_discloses_more_jobs_than_were_placed_is_named(ahead, disclosed, sentence):
    """In the first version 2**20 passed, and 2**32 - 1 ended the launcher with a traceback."""
    core = DecisionCore(WORLD.agent, (Ahead if ahead else Looks)(WORLD.agent), lambda _: None)
    rows = [Disclosed((0, 0, 0), 0), Disclosed((1, 0, 0), 1), disclosed]

    def decide():
        for job, row in enumerate(rows):
            core.place(Workload(job=job, emitted=EVERY * job), None if ahead else row)
        if ahead:
            core.learn(rows)

    with pytest.raises(MisbehaviourError) as error:
        decide()
    assert str(error.value).startswith(sentence)
    assert error.value.who == sentence.split()[0]


@pytest.mark.parametrize("ahead", [True, False])
def test_nobody_counts_a_job_that_is_on_its_way(ahead):
    core = DecisionCore(WORLD.agent, (Ahead if ahead else Looks)(WORLD.agent), lambda _: None)
    rows = [Disclosed((0, 0, 0), 0), Disclosed((1, 0, 0), 0)]

    def decide():
        for job, row in enumerate(rows):
            core.place(Workload(job=job, emitted=0.001 * job), None if ahead else row)
            if ahead:
                core.learn([row])

    with pytest.raises(MisbehaviourError, match=r"0 of the 1 that had been placed on it had arr"):
        decide()


@pytest.mark.parametrize("ahead", [True, False])
def test_what_a_liar_disclosed_is_hidden_from_the_policy(ahead):
    seen, accused = [], []
    kind = Ahead if ahead else Looks

    class Keeps(kind):
        def place(self, observation):
            seen.append(observation.counts)
            return 1

        def learn(self, observation, _node):
            seen.append(observation.counts)

    core = DecisionCore(
        WORLD.agent, Keeps(WORLD.agent), lambda _: None, accuse=lambda *who: accused.append(who)
    )
    rows = [Disclosed((0, 0, 0), 0), Disclosed((0, 0, 9), 0), Disclosed((0, 1, 0), 0)]
    for job, row in enumerate(rows):
        core.place(Workload(job=job, emitted=EVERY * job), None if ahead else row)
    if ahead:
        core.learn(rows)
    assert [counts for counts in seen if counts] == [(0, 0, 0), (0, 0, -1), (0, 1, -1)]
    assert accused == [
        ("fog-3", "fog-3 disclosed 9 queued jobs at time 1000, when 0 had been placed on it")
    ]
