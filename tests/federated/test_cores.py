"""The cores of provider and agent: any division of time, any order of messages, any input."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from math import inf, nan

import pytest
from federated_support import Parts
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import BEGIN, EPISODE, Published, ScriptedClock, follow, grant
from support import make_world

from fogveil.agent.core import DecisionCore
from fogveil.agent.policy import Level, Policy
from fogveil.agent.visibility import Disclosed
from fogveil.broker.topics import Topics
from fogveil.core.errors import MisbehaviourError
from fogveil.protocol import message_order as ordering
from fogveil.protocol.message_order import MOST_EARLY, OrderedInbox, chunks
from fogveil.protocol.settings import read_settings
from fogveil.provider_node.core import ProviderCore
from fogveil.provider_node.journal import journal_path, read_journal
from fogveil.provider_node.process import ProviderProcess
from fogveil.provider_node.provider import Provider
from fogveil.provider_node.settings import ProviderSettings
from fogveil.sources.process import SourcesProcess
from fogveil.sources.records import (
    emissions_path,
    feedback_path,
    read_emissions,
    read_feedback,
)
from fogveil.sources.settings import SourcesSettings
from fogveil.v1.clock_pb2 import Grant
from fogveil.v1.workload_pb2 import (
    Aggregates,
    Feedback,
    Placement,
    Result,
    Workload,
    Workloads,
)

WORLD = make_world()
OWNERS = ("one", "two")
"""The sources process of each of tiny's clusters."""

# --- serving --------------------------------------------------------------------------------------

times = st.integers(1, 400).map(lambda eighths: eighths / 8)  # so that events coincide
jobs = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 1), times), min_size=1, max_size=25
).map(
    lambda drawn: [
        Placement(job=n, cluster=a, category=b, arrival=t) for n, (a, b, t) in enumerate(drawn)
    ]
)


@settings(max_examples=150)
@given(
    placements=jobs,
    cuts=st.lists(times, max_size=8).map(sorted),
    looks=st.lists(times, max_size=12).map(sorted),
    early=st.randoms(use_true_random=False),
    servers=st.integers(1, 3),
    discipline=st.sampled_from(["fifo", "sjf"]),
    shape=st.integers(0, 2),
    tail=st.sampled_from([0.0, 1.5]),
)
def test_any_division_of_time_into_windows_gives_the_same_jobs(
    placements, cuts, looks, early, servers, discipline, shape, tail
):
    config = replace(
        WORLD.fogs[1],
        instructions=(1500.0, 6000.0),
        servers=servers,
        discipline=discipline,
        service_shape=shape,
        service_tail=tail,
        forwards=0.4,
    )
    direct, serving = Provider(config), ProviderCore(config, OWNERS)
    serving.begin(3, 0)
    for job in placements:
        direct.accept(job.job, job.category, job.arrival)
    expected, counts = [], []
    for look in looks:
        expected += direct.advance(look)
        counts.append(direct.count)
    expected += direct.advance(inf)
    # The same by windows; a placement comes some time before the window in which it arrives.
    coming, outputs = list(placements), []
    for begin, end in pairwise([0.0, *cuts, inf]):
        due = [job for job in coming if job.arrival <= end or early.random() < 0.3]
        early.shuffle(due)
        assert all(serving.accept([job]) for job in due)
        coming = [job for job in coming if job not in due]
        seen = [look for look in looks if begin < look <= end]
        last = end == inf
        flush = last or early.random() < 0.3
        forward = flush or early.random() < 0.5
        grant = Grant(until=end, observe_at=seen, forward=forward, flush=flush, last=last)
        outputs.append(serving.process_window(grant))
    served = [job for output in outputs for job in output.served]
    assert served == expected
    assert [count for output in outputs for count in output.counts] == counts
    # A finish is known at the arrival where jobs are served in that order, and is sent then.
    told = sorted(expected, key=lambda job: (job[2], job[0])) if discipline == "fifo" else expected
    going_on = direct.aggregates(told)
    sent = [
        each for output in outputs for message in output.aggregates for each in message.aggregates
    ]
    assert [(each.job, each.category, each.arrival) for each in sent] == going_on
    passed_on = {job for job, _, _ in going_on}
    noted = [on for output in outputs for on in output.passed_on]
    assert noted == [job[0] in passed_on for job in expected]
    cluster = {job.job: job.cluster for job in placements}
    for place, owner in enumerate(OWNERS):
        messages = [message for output in outputs for message in output.feedback.get(owner, ())]
        assert [m.sequence for m in messages] == list(range(1, len(messages) + 1))
        assert {m.episode for m in messages} == {3}
        results = [(each.job, each.finished) for m in messages for each in m.results]
        assert results == [(job[0], job[4]) for job in told if cluster[job[0]] == place]


def test_what_is_too_large_for_one_message_is_split(monkeypatch):
    monkeypatch.setattr(ordering, "CHUNK", 10)
    assert [(len(part), more) for part, more in chunks(list(range(25)))] == [
        *((10, True), (10, True)),
        (5, False),
    ]
    assert [(part, more) for part, more in chunks([])] == [([], False)]
    assert [more for _, more in chunks(list(range(20)))] == [True, False]
    serving = ProviderCore(replace(WORLD.fogs[0], forwards=1.0), OWNERS)
    for job in range(25):
        serving.accept([Placement(job=job, cluster=job % 2, arrival=1.0)])
    output = serving.process_window(Grant(until=inf, forward=True, flush=True, last=True))
    assert [len(message.aggregates) for message in output.aggregates] == [10, 10, 5]
    assert [message.more for message in output.aggregates] == [True, True, False]
    assert [message.sequence for message in output.aggregates] == [1, 2, 3]
    assert [len(message.results) for message in output.feedback["one"]] == [10, 3]
    assert [message.more for message in output.feedback["two"]] == [True, False]


WRONG = [
    (Placement(job=1, arrival=9.0), "had sent it before"),
    (Placement(job=2, arrival=nan), "its arrival at nan"),
    (Placement(job=2, arrival=inf), "its arrival at inf"),
    (Placement(job=2, arrival=5.0), "its arrival at 5.0 is not after 5"),
    (Placement(job=2, arrival=-1.0), "its arrival at -1.0"),
    (Placement(job=2), "its arrival at 0.0"),
    (Placement(job=2, category=2, arrival=9.0), "category 2 is unknown"),
    (Placement(job=2, category=2**32 - 1, arrival=9.0), "is unknown"),
    (Placement(job=2, cluster=2, arrival=9.0), "cluster 2 is unknown"),
]


@pytest.mark.parametrize(("placement", "fault"), WRONG)
def test_the_sender_of_a_job_that_cannot_be_is_named(placement, fault):
    """The first version dropped it, waited 30 seconds for another and blamed whoever was late."""
    serving = ProviderCore(WORLD.fogs[0], OWNERS)
    assert serving.accept([Placement(job=1, arrival=3.0)]) == 1
    serving.process_window(Grant(until=5.0))
    with pytest.raises(MisbehaviourError) as error:
        serving.accept([placement])
    assert error.value.who == "agent"
    assert str(error.value).startswith(f"the agent sent job {placement.job} to fog-1, but ")
    assert fault in str(error.value)


def test_two_fog_providers_that_forward_one_job_are_both_named():
    cloud = ProviderCore(WORLD.cloud_provider, OWNERS)
    cloud.accept([Placement(job=1, arrival=3.0)], "fog-1")
    with pytest.raises(MisbehaviourError, match="^fog-2 sent job 1 to cloud, but fog-1 had sent"):
        cloud.accept([Placement(job=1, arrival=3.0)], "fog-2")


@pytest.mark.parametrize("demand", [None, 0.0, -1.0, inf, nan])
def test_the_sender_of_an_invalid_demand_is_named(demand):
    serving = ProviderCore(replace(WORLD.fogs[0], demands_vary=True), OWNERS)
    with pytest.raises(MisbehaviourError, match="its demand is"):
        serving.accept([Placement(job=1, arrival=3.0, demand=demand)])
    serving.begin(0, 0)
    assert serving.accept([Placement(job=1, arrival=3.0, demand=2.0)]) == 1
    (served,) = serving.process_window(Grant(until=inf)).served
    assert served[4] - served[3] == pytest.approx(2 * 4000 / 200)


# --- order ----------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(
    number=st.integers(0, 30),
    again=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2)), max_size=30),
    order=st.randoms(use_true_random=False),
)
def test_messages_that_arrive_in_any_order_and_repeatedly_are_put_in_order(number, again, order):
    arrivals = [(1, sequence) for sequence in range(1, number + 1)]
    # Again, of other episodes, and such as nobody sends.
    arrivals += [(e, s) for s, e in again if e != 1 or s <= number]
    order.shuffle(arrivals)
    inbox = OrderedInbox("somebody")
    inbox.begin(1)
    taken = [due for e, s in arrivals for due in inbox.take(e, s, (e, s))]
    assert taken == [(1, sequence) for sequence in range(1, number + 1)]
    assert inbox.taken == number
    inbox.begin(2)
    assert inbox.take(2, 1, "anew") == ["anew"]


def test_messages_that_are_far_too_early_are_not_kept(caplog):
    inbox = OrderedInbox("somebody")
    assert inbox.take(0, 1, "before all") == []
    inbox.begin(0)
    assert inbox.take(0, 1 + MOST_EARLY, "far") == []
    assert "message 1 is still missing" in caplog.text
    assert inbox.take(0, MOST_EARLY, "near") == []
    assert inbox.take(0, 1, "first") == ["first"]


# --- deciding -------------------------------------------------------------------------------------


class Ahead(Policy):
    needs = Level.COUNT
    decides_ahead = True

    def reset(self):
        self.learned = []

    def place(self, seen):
        assert seen.counts is None
        return seen.job % 3

    def learn(self, seen, node):
        self.learned.append((seen, node))


@settings(max_examples=100)
@given(cuts=st.lists(st.integers(1, 7), min_size=1, max_size=12), lag=st.integers(0, 3))
def test_decisions_in_windows_are_recorded_as_if_taken_one_by_one(cuts, lag):
    number = sum(cuts)
    coming = [
        Workload(job=n, cluster=n % 2, category=n % 2, emitted=1e3 * n) for n in range(number)
    ]
    # Never more than were placed: the policy places job n on node n % 3.
    seen = [
        Disclosed(tuple(min(n // 2, len(range(node, n, 3))) for node in range(3)))
        for n in range(number)
    ]
    records, learned = [], []
    for window in (1, None):
        record, policy = [], Ahead(WORLD.agent)
        deciding = DecisionCore(WORLD.agent, policy, record.append)
        waiting, at = [], 0
        for size in [1] * number if window else cuts:
            for workload in coming[at : at + size]:
                deciding.place(workload, seen[workload.job] if window else None)
            waiting.append(seen[at : at + size])
            at += size
            if not window and len(waiting) > lag:
                deciding.learn(waiting.pop(0))
        for rows in [] if window else waiting:
            deciding.learn(rows)
        records.append(record)
        learned.append(policy.learned)
    assert records[0] == records[1]
    assert learned[0] == learned[1]
    assert [decision.job for decision in records[0]] == list(range(number))


# --- processes ------------------------------------------------------------------------------------


UNKNOWN = 10**6


@pytest.mark.parametrize(
    ("results", "sentence"),
    [
        ([("fog-1", UNKNOWN, 900.0)], "fog-1 sent the result of job 1000000, which sources never"),
        ([("fog-1", 0, -1.0)], "fog-1 says that job 0 was finished at -1.0, but it was emitted at"),
        ([("fog-1", 0, nan)], "fog-1 says that job 0 was finished at nan"),
        ([("fog-1", 0, 900.0)] * 2, "fog-1 sent the result of job 0 twice"),
        ([("cloud", 0, 900.0)] * 2, "cloud sent the result of job 0 twice"),
        (
            [("fog-1", 0, 900.0), ("fog-2", 0, 900.0)],
            "fog-1 and fog-2 both sent the result of job 0: one of them did not serve it, or",
        ),
        ([("fog-1", 0, 900.0), ("cloud", 0, 901.5)], None),
    ],
)
def test_the_sender_of_a_result_that_cannot_be_is_named(tmp_path, results, sentence):
    """The first version dropped it with a line in a log, or kept it for the evaluator to find."""
    parts = Parts(tmp_path)
    configuration = read_settings(parts.split.sources("sources", "127.0.0.1:1"), SourcesSettings)
    topics, sent = Topics(parts.run), Counter()

    def script(process):
        def receive():
            for sender, job, finished in results:
                sent[sender] += 1
                result = Result(job=job, finished=finished)
                message = Feedback(episode=EPISODE, sequence=sent[sender], results=[result])
                process.receive(topics.feedback("sources", sender), message.SerializeToString())

        return BEGIN, grant(200.0), receive

    if sentence is None:
        published = follow(lambda: SourcesProcess(configuration), script)
        assert [*read_feedback(feedback_path(configuration.folder, EPISODE))] == [
            (job, sender, finished) for sender, job, finished in results
        ]
        workloads = [
            each
            for message in published.on(topics.workload("sources"), Workloads)
            for each in message.workloads
        ]
        recorded = [*read_emissions(emissions_path(configuration.folder, EPISODE))]
        assert recorded == [(w.job, w.cluster, w.category, w.emitted, None) for w in workloads]
        return
    with pytest.raises(MisbehaviourError) as error:
        follow(lambda: SourcesProcess(configuration), script)
    assert str(error.value).startswith(sentence)
    assert error.value.who == results[-1][0]


def test_the_cloud_waits_for_the_last_part_of_a_window(tmp_path):
    parts = Parts(tmp_path)
    configuration = read_settings(parts.split.provider("cloud", "127.0.0.1:1"), ProviderSettings)
    topics, journal = Topics(parts.run), journal_path(configuration.folder, EPISODE)

    async def scenario():
        process = ProviderProcess(configuration)
        process.relay = Published()

        def receive(sender, sequence, *, more):
            job = Placement(job=10 * int(sender[-1]) + sequence, arrival=9.0)
            message = Aggregates(episode=EPISODE, sequence=sequence, aggregates=[job], more=more)
            process.receive(topics.aggregate(sender), message.SerializeToString())

        begun = asyncio.Event()
        last = grant(inf, forward=True, flush=True, last=True)
        following = asyncio.ensure_future(process.follow(ScriptedClock((BEGIN, begun.set, last))))
        await begun.wait()
        for sender in ("fog-2", "fog-3"):
            receive(sender, 1, more=False)
        for sequence in (1, 2):
            receive("fog-1", sequence, more=True)
        await asyncio.sleep(0.05)
        assert not following.done()
        assert list(read_journal(journal)) == []
        receive("fog-1", 3, more=False)
        await following

    asyncio.run(scenario())
    assert [job[0] for job, _ in read_journal(journal)] == [11, 12, 13, 21, 31]
