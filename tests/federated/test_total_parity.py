"""Level `total` where providers come and go: one run hash, and masks anew for each change."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest
from federated_support import embedded_hash, make_scenario
from typer.testing import CliRunner

from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.testbed.cli.app import app
from fogveil.testbed.experiments.embedded_training import train
from fogveil.testbed.launch.federated_run import run_federated
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.privacy.inspect.recordings import read_recording
from fogveil.v1.total_pb2 import KeyAnnouncement

POLICIES = Path(__file__).parent / "total_policies.py"
LOOKS, AHEAD = f"{POLICIES}:LooksAtTotal", f"{POLICIES}:AheadOfTotals"
ALL, WITHOUT_1, WITHOUT_2, WITHOUT_3 = (
    ("fog-1", "fog-2", "fog-3", "cloud"),
    ("fog-2", "fog-3", "cloud"),
    ("fog-1", "fog-3", "cloud"),
    ("fog-1", "fog-2", "cloud"),
)


def leave(at, node, **gone):
    return {"at": at, "kind": "leave", "node": node, **gone}


def join(at, node):
    return {"at": at, "kind": "join", "node": node}


def crash(at, node, back):
    return {"at": at, "kind": "crash", "node": node, "back": back}


EVENTS = {
    "leaves": ([leave(300.0, "fog-1"), join(600.0, "fog-1")], [ALL]),
    "is gone": ([leave(300.0, "fog-1", gone=400.0), join(600.0, "fog-1")], [ALL, WITHOUT_1, ALL]),
    "stays away": ([leave(300.0, "fog-1", gone=300.0)], [ALL, WITHOUT_1]),
    "crashes": ([crash(300.0, "fog-1", 500.0)], [ALL, WITHOUT_1, ALL]),
    "crashes at once again": (
        [crash(300.0, "fog-1", 400.0), crash(400.0, "fog-1", 500.0)],
        [ALL, WITHOUT_1, ALL],
    ),
}
"""Events, and the members in each epoch of an episode."""
TOGETHER = (
    [
        join(150.0, "fog-3"),
        leave(200.0, "fog-1", gone=300.0),
        join(450.0, "fog-1"),
        crash(450.0, "fog-2", 600.0),
        crash(600.0, "fog-3", 700.0),
        leave(750.0, "fog-1"),
        leave(800.0, "fog-2", gone=900.0),
    ],
    [ALL, WITHOUT_3, ALL, WITHOUT_1, WITHOUT_2, WITHOUT_3, ALL, WITHOUT_2],
)
"""Two nodes change places, one crashes as another is back, one drains, one stays away."""


@pytest.fixture(scope="module")
def parl(tmp_path_factory):
    """The paper's agent, trained briefly without any event."""
    scenario = make_scenario(disclosure="total", horizon=500.0)
    few = Hyperparameters(buffer_capacity=500, training_steps=20, layers=(8,))
    return str(train(scenario, "parl", tmp_path_factory.mktemp("parl"), few))


def check(folder, events, memberships, policies, **overrides):
    scenario = make_scenario(disclosure="total", events=events, **overrides)
    plan = Plan(policies=policies, broker="builtin", record=True, separate_users=False)
    results = run_federated(scenario, plan, folder)
    for policy, result in zip(policies, results, strict=True):
        assert result["run_hash"] == embedded_hash(scenario, policy), policy
    check_epochs(folder, memberships * len(results))


def test_the_run_is_the_embedded_engines_and_each_change_has_an_epoch(parl, tmp_path):
    """Lockstep and pipelined, several episodes on one testbed: it begins each with all members."""
    check(tmp_path, *TOGETHER, (LOOKS, AHEAD, parl), horizon=1000.0, sources__scale=40.0)
    # What crossed before a crash is recorded, too: the same by those who remain.
    result = CliRunner().invoke(app, ["inspect", str(tmp_path), "--summary", "--json"])
    assert result.exit_code == 0, result.output


@pytest.mark.slow
@pytest.mark.parametrize("kind", EVENTS)
def test_each_kind_of_change_has_one_run_hash(kind, parl, tmp_path):
    check(tmp_path, *EVENTS[kind], (LOOKS, AHEAD, parl), horizon=1000.0, sources__scale=30.0)


def check_epochs(folder, memberships):
    """Every member announced one key of its own in each epoch, and the same list of members."""
    found: dict[int, dict[str, KeyAnnouncement]] = {}
    # The Cloud neither crashes nor leaves: it was delivered all keys, its own among them.
    for crossing in read_recording(folder / "participants" / "cloud" / "traffic.jsonl"):
        if crossing.kind == "delivery" and crossing.method_name.startswith("keys/"):
            message = KeyAnnouncement.FromString(crossing.payload)
            assert found.setdefault(message.epoch, {}).setdefault(message.name, message) == message
    expected = [members for members, _ in groupby(memberships)]
    assert sorted(found) == [*range(len(expected))]
    for epoch, members in enumerate(expected):
        announced = found[epoch]
        assert set(announced) == set(members)
        assert all(tuple(each.membership) == members for each in announced.values())
    keys = [each.public_key for announced in found.values() for each in announced.values()]
    assert len(set(keys)) == len(keys)


@pytest.mark.slow
@pytest.mark.parametrize("window", [0, 1, 7])
def test_our_own_policies_have_one_run_hash(window):
    scenario = make_scenario(disclosure="total", events=TOGETHER[0])
    plan = Plan(policies=("ti-setr", AHEAD, "veil-total"), broker="builtin", window=window)
    for policy, result in zip(plan.policies, run_federated(scenario, plan), strict=True):
        assert result["run_hash"] == embedded_hash(scenario, policy), policy
