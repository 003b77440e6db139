"""Level `total` with real processes: the same runs as from plain counts, but no count crosses."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import grpc
import numpy as np
import pytest
from grpc import aio
from support import ONE_NODE, SCENARIOS, make_world

from fogveil.agent.decision_record import read_record, record_path
from fogveil.agent.learning.checkpoint import read_checkpoint
from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.core.errors import InputError
from fogveil.protocol.identity import AGENT, CLOUD, PROVIDER, Identity
from fogveil.provider_node.masking import MODULUS
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.experiments.embedded_training import train
from fogveil.testbed.experiments.federated_training import train_federated
from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.federated_run import run_federated
from fogveil.testbed.launch.participant_config import Plan, check
from fogveil.testbed.privacy.inspect.recordings import read_recording
from fogveil.testbed.scenario import load_scenario
from fogveil.v1.boundary_pb2 import WatchRequest
from fogveil.v1.boundary_pb2_grpc import QueueServiceStub
from fogveil.v1.full_pb2_grpc import ResourcesServiceStub
from fogveil.v1.total_pb2 import TotalServiceWatchRequest
from fogveil.v1.total_pb2_grpc import TotalServiceStub

HYPERPARAMETERS = Hyperparameters(
    buffer_capacity=1000, training_steps=60, layers=(16, 8), target_update_period=100
)
MEMBERS = ("fog-1", "fog-2", "fog-3", "cloud")


def tiny(level="total"):
    return load_scenario(SCENARIOS / "tiny.toml", {"disclosure": level})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The paper's agent, trained briefly by the embedded engine."""
    return train(tiny(), "parl", tmp_path_factory.mktemp("parl"), HYPERPARAMETERS)


@pytest.mark.parametrize("window", [0, 1])
def test_the_run_is_that_of_plain_counts_added_up_by_the_engine(trained, tmp_path, window):
    policies = (str(trained), "round-robin", str(trained))
    plan = Plan(policies=policies, window=window, record=True)
    results = run_federated(tiny(), plan, tmp_path)
    for policy, result in zip(policies, results, strict=True):
        expected = {run_embedded(tiny(level), policy)["run_hash"] for level in ("total", "count")}
        assert {result["run_hash"]} == expected
    episodes = [record_path(tmp_path / "participants" / "agent", number) for number in (0, 1, 2)]
    totals = [decision.counts for path in episodes for decision in read_record(path)]
    check_what_crossed(tmp_path, [total for seen in totals for total in seen])


def check_what_crossed(folder, totals):
    """The agent received shares, which hide the counts and add up to the totals it was shown."""
    shares = defaultdict(list)
    for crossing in read_recording(folder / "participants" / "agent" / "traffic.jsonl"):
        if crossing.kind == "response" and "ClockService" not in crossing.method:
            assert crossing.method == "/fogveil.v1.TotalService/Watch"
            assert set(crossing.fields) == {"shares"}
            shares[crossing.sender] += crossing.message.shares
    assert set(shares) == set(MEMBERS)
    received = np.array([shares[name] for name in MEMBERS], np.uint64)
    assert (received.sum(axis=0) % MODULUS).tolist() == totals
    assert 0 < max(totals) < 100 < len(totals)
    assert (received > 2**24).mean() > 0.98
    for row in received:
        assert len(np.unique(row)) >= len(row) - 1


def test_training_gives_the_weights_of_plain_counts(trained, tmp_path):
    light = train_federated(tiny(), "parl", tmp_path, Plan(), HYPERPARAMETERS)
    (_, arrays), (_, expected) = read_checkpoint(light), read_checkpoint(trained)
    assert arrays.keys() == expected.keys()
    for name, values in expected.items():
        assert np.array_equal(arrays[name], values)


def test_a_provider_serves_shares_and_nothing_else(tmp_path):
    plan = Plan(policies=("round-robin",), separate_users=False)
    with create_testbed(make_world(disclosure="total"), plan, tmp_path, hold=True) as testbed:
        credentials = testbed.split.identify(AGENT, AGENT, tmp_path / "again")
        for name in MEMBERS:
            peer = Identity(testbed.run, CLOUD if name == "cloud" else PROVIDER, name)
            asyncio.run(check_services(credentials, testbed.addresses[name], peer))


async def check_services(credentials, address, peer):
    override = [("grpc.ssl_target_name_override", peer.host)]
    async with aio.secure_channel(address, credentials.for_channel(), options=override) as channel:
        for call in (
            QueueServiceStub(channel).Watch(WatchRequest()),
            ResourcesServiceStub(channel).Look(),
        ):
            assert await call.code() is grpc.StatusCode.UNIMPLEMENTED
        watching = TotalServiceStub(channel).Watch(TotalServiceWatchRequest())
        assert await watching.initial_metadata() is not None
        watching.cancel()


@pytest.mark.parametrize(
    ("plan", "changes", "sentence"),
    [
        (Plan(secure=False), {}, "'total' needs identities, with which the providers sign"),
        (
            Plan(),
            {"topology": ONE_NODE, "fog__ipt": 100.0, "fog__ram": 10.0},
            "at least 3 members, with the Cloud: with fog, cloud",
        ),
        (Plan(policies=("jsq",)), {}, "policy jsq needs disclosure level 'count'"),
    ],
)
def test_an_impossible_total_is_refused_before_anything_starts(plan, changes, sentence):
    with pytest.raises(InputError, match=sentence):
        check(plan, make_world(disclosure="total", **changes))
