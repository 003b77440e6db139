"""The agent's part of a training: public facts and a folder, and no engine."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
from support import SCENARIOS, make_world

from fogveil.agent.learning.checkpoint import read_checkpoint, read_header
from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.training_state import AGENT_FILE, CHECKPOINT, TrainingState
from fogveil.core.errors import InputError
from fogveil.core.version import source_commit
from fogveil.testbed.engine.embedded import simulate
from fogveil.testbed.experiments.embedded_training import train
from fogveil.testbed.records.training_log import log_episodes, resume_log
from fogveil.testbed.scenario import load_scenario

HYPERPARAMETERS = Hyperparameters(
    buffer_capacity=2000, training_steps=120, layers=(16,), batch_size=8
)


@pytest.fixture(scope="module")
def world():
    return make_world()


def run_episode(training, world):
    training.begin()
    simulate(world.drawn(training.episodes + 1), training.agent)
    return training.end()


def test_a_training_is_its_draws_one_after_the_other(world, tmp_path):
    """Whoever runs the episodes, the draws and the public facts make the weights."""
    light = train(world.scenario, "parl", tmp_path / "train", HYPERPARAMETERS)
    training = TrainingState(world.agent, "parl", HYPERPARAMETERS, tmp_path / "own")
    assert not training.resume()
    while not training.finished:
        run_episode(training, world)
    expected, actual = (read_checkpoint(path) for path in (light, training.save_agent()))
    assert actual.header == expected.header
    np.testing.assert_array_equal(*(c.arrays["learner_online"] for c in (actual, expected)))


def test_it_stops_and_goes_on(world, tmp_path):
    whole, first = (TrainingState(world.agent, "parl", HYPERPARAMETERS, tmp_path) for _ in range(2))
    expected = [run_episode(whole, world) for _ in range(4)]
    resumed = [run_episode(first, world) for _ in range(2)]
    first.save()
    later = TrainingState(world.agent, "parl", HYPERPARAMETERS, tmp_path)
    assert later.resume()
    assert later.episodes == 2
    resumed += [run_episode(later, world) for _ in range(2)]
    assert [f._replace(cpu_seconds=0) for f in resumed] == [
        f._replace(cpu_seconds=0) for f in expected
    ]
    spent = [figures.cpu_seconds for figures in resumed]
    assert spent == sorted(spent), "what was spent before the stop counts, too"
    assert [figures.episode for figures in resumed] == [0, 1, 2, 3]
    assert resumed[0].phase == "buffer population"
    assert resumed[0].decisions > 50
    whole_state, later_state = whole.agent.state(), later.agent.state()
    for name, array in whole_state.items():
        np.testing.assert_array_equal(later_state[name], array, err_msg=name)


def test_what_it_cannot_be_is_refused(world, tmp_path):
    with pytest.raises(InputError, match="needs disclosure level 'total'"):
        TrainingState(make_world(disclosure="none").agent, "parl", None, tmp_path)
    with pytest.raises(InputError, match="no agent is called 'best'"):
        TrainingState(world.agent, "best", None, tmp_path)
    TrainingState(world.agent, "parl", HYPERPARAMETERS, tmp_path).save()
    for other in (
        TrainingState(world.agent, "plrl-ql", HYPERPARAMETERS, tmp_path),
        TrainingState(make_world("stress").agent, "parl", HYPERPARAMETERS, tmp_path),
        TrainingState(world.drawn(1).agent, "parl", HYPERPARAMETERS, tmp_path),
    ):
        with pytest.raises(InputError, match=f"{CHECKPOINT}: belongs to another training"):
            other.resume()
    assert not (tmp_path / AGENT_FILE).exists()


def test_the_log_is_kept_for_episodes_from_anywhere(world, tmp_path):
    training = TrainingState(world.agent, "parl", HYPERPARAMETERS, tmp_path / "agent")
    scenario = load_scenario(SCENARIOS / "tiny.toml")
    noted = []
    figures = [run_episode(training, world) for _ in range(3)]
    out = tmp_path / "experimenter"
    out.mkdir()
    log_episodes(out, resume_log(out, scenario, 0), ((f, 7.5) for f in figures), noted.append)
    assert [done.fog_loop for done in noted] == [7.5] * 3
    assert noted[2].last_returns == pytest.approx(np.mean([f.returned for f in figures]))
    assert resume_log(out, scenario, 3) == [vars(done) for done in noted]
    # The agent's checkpoint was behind: what came after it is run again.
    before = resume_log(out, scenario, 1)
    log_episodes(out, before, [(figures[1], None)])
    assert [line["fog_loop"] for line in resume_log(out, scenario, 2)] == [7.5, None]
    with pytest.raises(InputError, match="belongs to another scenario or log"):
        resume_log(out, scenario, 3)
    with pytest.raises(InputError, match="belongs to another scenario or log"):
        resume_log(out, load_scenario(SCENARIOS / "tiny.toml", {"seed": 2}), 2)


def test_git_is_asked_for_the_commit_only_when_a_checkpoint_is_written(
    world, tmp_path, monkeypatch
):
    commands = []

    def run(command, **_options):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, stdout="abc-dirty\n")

    source_commit.cache_clear()
    monkeypatch.setattr(subprocess, "run", run)
    training = TrainingState(world.agent, "parl", HYPERPARAMETERS, tmp_path)
    training.resume()
    run_episode(training, world)
    assert commands == []
    training.save()
    training.save_agent()
    source_commit.cache_clear()
    assert [command[0] for command in commands] == ["git"] * 2
    for name in (CHECKPOINT, AGENT_FILE):
        assert read_header(tmp_path / name)["commit"] == "abc-dirty"
