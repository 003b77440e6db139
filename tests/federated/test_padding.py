"""What a provider publishes: number, order, topics and sizes follow from public facts alone.

In the first version a message had the size of what had finished. The bytes that a provider sent to
the broker, which any process could ask the kernel for, told which jobs had gone on and when, and so
service times to 1.6 % without a single count. That is what `pads=False` does still.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from math import inf
from pathlib import Path

import pytest
from federated_support import Parts, embedded_hash, fogveil, make_scenario
from hypothesis import given
from hypothesis import strategies as st
from scripted import BEGIN, explore, follow, grant
from support import make_world

from fogveil.broker.topics import Topics
from fogveil.protocol import message_order
from fogveil.protocol.recording import DELIVERY, TRAFFIC
from fogveil.protocol.settings import read_settings
from fogveil.provider_node.core import ProviderCore
from fogveil.provider_node.forecast import FinishForecast
from fogveil.provider_node.node import Node
from fogveil.provider_node.outbox import RESULT_SLOT, aggregate_slot, filler
from fogveil.provider_node.process import ProviderProcess
from fogveil.provider_node.settings import ProviderSettings
from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.join_records import join
from fogveil.testbed.launch.participant_config import Plan, exposed_sizes
from fogveil.testbed.privacy.inspect.recordings import read_recording
from fogveil.testbed.scenario.world import build_world
from fogveil.v1.clock_pb2 import Grant
from fogveil.v1.workload_pb2 import Aggregates, Feedback, Placement, Placements

OWN = Path(__file__).parent / "own_policies.py"
OWNERS = ("one", "two")
times = st.integers(1, 400).map(lambda eighths: eighths / 8)  # so that events coincide
job_ids = st.one_of(st.integers(0, 300), st.integers(2**63, 2**64 - 1))


# --- the forecast --------------------------------------------------------------------------------


@given(
    jobs=st.dictionaries(job_ids, st.tuples(times, st.floats(0, 90)), min_size=1, max_size=40),
    cuts=st.lists(times, max_size=6).map(sorted),
    servers=st.integers(1, 4),
)
def test_a_finish_is_foretold_at_the_arrival_to_the_last_bit(jobs, cuts, servers):
    node = Node(lambda job, _: jobs[job][1], servers)
    forecast = FinishForecast(lambda job, *_: jobs[job][1], servers)
    foretold = []
    for begin, end in pairwise([0.0, *cuts, inf]):
        for job, (arrival, _) in jobs.items():
            if begin < arrival <= end:
                node.accept(job, 0, arrival)
                forecast.accept(job, 0, arrival)
        known = forecast.advance(end)
        assert all(begin < arrival <= end for _, _, arrival, _, _ in known)
        foretold += known
    assert foretold == sorted(node.advance(inf), key=lambda served: (served[2], served[0]))


def test_what_is_never_served_is_foretold_as_never():
    service = {1: inf, 2: 1.0}
    node = Node(lambda job, _: service[job])
    forecast = FinishForecast(lambda job, *_: service[job])
    for job in service:
        node.accept(job, 0, float(job))
        forecast.accept(job, 0, float(job))
    assert node.advance(inf) == []
    assert [served[4] for served in forecast.advance(inf)] == [inf, inf]


# --- messages ------------------------------------------------------------------------------------


def test_padding_takes_any_number_of_bytes_but_one():
    for size in [0, *range(2, 300), *range(16_380, 16_400), *range(2**21, 2**21 + 12)]:
        message = Aggregates(sequence=1)
        message.padding.extend(filler(size))
        assert message.ByteSize() - Aggregates(sequence=1).ByteSize() == size
        assert not any(map(any, message.padding))


placed = st.builds(
    Placement,
    job=job_ids,
    cluster=st.integers(0, 1),
    category=st.integers(0, 1),
    arrival=times,
    demand=st.floats(0.1, 9),
)
# The slowest never finishes a job.
secrets = st.fixed_dictionaries(
    {
        "ipt": st.sampled_from([50.0, 400.0, 3000.0, 1e-306]),
        "ram": st.floats(1, 64),
        "servers": st.integers(1, 3),
        "service_shape": st.integers(0, 2),
        "service_tail": st.sampled_from([0.0, 1.5]),
        "seed": st.integers(0, 2**128),
    }
)


def run_chain(settings, cloud_settings, windows, fog, cloud, *, pads=True):
    """Let a Fog provider and the Cloud go through windows; return what each of them published."""
    configuration = replace(settings, provider=replace(settings.provider, **fog), pads=pads)
    topics, published = Topics(settings.run), []

    def fog_script(process):
        expected = 0
        for number, (jobs, until, kinds) in enumerate(windows, 1):
            message = Placements(episode=3, sequence=number, placements=jobs)
            expected += len(jobs)
            payload = message.SerializeToString()
            yield lambda payload=payload: process.receive(topics.placement("fog-1"), payload)
            yield grant(until, expect=[expected], **kinds)
            yield lambda: published.append(process.relay.take())

    follow(lambda: ProviderProcess(configuration), lambda process: (BEGIN, *fog_script(process)))
    own = replace(cloud_settings.provider, **cloud)
    cloud_configuration = replace(cloud_settings, provider=own, fogs=("fog-1",), pads=pads)
    from_cloud = []

    def cloud_script(process):
        for messages, (_, until, kinds) in zip(published, windows, strict=True):
            for topic, payload in messages:
                if topic == topics.aggregate("fog-1"):
                    yield lambda payload=payload: process.receive(
                        topics.aggregate("fog-1"), payload
                    )
            if kinds["forward"]:
                yield grant(until, **kinds)
                yield lambda: from_cloud.append(process.relay.take())

    follow(
        lambda: ProviderProcess(cloud_configuration),
        lambda process: (BEGIN, *cloud_script(process)),
    )
    return published, from_cloud


def sizes(published):
    """Return what an observer sees of each window: topics and sizes, in order."""
    return [[(topic, len(payload)) for topic, payload in window] for window in published]


def content(published, kind, field, topics):
    """Return all that the messages on some topics hold, over the whole run."""
    return [
        (item.job, getattr(item, "cluster", None), getattr(item, "arrival", None) or item.finished)
        for window in published
        for topic, payload in window
        if topic in topics
        for item in getattr(kind.FromString(payload), field)
    ]


@pytest.mark.parametrize("demands_vary", [False, True])
def test_providers_with_other_secrets_and_equal_arrivals_send_equal_sizes(
    tmp_path, monkeypatch, demands_vary
):
    monkeypatch.setattr(message_order, "CHUNK", 5)  # so that messages are split
    parts = Parts(tmp_path)
    fog, cloud = (
        read_settings(parts.split.provider(name, "127.0.0.1:1"), ProviderSettings)
        for name in ("fog-1", "cloud")
    )
    fog, cloud = (
        replace(
            each,
            owners=OWNERS,
            provider=replace(each.provider, demands_vary=demands_vary, forwards=0.5),
        )
        for each in (fog, cloud)
    )
    topics, cases = Topics(parts.run), Counter()
    feedback = {
        name: {topics.feedback(owner, name) for owner in OWNERS} for name in ("fog-1", "cloud")
    }

    def check(jobs, cuts, chances, first, second, clouds):
        coming, windows = {job.job: job for job in jobs}, []
        for end, chance in zip([*cuts, inf], chances, strict=False):
            due = [job for job in coming.values() if job.arrival <= end or chance & 4]
            coming = {key: job for key, job in coming.items() if job not in due}
            flush = end == inf or bool(chance & 1)
            kinds = {"forward": flush or bool(chance & 2), "flush": flush, "last": end == inf}
            windows.append((due, end, kinds))
        runs = [
            run_chain(fog, cloud, windows, own, clouds[place])
            for place, own in enumerate((first, second))
        ]
        for of_one, of_other in zip(*runs, strict=True):
            assert sizes(of_one) == sizes(of_other)
        # What is sent is what was sent before there was padding, only earlier or later.
        for own, own_cloud, padded in zip((first, second), clouds, runs, strict=True):
            plain = run_chain(fog, cloud, windows, own, own_cloud, pads=False)
            for name, before, now in zip(feedback, plain, padded, strict=True):
                for kind, field, on in (
                    (Aggregates, "aggregates", {topics.aggregate(name)}),
                    (Feedback, "results", feedback[name]),
                ):
                    sent = content(now, kind, field, on)
                    assert sorted(sent) == sorted(content(before, kind, field, on))
                    cases[f"{name} sends {field}"] += bool(sent)
                cases[f"{name} without padding, other sizes"] += sizes(before) != sizes(now)
        plain = [
            run_chain(fog, cloud, windows, own, clouds[place], pads=False)
            for place, own in enumerate((first, second))
        ]
        for name, of_one, of_other in zip(feedback, *plain, strict=True):
            cases[f"{name} gave itself away"] += sizes(of_one) != sizes(of_other)
        cases["split"] += any(len(jobs) > 5 for jobs, _, _ in windows)

    expected = {
        *("fog-1 sends aggregates", "fog-1 sends results", "cloud sends results", "split"),
        *(f"{name} without padding, other sizes" for name in feedback),
        *(f"{name} gave itself away" for name in feedback),
    }

    def reached():
        return {case for case, number in cases.items() if number} == expected

    explore(
        check,
        reached,
        examples=40,
        jobs=st.lists(placed, min_size=1, max_size=25),
        cuts=st.lists(times, max_size=5, unique=True).map(sorted),
        chances=st.lists(st.integers(0, 7), min_size=6, max_size=6),
        first=secrets,
        second=secrets,
        clouds=st.tuples(secrets, secrets),
    )
    assert reached(), cases


def test_a_message_has_a_slot_for_each_job_that_arrived_and_no_more():
    config = replace(make_world().fogs[0], forwards=0.5)
    slot = aggregate_slot(2, 2, demands_vary=False)
    serving = ProviderCore(config, OWNERS)
    serving.accept([Placement(job=n, cluster=0, arrival=1.0 + n) for n in range(3)])
    output = serving.process_window(Grant(until=2.5, forward=True, flush=True))
    (aggregates,), (one,), (two,) = output.aggregates, *output.feedback.values()
    assert aggregates.ByteSize() == Aggregates(sequence=1).ByteSize() + 2 * slot
    assert one.ByteSize() == Feedback(sequence=1).ByteSize() + 2 * RESULT_SLOT
    assert two.ByteSize() == Feedback(sequence=1).ByteSize()
    assert [result.job for result in one.results] == [0, 1]


@pytest.mark.parametrize("job", [1, 2**56, 2**63 - 1, 2**63, 2**64 - 1])
def test_any_content_fits_its_slots(job):
    """Without spare bytes a slot that content fills up to one byte could not be padded."""
    config = replace(make_world().fogs[0], forwards=1.0)
    serving = ProviderCore(config, OWNERS)
    serving.accept([Placement(job=job, cluster=1, category=1, arrival=1.0)])
    output = serving.process_window(Grant(until=2.0, forward=True, flush=True))
    (aggregates,), (feedback,) = output.aggregates, output.feedback["two"]
    assert [item.job for item in (*aggregates.aggregates, *feedback.results)] == [job, job]
    slot = aggregate_slot(2, 2, demands_vary=False)
    assert aggregates.ByteSize() == Aggregates(sequence=1).ByteSize() + slot
    assert feedback.ByteSize() == Feedback(sequence=1).ByteSize() + RESULT_SLOT


def test_the_cloud_pads_no_more_than_it_received_whatever_it_is_sent():
    cloud = ProviderCore(make_world().cloud_provider, OWNERS)
    message = Aggregates(sequence=1, padding=[b""] * 20_000)
    cloud.accept_aggregates(message, "fog-1")
    output = cloud.process_window(Grant(until=inf, forward=True, flush=True, last=True))
    for (feedback,) in output.feedback.values():
        assert feedback.ByteSize() <= message.ByteSize()


# --- what cannot be padded -----------------------------------------------------------------------


def test_providers_whose_sizes_tell_secrets_are_named_when_the_run_starts():
    command = ("run", "tiny", "--policy", "random", "--federated", "--horizon", 100)
    done = fogveil(*command, "--set", "fog.discipline=sjf")
    assert done.returncode == 0, done.stderr
    sentence = "NOT PROTECTED: with discipline sjf the sizes of a provider's messages tell how many"
    assert done.stderr.count(sentence) == 1
    for protected in ({}, {"cloud__discipline": "sjf"}):  # the Cloud sends all results at the end
        assert exposed_sizes(build_world(make_scenario(**protected))) is None


# --- the attack ----------------------------------------------------------------------------------


def relayed_sizes(folder, *, pads, **speeds):
    """Run tiny under a policy that ignores counts; return the sizes of providers' messages.

    They are those that the broker delivered, by topic.
    """
    scenario, policy = make_scenario(horizon=5000, **speeds), f"{OWN}:Ahead"
    plan = Plan(
        (policy,), window=8, record=True, source_processes=2, separate_users=False, pads=pads
    )
    world = build_world(scenario)
    with create_testbed(world, plan, folder) as testbed:
        testbed.wait()
    assert join(world, testbed.split, 0, []) == embedded_hash(scenario, policy)
    relayed: dict[str, list[int]] = {}
    for name in ("cloud", *testbed.split.roster.sources):
        for crossing in read_recording(testbed.split.folder_of(name) / TRAFFIC):
            if crossing.kind == DELIVERY:
                assert not crossing.unexplained
                relayed.setdefault(crossing.method_name, []).append(len(crossing.payload))
    return relayed


@pytest.mark.parametrize("pads", [True, False])
def test_the_bytes_that_providers_send_tell_nothing_of_their_speeds(tmp_path, pads):
    one = relayed_sizes(tmp_path / "one", pads=pads)
    other = relayed_sizes(
        tmp_path / "other", pads=pads, fog__ipt=[3000.0, 150.0, 400.0], cloud__ipt=700.0
    )
    aggregates = {f"aggregate/fog-{fog}" for fog in (1, 2, 3)}
    results = {
        f"feedback/sources-{number}/{name}"
        for number in (1, 2)
        for name in ("fog-1", "fog-2", "fog-3", "cloud")
    }
    assert set(one) == set(other) == aggregates | results
    assert all(len(one[topic]) > 30 for topic in aggregates)
    assert all(len(one[topic]) == 2 for topic in results)
    differing = {topic for topic in one if one[topic] != other[topic]}
    # Without padding only chance makes the sizes of the Cloud's messages equal.
    assert not differing if pads else differing >= aggregates
