"""The parts that think, without transport: any cutting of time, any order, any nonsense."""

from __future__ import annotations

import asyncio
import logging
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from math import inf, nan

import pytest
from federated_support import Parts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import make_world

from agent.deciding import Deciding, Inbox, Seen
from agent.policy import Level, Policy
from agent.process import AgentProcess, agent_view
from broker.topics import Topics
from fogveil import ordering
from fogveil.ordering import MOST_EARLY, Sequence, parts
from fogveil.settings import read_settings
from fogveil.v1.clock_pb2 import Begin, Grant
from fogveil.v1.workload_pb2 import Aggregates, Feedback, Placement, Placements, Result, Workload
from provider_node.process import ProviderProcess, provider_config
from provider_node.provider import Provider
from provider_node.serving import Serving
from testbed.federated.sources import SourcesProcess

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


@settings(max_examples=150, deadline=None)
@given(
    placements=jobs,
    cuts=st.lists(times, max_size=8).map(sorted),
    looks=st.lists(times, max_size=12).map(sorted),
    early=st.randoms(use_true_random=False),
    servers=st.integers(1, 3),
    discipline=st.sampled_from(["fifo", "sjf"]),
    shape=st.integers(0, 2),
)
def test_any_cutting_of_time_gives_the_same_jobs(
    placements, cuts, looks, early, servers, discipline, shape
):
    config = replace(
        WORLD.fogs[1],
        instructions=(1500.0, 6000.0),
        servers=servers,
        discipline=discipline,
        service_shape=shape,
        forwards=0.4,
    )
    direct, serving = Provider(config), Serving(config, OWNERS)
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
        assert all(serving.accept(job) for job in due)
        coming = [job for job in coming if job not in due]
        seen = [look for look in looks if begin < look <= end]
        last = end == inf
        flush = last or early.random() < 0.3
        forward = flush or early.random() < 0.5
        grant = Grant(until=end, observe_at=seen, forward=forward, flush=flush, last=last)
        outputs.append(serving.work(grant))
    served = [job for output in outputs for job in output.served]
    assert served == expected
    assert [count for output in outputs for count in output.counts] == counts
    going_on = direct.aggregates(expected)
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
        told = [(each.job, each.finished) for m in messages for each in m.results]
        assert told == [(job[0], job[4]) for job in expected if cluster[job[0]] == place]


def test_what_is_too_much_for_one_message_is_cut(monkeypatch):
    monkeypatch.setattr(ordering, "MOST_IN_ONE", 10)
    assert [(len(part), more) for part, more in parts(list(range(25)))] == [
        *((10, True), (10, True)),
        (5, False),
    ]
    assert [(part, more) for part, more in parts([])] == [([], False)]
    assert [more for _, more in parts(list(range(20)))] == [True, False]
    serving = Serving(replace(WORLD.fogs[0], forwards=1.0), OWNERS)
    for job in range(25):
        serving.accept(Placement(job=job, cluster=job % 2, arrival=1.0))
    output = serving.work(Grant(until=inf, forward=True, flush=True, last=True))
    assert [len(message.aggregates) for message in output.aggregates] == [10, 10, 5]
    assert [message.more for message in output.aggregates] == [True, True, False]
    assert [message.sequence for message in output.aggregates] == [1, 2, 3]
    assert [len(message.results) for message in output.feedback["one"]] == [10, 3]
    assert [message.more for message in output.feedback["two"]] == [True, False]


WRONG = [
    (Placement(job=1, arrival=9.0), "it was placed here before"),
    (Placement(job=2, arrival=nan), "it would arrive at nan"),
    (Placement(job=2, arrival=inf), "it would arrive at inf"),
    (Placement(job=2, arrival=5.0), "it would arrive at 5.0, and it is 5"),
    (Placement(job=2, arrival=-1.0), "it would arrive at -1.0"),
    (Placement(job=2), "it would arrive at 0.0"),
    (Placement(job=2, category=2, arrival=9.0), "category 2 is unknown"),
    (Placement(job=2, category=2**32 - 1, arrival=9.0), "is unknown"),
    (Placement(job=2, cluster=2, arrival=9.0), "cluster 2 is unknown"),
]


@pytest.mark.parametrize(("placement", "fault"), WRONG)
def test_a_placement_that_cannot_be_is_dropped_with_a_word(placement, fault, caplog):
    serving = Serving(WORLD.fogs[0], OWNERS)
    assert serving.accept(Placement(job=1, arrival=3.0))
    serving.work(Grant(until=5.0))
    before = state_of(serving)
    assert not serving.accept(placement)
    assert state_of(serving) == before
    (record,) = caplog.records
    assert (
        record.getMessage()
        == f"dropped the placement of job {placement.job}: "
        + (record.getMessage().partition(": ")[2])
    )
    assert fault in record.getMessage()
    assert serving.accept(Placement(job=2, arrival=5.125)), "a good one is taken after it"


@pytest.mark.parametrize("demand", [None, 0.0, -1.0, inf, nan])
def test_a_demand_that_cannot_be_is_dropped_with_a_word(demand, caplog):
    serving = Serving(replace(WORLD.fogs[0], demands_vary=True), OWNERS)
    assert not serving.accept(Placement(job=1, arrival=3.0, demand=demand))
    assert "its demand is" in caplog.text
    assert serving.accept(Placement(job=1, arrival=3.0, demand=2.0))
    (served,) = serving.work(Grant(until=inf)).served
    assert served[4] - served[3] == pytest.approx(2 * 4000 / 200)


# --- order ----------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    number=st.integers(0, 30),
    again=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2)), max_size=30),
    order=st.randoms(use_true_random=False),
)
def test_messages_in_any_order_and_number_are_put_in_order(number, again, order):
    arrivals = [(1, sequence) for sequence in range(1, number + 1)]
    # Again, of other episodes, and such as nobody sends.
    arrivals += [(e, s) for s, e in again if e != 1 or s <= number]
    order.shuffle(arrivals)
    inbox = Sequence("somebody")
    inbox.begin(1)
    taken = [due for e, s in arrivals for due in inbox.take(e, s, (e, s))]
    assert taken == [(1, sequence) for sequence in range(1, number + 1)]
    assert inbox.taken == number
    inbox.begin(2)
    assert inbox.take(2, 1, "anew") == ["anew"]


def test_messages_that_are_far_too_early_are_not_kept(caplog):
    inbox = Sequence("somebody")
    assert inbox.take(0, 1, "before all") == []
    inbox.begin(0)
    assert inbox.take(0, 1 + MOST_EARLY, "far") == []
    assert "message 1 is still to come" in caplog.text
    assert inbox.take(0, MOST_EARLY, "near") == []
    assert inbox.take(0, 1, "first") == ["first"]


# --- deciding -------------------------------------------------------------------------------------

numbers = st.one_of(st.floats(0, 1000), st.sampled_from([nan, inf, -inf, -1.0]))
workloads = st.lists(
    st.builds(
        Workload,
        job=st.integers(0, 60),
        cluster=st.integers(0, 3),
        category=st.integers(0, 3),
        emitted=numbers,
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(coming=workloads)
def test_faulty_workloads_are_never_accepted_and_good_ones_come_in_order(coming):
    inbox, good = Inbox(WORLD.agent), {}
    for workload in coming:
        fine = (
            workload.job not in good
            and workload.cluster < 2
            and workload.category < 2
            and 0 <= workload.emitted < inf
        )
        assert inbox.add(workload) == fine
        if fine:
            good[workload.job] = workload
    expected = sorted(good.values(), key=lambda each: (each.emitted, each.job))
    assert inbox.take(len(good)) == expected


class Ahead(Policy):
    needs = Level.COUNT
    decides_ahead = True

    def reset(self):
        self.told = []

    def place(self, seen):
        assert seen.counts is None
        return seen.job % 3

    def learn(self, seen, node):
        self.told.append((seen, node))


@settings(max_examples=100, deadline=None)
@given(cuts=st.lists(st.integers(1, 7), min_size=1, max_size=12), lag=st.integers(0, 3))
def test_decisions_ahead_are_recorded_as_if_taken_one_by_one(cuts, lag):
    number = sum(cuts)
    coming = [Workload(job=n, cluster=n % 2, category=n % 2, emitted=n / 4) for n in range(number)]
    seen = [Seen((n, n + 1, 2 * n)) for n in range(number)]
    records, told = [], []
    for window in (1, None):
        record, policy = [], Ahead(WORLD.agent)
        deciding = Deciding(WORLD.agent, policy, record.append)
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
        told.append(policy.told)
    assert records[0] == records[1]
    assert told[0] == told[1]
    assert [decision.job for decision in records[0]] == list(range(number))


# --- nonsense into processes ----------------------------------------------------------------------

fuzz = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
bodies = st.one_of(
    st.binary(max_size=200),
    st.builds(
        lambda message, cut: message.SerializeToString()[:cut],
        st.builds(
            Placements,
            episode=st.integers(0, 9),
            sequence=st.integers(0, 9),
            placements=st.lists(
                st.builds(Placement, job=st.integers(0, 2**64 - 1), arrival=numbers), max_size=3
            ),
        ),
        st.integers(0, 40),
    ),
)
names = st.sampled_from(["sources", "fog-1", "fog-2", "cloud", "nobody"])
EPISODE = 700
"""No bytes that hypothesis tries say so."""


def state_of(thing) -> str:
    """Spell all that an object and its parts hold."""
    found = {}
    for key, value in vars(thing).items():
        if hasattr(value, "__dict__") and type(value).__module__.split(".")[0] in (
            *("provider_node", "agent", "fogveil", "testbed"),
        ):
            found[key] = state_of(value)
        elif isinstance(value, dict):
            found[key] = {
                k: state_of(v) if hasattr(v, "__dict__") else str(v) for k, v in value.items()
            }
        elif not callable(value):
            found[key] = deepcopy(str(value))
    return str(found)


@pytest.fixture
def made(tmp_path):
    return Parts(tmp_path)


@pytest.fixture
def silence():
    """Every drop is logged, and there are many."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def begin(process, episode: int) -> None:
    begun = process._begin(Begin(episode=episode))
    if begun is not None:
        asyncio.run(begun)


@pytest.mark.parametrize("name", ["fog-1", "cloud"])
def test_a_provider_survives_any_bytes_and_changes_nothing(made, name, silence):
    given_ = read_settings(made.split.provider(name, "127.0.0.1:1"))
    process = ProviderProcess(given_, provider_config(given_.own["provider"]))
    begin(process, EPISODE)
    topics = Topics(made.run)

    @fuzz
    @given(body=bodies, sender=names)
    def survives(body, sender):
        before = state_of(process)
        process.receive(
            topics.placement(name) if name == "fog-1" else topics.aggregate(sender), body
        )
        assert state_of(process) == before

    survives()
    process._journal.close()


def test_the_agent_survives_any_bytes_and_changes_nothing(made, silence):
    given_ = read_settings(made.split.agent("127.0.0.1:1", {}))
    topics = Topics(made.run)

    async def scenario():
        process = AgentProcess(given_, agent_view(given_.own["view"]))
        for inbox in process._workloads.values():
            inbox.begin(EPISODE)

        @fuzz
        @given(body=bodies, sender=names)
        def survives(body, sender):
            before = state_of(process._inbox), state_of(process._workloads["sources"])
            process.receive(topics.workload(sender), body)
            assert (state_of(process._inbox), state_of(process._workloads["sources"])) == before

        survives()

    asyncio.run(scenario())


def test_sources_survive_any_bytes_and_change_nothing(made, silence):
    given_ = read_settings(made.split.sources("sources", "127.0.0.1:1"))
    process = SourcesProcess(given_)
    topics = Topics(made.run)
    # Nothing has begun yet.
    early = Feedback(sequence=1, results=[Result(job=1)]).SerializeToString()
    process.receive(topics.feedback("sources", "fog-1"), early)
    begin(process, EPISODE)

    @fuzz
    @given(body=bodies, sender=names)
    def survives(body, sender):
        process.receive(topics.feedback("sources", sender), body)

    survives()
    process._file.close()
    assert (given_.folder / f"feedback-{EPISODE:04}.csv").read_text() == "job,provider,finished\n"


def test_results_of_unknown_jobs_are_dropped_with_a_word(made, caplog):
    given_ = read_settings(made.split.sources("sources", "127.0.0.1:1"))
    process = SourcesProcess(given_)
    begin(process, 0)
    process._emitted = {4}
    message = Feedback(
        episode=0, sequence=1, results=[Result(job=3, finished=1.5), Result(job=4, finished=2.5)]
    )
    process.receive(Topics(made.run).feedback("sources", "fog-1"), message.SerializeToString())
    process._file.close()
    assert "dropped the result of job 3 from fog-1: no such job" in caplog.text
    assert (given_.folder / "feedback-0000.csv").read_text().endswith("\n4,fog-1,2.5\n")


def test_a_cut_aggregate_closes_its_window_with_the_last_part(made):
    given_ = read_settings(made.split.provider("cloud", "127.0.0.1:1"))
    process = ProviderProcess(given_, provider_config(given_.own["provider"]))
    begin(process, 0)
    topic = Topics(made.run).aggregate("fog-1")
    for sequence, more in ((1, True), (2, True), (3, False)):
        job = Placement(job=sequence, arrival=9.0)
        body = Aggregates(episode=0, sequence=sequence, aggregates=[job], more=more)
        assert process._closed["fog-1"].count == 0
        process.receive(topic, body.SerializeToString())
    assert process._closed["fog-1"].count == 1
    process._journal.close()
