"""An agent that learns at work gives one run in all modes, and what it learned is the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from federated_support import fogveil, make_scenario, once

from fogveil.agent.drift_record import drifts_path
from fogveil.agent.learning.adaptation import AdaptationRequest
from fogveil.agent.learning.adapting import Adapt
from fogveil.agent.learning.checkpoint import read_checkpoint
from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.registry import find_agent
from fogveil.agent.learning.transfer import Transfer
from fogveil.core.errors import InfrastructureError, InputError
from fogveil.protocol.identity import AGENT
from fogveil.testbed.engine.adapting_run import run_adapting
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.experiments.embedded_training import train
from fogveil.testbed.experiments.federated_training import train_federated
from fogveil.testbed.launch.agent_files import describe_adaptation
from fogveil.testbed.launch.federated_run import run_federated
from fogveil.testbed.launch.participant_config import Plan, check_windows
from fogveil.testbed.scenario.world import build_world

AGENTS = ("parl", "veil", "plrl-ql")
BRIEFLY = {
    "buffer_capacity": 1000,
    "training_steps": 40,
    "layers": (16,),
    "batch_size": 8,
    "target_update_period": 50,
    "learning_rate": 0.02,
}
EAGER = {
    "buffer_capacity": 500,
    "buffer_population": 0.05,
    "epsilon_first": 0.5,
    "epsilon_last": 0.3,
    "learning_rate": 0.02,
    "training_steps": 10,
    "drift_block": 2,
    "drift_reference": 4,
    "drift_threshold": 1.0,
    "drift_tolerance": 0.1,
}
"""Drifts without any change, and learning at once: the test is of the modes."""


def scenario():
    return make_scenario(horizon=1500)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The light files of agents that were trained briefly, by name."""

    def make(folder: Path):
        files = {}
        for name in AGENTS:
            values = find_agent(name).defaults.model_copy(update=BRIEFLY)
            files[name] = str(train(scenario(), name, folder / name, values))
        return files

    return once(tmp_path_factory, "to-adapt", make)


def differing(one: Path, other: Path) -> list[str]:
    a, b = read_checkpoint(one).arrays, read_checkpoint(other).arrays
    assert a.keys() == b.keys()
    return [name for name in a if not np.array_equal(a[name], b[name])]


@pytest.mark.parametrize("adapt", list(Adapt))
@pytest.mark.parametrize(("name", "windows"), [("parl", (0, 1)), ("veil", (0,)), ("plrl-ql", (0,))])
def test_the_run_the_drifts_and_the_weights_are_those_of_the_embedded_run(
    name, windows, adapt, trained, tmp_path
):
    policy, request = trained[name], AdaptationRequest(adapt, EAGER)
    expected = run_adapting(scenario(), policy, request, tmp_path / "embedded")
    greedy = run_embedded(scenario(), policy)
    assert expected["run_hash"] != greedy["run_hash"], "else nothing was learned"
    assert (adapt is Adapt.AUTO) == bool(expected["adaptation"])
    for window in windows:
        plan = Plan((policy,), window=window, adaptation=request)
        out = tmp_path / f"window-{window}"
        (result,) = run_federated(scenario(), plan, out)
        for key in ("run_hash", "adapt", "adaptation", "level", "policy", "label"):
            assert result[key] == expected[key], key
        for file in ("agent.npz", "checkpoint.npz"):
            assert differing(out / "adapted" / file, tmp_path / "embedded/adapted" / file) == []


EVENTS = [
    {"at": 401.0, "kind": "leave", "node": "fog-1"},
    {"at": 555.0, "kind": "crash", "node": "fog-2", "back": 700.0},
    {"at": 803.0, "kind": "join", "node": "fog-1"},
    {"at": 900.0, "kind": "speed", "node": "fog-3", "factor": 0.5},
]


@pytest.mark.parametrize("name", ["parl", "veil"])
def test_a_world_that_changes_while_it_learns_gives_one_run(name, trained):
    """Windows are cut where members change, and still end where the weights change."""
    changing = make_scenario(horizon=1500, events=EVENTS)
    request = AdaptationRequest(Adapt.AUTO, EAGER)
    expected = run_adapting(changing, trained[name], request)
    (result,) = run_federated(changing, Plan((trained[name],), adaptation=request))
    assert result["run_hash"] == expected["run_hash"]
    assert result["adaptation"] == expected["adaptation"] != []


def test_what_it_learned_is_a_policy_and_can_be_trained_on(trained, tmp_path):
    request = AdaptationRequest(Adapt.ON, EAGER)
    run_adapting(scenario(), trained["parl"], request, tmp_path / "run")
    before, after = (read_checkpoint(path).arrays["learner_online"] for path in
                     (Path(trained["parl"]), tmp_path / "run/adapted/agent.npz"))  # fmt: skip
    assert (before != after).any()
    again = run_embedded(scenario(), str(tmp_path / "run/adapted/agent.npz"))
    assert again["label"] == "adapted"
    transfer = Transfer(tmp_path / "run/adapted/checkpoint.npz", replay=True)
    light = train(scenario(), "parl", tmp_path / "later", transfer=transfer)
    assert read_checkpoint(light).header["started_from"]["sha256"] == transfer.digest


def test_a_transfer_gives_equal_weights_in_all_modes(trained, tmp_path):
    transfer = Transfer(Path(trained["parl"]))
    values = Hyperparameters(**{**BRIEFLY, "buffer_population": 0.1, "epsilon_first": 0.1})
    train(scenario(), "parl", tmp_path / "embedded", values, transfer=transfer)
    train_federated(scenario(), "parl", tmp_path / "federated", Plan(), values, transfer=transfer)
    files = [tmp_path / mode / "checkpoint.npz" for mode in ("embedded", "federated")]
    assert differing(*files) == []
    headers = [read_checkpoint(file).header for file in files]
    assert (
        headers[0]["started_from"]
        == headers[1]["started_from"]
        == {
            "sha256": transfer.digest,
            "replay": False,
        }
    )


def test_windows_that_would_cross_a_change_of_the_weights_are_refused(trained):
    plan = Plan((trained["parl"],), window=64, adaptation=AdaptationRequest(Adapt.ON))
    with pytest.raises(InputError, match="--window 64: with --adapt a window ends where the agent"):
        check_windows(plan, build_world(scenario()))
    check_windows(replace(plan, window=1), build_world(scenario()))


def test_a_drift_that_the_decisions_do_not_have_is_refused(trained, tmp_path):
    request = AdaptationRequest(Adapt.AUTO, EAGER)
    path = drifts_path(tmp_path, 0)
    view = build_world(scenario()).agent
    for line in ("4,1.5,the sum rises,2.0,1.0,", "x", "1,nan,a,1.0,1.0,", "1,1.0,a;b,1.0,1.0,"):
        path.write_text(f"decision,time,signal,statistic,threshold,until\n{line}\n")
        with pytest.raises(InfrastructureError, match="^the agent's record drifts-0000.csv"):
            describe_adaptation(trained["parl"], view, request, path, [])


def test_the_command_says_when_and_repeats_the_run(trained, tmp_path):
    file = tmp_path / "h.toml"
    file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in EAGER.items()))
    words = ("run", "tiny", "--policy", trained["parl"], "--disclosure", "total", "--horizon", 1500)
    done = fogveil(*words, "--adapt=auto", "--hyperparameters", file, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "drift at time" in done.stderr
    assert "the sum of queued jobs" in done.stderr
    again = fogveil("run", "--repeat", tmp_path / "run", "--federated", "--seed", 1,
                    "--out", tmp_path / "again")  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert "the run hash is that of" in again.stderr
    log = (tmp_path / "again/testbed.log").read_text()
    assert "drift at time" in log
    assert AGENT in log
