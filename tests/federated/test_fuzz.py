"""Any bytes in any state: a participant takes what is meant for it, and drops the rest.

Contents that cannot be, in a message that is in order, end its run with its sender's name.

Most messages are drawn so that they pass the first checks (sender, episode, sequence number), so
that the later ones are reached: each test states which cases must have occurred. What should come
of the messages is worked out by a model here, and compared with what the participant writes and
publishes.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from math import inf, nan

import pytest
from federated_support import Parts
from fuzz_support import (
    CATEGORIES,
    CLUSTERS,
    FOGS,
    JOB,
    ORDER,
    WHOLE,
    EndedError,
    Model,
    job_ids,
    mostly,
    places,
    receive_from,
    streams,
    times,
)
from hypothesis import strategies as st
from scripted import BEGIN, EPISODE, explore, follow, grant

from fogveil.agent.decision_record import read_record, record_path
from fogveil.agent.process import AgentProcess
from fogveil.agent.settings import AgentSettings
from fogveil.broker.topics import Topics
from fogveil.protocol.settings import read_settings
from fogveil.provider_node.journal import journal_path, read_journal
from fogveil.provider_node.outbox import RESULT_SLOT, aggregate_slot
from fogveil.provider_node.process import ProviderProcess
from fogveil.provider_node.provider import Provider
from fogveil.provider_node.settings import ProviderSettings
from fogveil.sources.process import SourcesProcess
from fogveil.sources.records import feedback_path, read_feedback
from fogveil.sources.settings import SourcesSettings
from fogveil.v1.workload_pb2 import (
    Aggregates,
    Feedback,
    Placement,
    Placements,
    Result,
    Workload,
    Workloads,
)


@pytest.fixture(autouse=True)
def _silence():
    """Every drop is logged, and there are many."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


# --- providers -----------------------------------------------------------------------------------

placements = st.builds(
    Placement,
    job=job_ids,
    cluster=places,
    category=places,
    arrival=times,
    demand=mostly(st.floats(0.1, 9), st.sampled_from([None, 0.0, -1.0, inf, nan])),
)


possible_placements = st.builds(
    Placement,
    job=st.integers(0, 2**64 - 1),
    cluster=st.integers(0, 1),
    category=st.integers(0, 1),
    arrival=st.integers(401, 800).map(lambda eighths: eighths / 8),
    demand=st.floats(0.1, 9),
)


@pytest.mark.parametrize("demands_vary", [False, True])
@pytest.mark.parametrize("name", ["fog-1", "cloud"])
def test_a_provider_serves_the_jobs_that_can_be_and_no_other(tmp_path, name, demands_vary):
    parts = Parts(tmp_path)
    configuration = read_settings(parts.split.provider(name, "127.0.0.1:1"), ProviderSettings)
    config = replace(configuration.provider, demands_vary=demands_vary, forwards=0.5)
    configuration = replace(configuration, provider=config)
    topics, is_cloud = Topics(parts.run), name == "cloud"
    if is_cloud:
        kind, field, senders = Aggregates, "aggregates", FOGS
        names = mostly(st.sampled_from(FOGS), st.sampled_from(["nobody", "cloud"]))
    else:
        kind, field, senders = Placements, "placements", ("agent",)
        names = st.just("agent")
    cases: Counter[str] = Counter()
    slot = aggregate_slot(CLUSTERS, CATEGORIES, demands_vary=demands_vary)

    def check(arrivals, middle):
        model, jobs, demands = Model(kind, senders, cases), {}, {}
        direct, cloud_slots = Provider(config, demands), 0

        def expect(sender, body, now):
            nonlocal cloud_slots
            for message in model.due(sender, body):
                if is_cloud:
                    slots = message.ByteSize() // slot
                    model.note("padded" if slots > len(message.aggregates) else "not padded")
                    cloud_slots += max(slots, len(message.aggregates))
                for job in getattr(message, field):
                    past = job.arrival <= now
                    fault = model.job_fault(job, jobs, job.arrival, past=past)
                    if not fault and demands_vary and not 0 < job.demand < inf:
                        fault = "no demand"
                    model.note(fault or "job accepted")
                    if fault:
                        return fault
                    jobs[job.job] = job
                    demands[job.job] = job.demand
                    direct.accept(job.job, job.category, job.arrival)
            return None

        def script(process):
            def receive(several, now=None):
                for sender, body in several:
                    fault = None if now is None else expect(sender, body, now)
                    topic = topics.aggregate(sender) if is_cloud else topics.placement(name)
                    receive_from(process, topic, sender, body, fault)

            def window(until, **fields):
                return grant(until, expect=[] if is_cloud else [len(jobs)], **fields)

            return (
                lambda: receive(arrivals[1]),  # no episode has begun
                BEGIN,
                lambda: receive(arrivals[0], now=0.0),
                lambda: window(middle),
                lambda: served.extend(direct.advance(middle)),
                lambda: receive(arrivals[1], now=middle),
                lambda: window(inf, forward=not is_cloud, flush=True, last=True),
            )

        served = []
        try:
            published = follow(lambda: ProviderProcess(configuration), script)
        except EndedError:
            return
        if jobs:
            model.note(WHOLE)
        served += direct.advance(inf)
        assert {job[0] for job in served} == set(jobs)
        journal = list(read_journal(journal_path(configuration.folder, EPISODE)))
        assert [job for job, _ in journal] == served
        # What goes on to the Cloud, and what the clusters are told.
        going_on = [] if is_cloud else direct.aggregates(served)
        assert [
            (each.job, each.category, each.arrival)
            for message in published.on(topics.aggregate(name), Aggregates)
            for each in message.aggregates
        ] == going_on
        passed_on = {job for job, _, _ in going_on}
        if is_cloud:
            passed_on = {job[0] for job in served if direct.is_fed_back(job[0])}
        assert [on for _, on in journal] == [job[0] in passed_on for job in served]
        feedback = published.on(topics.feedback("sources", name), Feedback)
        assert [(each.job, each.finished) for message in feedback for each in message.results] == [
            (job[0], job[4]) for job in served if not is_cloud or job[0] in passed_on
        ]
        # Sizes follow from what arrived, at the Cloud from the sizes of what arrived.
        slots = cloud_slots if is_cloud else len(jobs)
        head = len(Feedback(episode=EPISODE, sequence=1).SerializeToString())
        assert [message.ByteSize() - head for message in feedback] == [slots * RESULT_SLOT]
        aggregates = published.on(topics.aggregate(name), Aggregates)
        sizes = [] if is_cloud else [slots * slot]
        assert [message.ByteSize() - head for message in aggregates] == sizes

    expected = ORDER | JOB | {WHOLE} | ({"no demand"} if demands_vary else set())
    fields = {}
    if is_cloud:
        expected |= {"unknown sender", "padded", "not padded"}
        fields["padding"] = st.lists(st.binary(max_size=300), max_size=3)
    explore(
        check,
        lambda: set(cases) == expected,
        arrivals=st.sampled_from([possible_placements, placements]).flatmap(
            lambda contents: streams(
                kind, names, **{field: st.lists(contents, max_size=4)}, **fields
            )
        ),
        middle=st.integers(1, 400).map(lambda eighths: eighths / 8),
    )
    assert set(cases) == expected


# --- the agent -----------------------------------------------------------------------------------

workloads = st.builds(
    Workload,
    job=mostly(st.just(0), st.integers(0, 2**63)),
    cluster=places,
    category=places,
    emitted=times,
)
possible_workloads = st.builds(
    Workload,
    cluster=st.integers(0, 1),
    category=st.integers(0, 1),
    emitted=st.integers(1, 400).map(lambda eighths: eighths / 8),
)


def number_workloads(drawn) -> None:
    """Turn what was drawn into ids and times of streams: the drawn ones are added to those."""
    next_ids, time = list(range(CLUSTERS * CATEGORIES)), 0.0
    for message in drawn:
        for each in message["fields"]["workloads"] if message["sender"] == "sources" else ():
            time += each.emitted if 0 < each.emitted < 1000 else 0.0
            each.emitted = time if 0 < each.emitted < 1000 else each.emitted
            if each.cluster < CLUSTERS and each.category < CATEGORIES:
                stream = each.cluster * CATEGORIES + each.category
                each.job += next_ids[stream]
                next_ids[stream] += len(next_ids)


def test_the_agent_decides_the_workloads_that_can_be_and_no_other(tmp_path):
    parts = Parts(tmp_path, policies=("round-robin",) * (EPISODE + 1))
    configuration = read_settings(parts.split.agent("127.0.0.1:1", {}), AgentSettings)
    topics, cases = Topics(parts.run), Counter()
    names = mostly(st.just("sources"), st.sampled_from(["fog-1", "nobody"]))

    def check(arrivals, share):
        model, known, waiting, decided = Model(Workloads, ("sources",), cases), [], [], []

        def expect(sender, body):
            for message in model.due(sender, body):
                for job in message.workloads:
                    now = known[-1] if known else (0.0, -1)
                    past = (job.emitted, job.job) <= now
                    fault = model.job_fault(job, (), job.emitted, past=past)
                    stream = job.cluster * CATEGORIES + job.category
                    before = sum(each % 4 == stream for _, each in known)
                    if not fault and job.job != 4 * before + stream:
                        fault = "another id"
                    model.note(fault or "job accepted")
                    if fault:
                        return fault
                    known.append((job.emitted, job.job))
                    waiting.append((job.emitted, job.job, job.cluster, job.category))
            return None

        def script(process):
            def receive(several, begun=True):
                for sender, body in several:
                    fault = expect(sender, body) if begun else None
                    receive_from(process, topics.workload(sender), sender, body, fault)

            def window(share):
                waiting.sort()
                number = round(share * len(waiting))
                instants = [each[0] for each in waiting[:number]]
                decided.extend(waiting[:number])
                del waiting[:number]
                if number:  # the clock grants no empty window
                    return grant(instants[-1], observe_at=instants, expect=[len(known)])
                return None

            return (
                lambda: receive(arrivals[1], begun=False),
                BEGIN,
                lambda: receive(arrivals[0]),
                lambda: window(share),
                lambda: receive(arrivals[1]),
                lambda: window(1.0),
                grant(inf, last=True),
            )

        try:
            published = follow(lambda: AgentProcess(configuration), script)
        except EndedError:
            return
        if known:
            model.note(WHOLE)
        record = list(read_record(record_path(configuration.folder, EPISODE)))
        assert [(each.emitted, each.job, each.cluster, each.category) for each in record] == decided
        for place, name in enumerate(configuration.view.nodes):
            assert [
                (job.job, job.cluster, job.category, job.arrival)
                for message in published.on(topics.placement(name), Placements)
                for job in message.placements
            ] == [
                (each.job, each.cluster, each.category, each.arrival)
                for each in record
                if each.node == place
            ]

    expected = ORDER | JOB - {"job known"} | {"another id", "unknown sender", WHOLE}
    explore(
        check,
        lambda: set(cases) == expected,
        arrivals=st.sampled_from([possible_workloads, workloads]).flatmap(
            lambda contents: streams(
                Workloads, names, fill=number_workloads, workloads=st.lists(contents, max_size=4)
            )
        ),
        share=st.floats(0, 1),
    )
    assert set(cases) == expected


# --- sources -------------------------------------------------------------------------------------

UNTIL = 200.0


def test_sources_note_the_results_of_their_jobs_and_no_other(tmp_path):
    parts = Parts(tmp_path)
    configuration = read_settings(parts.split.sources("sources", "127.0.0.1:1"), SourcesSettings)
    topics, cases = Topics(parts.run), Counter()
    providers = (*FOGS, "cloud")
    published = follow(lambda: SourcesProcess(configuration), lambda _: (BEGIN, grant(UNTIL)))
    emitted = {
        job.job: job.emitted
        for message in published.on(topics.workload("sources"), Workloads)
        for job in message.workloads
    }
    assert len(emitted) > 5
    assert max(emitted.values()) <= UNTIL
    results = st.builds(
        Result,
        job=mostly(st.sampled_from([*emitted]), job_ids),
        finished=mostly(st.integers(1600, 1700).map(lambda eighths: eighths / 8), times),
    )

    def different_jobs(drawn):
        """Let each message be about a job of its own, so that nothing comes twice."""
        for message, job in zip(drawn, [*emitted] * 2, strict=False):
            message["fields"]["results"] = [Result(job=job, finished=UNTIL + job)]

    names = mostly(st.sampled_from(providers), st.sampled_from(["agent", "nobody"]))

    def check(arrivals):
        model, rows, closed = Model(Feedback, providers, cases), {}, Counter()

        def result_fault(sender, result, known):
            if result.job not in known:
                return "job not emitted"
            if not known[result.job] < result.finished < inf:
                return "no time to finish"
            for other in ("cloud",) if sender == "cloud" else FOGS:
                if (result.job, other) in rows:
                    return "sent again" if other == sender else "sent by two"
            return None

        def expect(sender, body, known):
            for message in model.due(sender, body):
                for result in message.results:
                    fault = result_fault(sender, result, known)
                    model.note(fault or "result noted")
                    if fault:
                        return fault
                    rows[result.job, sender] = result.finished
                closed[sender] += not message.more
            return None

        def script(process):
            def receive(several, known=None):
                for sender, body in several:
                    fault = None if known is None else expect(sender, body, known)
                    topic = topics.feedback("sources", sender)
                    receive_from(process, topic, sender, body, fault)

            return (
                lambda: receive(arrivals[1]),  # no episode has begun
                BEGIN,
                lambda: receive(arrivals[0], known={}),
                grant(UNTIL),
                lambda: receive(arrivals[1], known=emitted),
                lambda: grant(inf, expect=[min(closed[name] for name in providers)], last=True),
            )

        try:
            follow(lambda: SourcesProcess(configuration), script)
        except EndedError:
            return
        if rows:
            model.note(WHOLE)
        written = [*read_feedback(feedback_path(configuration.folder, EPISODE))]
        assert written == [(*key, finished) for key, finished in rows.items()]

    def draw(early, fill):
        contents = {"results": st.lists(results, max_size=4), "more": st.booleans()}
        contents["padding"] = st.lists(st.binary(max_size=40), max_size=2)
        return streams(Feedback, names, early, fill, **contents)

    drawn = st.sampled_from([(0, different_jobs), (0, lambda _: None), (12, lambda _: None)])
    drawn = drawn.flatmap(lambda choice: draw(*choice))
    expected = ORDER | {"result noted", "job not emitted", "unknown sender", WHOLE}
    expected |= {"no time to finish", "sent again", "sent by two"}
    explore(check, lambda: set(cases) == expected, arrivals=drawn)
    assert set(cases) == expected
