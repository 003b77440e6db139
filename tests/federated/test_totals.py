"""Level `total` with real processes: the paper's agent as from plain counts, and no count told."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import grpc
import numpy as np
import pytest
from grpc import aio
from support import ONE_NODE, SCENARIOS, make_world

from agent.learning.checkpoint import read_checkpoint
from agent.learning.hyperparameters import Hyperparameters
from agent.record import read_record, record_path
from fogveil.errors import InputError
from fogveil.identity import AGENT, CLOUD, PROVIDER, Identity
from fogveil.v1.boundary_pb2 import WatchRequest
from fogveil.v1.boundary_pb2_grpc import QueueServiceStub
from fogveil.v1.full_pb2_grpc import ResourcesServiceStub
from fogveil.v1.total_pb2 import TotalServiceWatchRequest
from fogveil.v1.total_pb2_grpc import TotalServiceStub
from provider_node.masking import MODULUS
from testbed.federated.launch import Testbed
from testbed.federated.run import run_federated
from testbed.federated.split import Plan, check
from testbed.federated.training import train_federated
from testbed.run import run_embedded
from testbed.scenario import load_scenario
from testbed.traffic import read_traffic
from testbed.training import train

GIVEN = Hyperparameters(
    buffer_capacity=1000, training_steps=60, layers=(16, 8), target_update_period=100
)
MEMBERS = ("fog-1", "fog-2", "fog-3", "cloud")


def tiny(level="total"):
    return load_scenario(SCENARIOS / "tiny.toml", {"disclosure": level})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The paper's agent, trained for a moment by the embedded engine."""
    return train(tiny(), "parl", tmp_path_factory.mktemp("parl"), GIVEN)


@pytest.mark.parametrize("window", [0, 1])
def test_the_run_is_that_of_plain_counts_added_up_by_the_engine(trained, tmp_path, window):
    policies = (str(trained), "round-robin", str(trained))
    plan = Plan(policies=policies, window=window, record=True)
    results = run_federated(tiny(), plan, tmp_path)
    for policy, result in zip(policies, results, strict=True):
        expected = {run_embedded(tiny(level), policy)["run_hash"] for level in ("total", "count")}
        assert {result["run_hash"]} == expected
    episodes = [record_path(tmp_path / "participants" / "agent", number) for number in (0, 1, 2)]
    totals = [decision.seen for path in episodes for decision in read_record(path)]
    check_what_crossed(tmp_path, [total for seen in totals for total in seen])


def check_what_crossed(folder, totals):
    """The agent got shares, which hide the counts and add up to the totals it was shown."""
    shares = defaultdict(list)
    for crossing in read_traffic(folder / "participants" / "agent" / "traffic.jsonl"):
        if crossing.kind == "response" and "ClockService" not in crossing.method:
            assert crossing.method == "/fogveil.v1.TotalService/Watch"
            assert set(crossing.fields) == {"shares"}
            shares[crossing.sender] += crossing.message.shares
    assert set(shares) == set(MEMBERS)
    told = np.array([shares[name] for name in MEMBERS], np.uint64)
    assert (told.sum(axis=0) % MODULUS).tolist() == totals
    assert 0 < max(totals) < 100 < len(totals)
    assert (told > 2**24).mean() > 0.98
    for row in told:
        assert len(np.unique(row)) >= len(row) - 1


def test_training_gives_the_weights_of_plain_counts(trained, tmp_path):
    light = train_federated(tiny(), "parl", tmp_path, Plan(), GIVEN)
    (_, made), (_, expected) = read_checkpoint(light), read_checkpoint(trained)
    assert made.keys() == expected.keys()
    for name, values in expected.items():
        assert np.array_equal(made[name], values)


def test_a_provider_serves_shares_and_nothing_else(tmp_path):
    plan = Plan(policies=("round-robin",), separate_users=False)
    with Testbed(make_world(disclosure="total"), plan, tmp_path, hold=True) as testbed:
        own = testbed.split.identify(AGENT, AGENT, tmp_path / "again")
        for name in MEMBERS:
            peer = Identity(testbed.run, CLOUD if name == "cloud" else PROVIDER, name)
            asyncio.run(look_around(own, testbed.addresses[name], peer))


async def look_around(own, address, peer):
    override = [("grpc.ssl_target_name_override", peer.host)]
    async with aio.secure_channel(address, own.for_channel(), options=override) as channel:
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
        (Plan(secure=False), {}, "'total' needs identities, by which the providers sign"),
        (
            Plan(),
            {"topology": ONE_NODE, "fog__ipt": 100.0, "fog__ram": 10.0},
            "at least 3 members, with the Cloud: with fog, cloud",
        ),
        (Plan(policies=("jsq",)), {}, "policy jsq needs disclosure level 'count'"),
    ],
)
def test_what_cannot_be_a_total_is_refused_before_anything_starts(plan, changes, sentence):
    with pytest.raises(InputError, match=sentence):
        check(plan, make_world(disclosure="total", **changes))
