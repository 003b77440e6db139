"""Training gives the same weights embedded, in lockstep and pipelined, also when interrupted."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from federated_support import GONE_WITHIN, embedded_hash, make_scenario, once, started, wait_until
from support import ROOT

from fogveil.agent.learning.checkpoint import read_checkpoint, read_header
from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.registry import find_agent
from fogveil.agent.learning.training_state import AGENT_FILE, CHECKPOINT, EpisodeFigures
from fogveil.core.errors import InfrastructureError, InputError
from fogveil.protocol.identity import AGENT
from fogveil.testbed.experiments.embedded_training import train
from fogveil.testbed.experiments.federated_training import train_federated
from fogveil.testbed.launch.federated_run import run_federated
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.launch.reports import parse_report
from fogveil.testbed.records.training_log import LOG

HYPERPARAMETERS = Hyperparameters(
    buffer_capacity=2000,
    training_steps=450,
    layers=(32, 16),
    batch_size=16,
    target_update_period=200,
)
LONGER = HYPERPARAMETERS.model_copy(update={"training_steps": 2500})


def differing(one: Path, other: Path) -> list[str]:
    """Return the arrays in which two trainings differ."""
    a, b = (read_checkpoint(folder / CHECKPOINT) for folder in (one, other))
    assert a.arrays.keys() == b.arrays.keys()
    assert a.header["episodes"] == b.header["episodes"]
    return [name for name in a.arrays if not np.array_equal(a.arrays[name], b.arrays[name])]


def log_of(folder: Path) -> list[dict]:
    lines = [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
    return [{**line, "cpu_seconds": 0} for line in lines]


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    """A training to compare with."""

    def make(folder: Path):
        train(make_scenario(), "parl", folder / "parl", HYPERPARAMETERS)
        return str(folder / "parl")

    return Path(once(tmp_path_factory, "embedded-training", make))


@pytest.mark.parametrize("window", [0, 1], ids=["pipelined", "lockstep"])
def test_the_weights_are_those_of_the_embedded_training(embedded, tmp_path, window):
    light = train_federated(make_scenario(), "parl", tmp_path, Plan(window=window), HYPERPARAMETERS)
    assert read_checkpoint(tmp_path / CHECKPOINT).arrays["counters"][0] >= 2000
    assert differing(tmp_path, embedded) == []
    assert log_of(tmp_path) == log_of(embedded)
    assert (tmp_path / "tensorboard").is_dir()
    assert light == tmp_path / AGENT_FILE
    assert light.read_bytes()[:4] == b"PK\x03\x04"


def test_a_trained_agent_acts_alike_wherever_it_was_trained(tmp_path):
    """And a training that is over is not continued."""
    scenario = make_scenario(disclosure="total")
    plan = Plan(source_processes=2)
    hyperparameters = HYPERPARAMETERS.model_copy(update={"training_steps": 60})
    light = train_federated(scenario, "parl", tmp_path, plan, hyperparameters)
    kept = (tmp_path / CHECKPOINT).read_bytes(), (tmp_path / LOG).read_bytes()
    (result,) = run_federated(scenario, Plan((str(light),)))
    assert result["run_hash"] == embedded_hash(scenario, str(light))
    assert train_federated(scenario, "parl", tmp_path, plan, hyperparameters) == light
    assert kept == ((tmp_path / CHECKPOINT).read_bytes(), (tmp_path / LOG).read_bytes())
    with pytest.raises(InputError, match="belongs to another training: its hyperparameters"):
        train_federated(scenario, "parl", tmp_path, plan, HYPERPARAMETERS)


# --- interrupted ---------------------------------------------------------------------------------

TRIES = 5


def toml(hyperparameters: Hyperparameters) -> str:
    differs = {
        key: value
        for key, value in hyperparameters.model_dump(mode="json").items()
        if value != Hyperparameters().model_dump(mode="json")[key]
    }
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in differs.items())


def begin_and_terminate(out: Path, hyperparameters: Hyperparameters, *options: str) -> None:
    """Begin a training by the command line, and terminate it midway."""
    path = out.with_name(f"{out.name}.toml")
    path.write_text(toml(hyperparameters))
    temporary = out.with_name(f"{out.name}-tmp")
    temporary.mkdir()
    command = (
        "train",
        ROOT / "scenarios/tiny.toml",
        "--agent",
        "parl",
        "--disclosure",
        "full",
        "--seed",
        1,
    )
    command += ("--hyperparameters", path, "--every", 2, "--out", out, *options)
    for _ in range(TRIES):
        shutil.rmtree(out, ignore_errors=True)
        with started(*command, TMPDIR=str(temporary)) as process:
            wait_until(lambda: (out / CHECKPOINT).exists() or process.poll() is not None)
            os.killpg(process.pid, signal.SIGTERM)
            _, said = process.communicate(timeout=GONE_WITHIN)
        if not (out / AGENT_FILE).exists():
            break  # else this test was not given the processor before the training was over
    assert process.returncode == 143, said
    assert not list(temporary.iterdir())
    episodes = read_header(out / CHECKPOINT)["episodes"]
    assert episodes % 2 == 0
    assert len((out / LOG).read_text().splitlines()) >= episodes
    assert not (out / AGENT_FILE).exists()


def test_an_interrupted_federated_training_continues_bit_for_bit_in_either_mode(embedded, tmp_path):
    scenario, begun = make_scenario(), tmp_path / "begun"
    begin_and_terminate(begun, HYPERPARAMETERS, "--federated")
    shutil.copytree(begun, tmp_path / "other")
    train_federated(scenario, "parl", begun, Plan(broker="builtin"), HYPERPARAMETERS, every=2)
    train(scenario, "parl", tmp_path / "other", HYPERPARAMETERS, every=2)
    for folder in (begun, tmp_path / "other"):
        assert differing(folder, embedded) == []
        assert log_of(folder) == log_of(embedded)


def test_an_interrupted_embedded_training_continues_federated(embedded, tmp_path):
    class StoppedError(BaseException):
        pass

    def stop(_agent, episode):
        if episode and episode.episode == 6:
            raise StoppedError

    scenario = make_scenario()
    with pytest.raises(StoppedError):
        train(scenario, "parl", tmp_path, HYPERPARAMETERS, every=3, watch=stop)
    assert read_header(tmp_path / CHECKPOINT)["episodes"] == 6
    train_federated(scenario, "parl", tmp_path, Plan(), HYPERPARAMETERS, every=3)
    assert differing(tmp_path, embedded) == []
    assert log_of(tmp_path) == log_of(embedded)


# --- longer ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["parl", "veil", "plrl-ed", "plrl-ql", "plrl-edql"])
def test_longer_trainings_of_all_agents_give_equal_weights(tmp_path, name):
    scenario = make_scenario()
    hyperparameters = find_agent(name).defaults.model_copy(
        update=LONGER.model_dump(include={"buffer_capacity", "training_steps", "layers"})
    )
    train(scenario, name, tmp_path / "embedded", hyperparameters)
    for window in (0, 1) if name == "parl" else (0,):
        out = tmp_path / f"window-{window}"
        train_federated(scenario, name, out, Plan(window=window), hyperparameters)
        assert differing(out, tmp_path / "embedded") == []


def continue_and_stop(out: Path, number: signal.Signals) -> None:
    """Continue a training until it has written another checkpoint."""

    def episodes() -> int:
        return read_header(out / CHECKPOINT)["episodes"] if (out / CHECKPOINT).exists() else 0

    before = episodes()
    path = out.with_name("h.toml")
    path.write_text(toml(LONGER))
    command = (
        "train",
        ROOT / "scenarios/tiny.toml",
        "--agent",
        "parl",
        "--disclosure",
        "full",
        "--seed",
        1,
    )
    command += ("--hyperparameters", path, "--every", 3, "--out", out, "--federated")
    with started(*command, TMPDIR=str(out.parent)) as process:
        wait_until(lambda: episodes() > before)
        os.killpg(process.pid, number)
        process.communicate(timeout=GONE_WITHIN)
    assert not (out / AGENT_FILE).exists()


@pytest.mark.slow
def test_a_training_that_is_interrupted_many_times_ends_in_the_same_weights(tmp_path):
    scenario, out = make_scenario(), tmp_path / "stopped"
    train(scenario, "parl", tmp_path / "embedded", LONGER)
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
        continue_and_stop(out, number)
    train_federated(scenario, "parl", out, Plan(), LONGER, every=3)
    assert differing(out, tmp_path / "embedded") == []
    assert log_of(out) == log_of(tmp_path / "embedded")


@pytest.mark.parametrize(
    "report",
    [
        {"episode": 5},
        {"episode": {"episode": 1}},
        {"episode": dict.fromkeys(EpisodeFigures._fields, "1")},
        {"agent": "busy"},
        {"agent": {"trained": 1, "phase": 1, "epsilon": 1.0, "loss": 1.0}},
    ],
)
def test_a_report_that_is_none_is_one_sentence(report):
    """In the first version an agent could end the launcher with a traceback."""
    with pytest.raises(InfrastructureError, match="^agent sent the launcher an invalid report: "):
        parse_report(AGENT, AGENT, json.dumps(report))
