"""The agent's own part of a training: it is given public facts and a folder, and runs nothing."""

from __future__ import annotations

import numpy as np
import pytest
from support import SCENARIOS, make_world

from agent.learning.checkpoint import read_checkpoint
from agent.learning.hyperparameters import Hyperparameters
from agent.trainee import CHECKPOINT, LIGHT, Trainee
from fogveil.errors import InputError
from testbed.embedded import simulate
from testbed.scenario import load_scenario
from testbed.training import keep_log, resume_log, train

GIVEN = Hyperparameters(buffer_capacity=2000, training_steps=120, layers=(16,), batch_size=8)


@pytest.fixture(scope="module")
def world():
    return make_world()


def run_episode(trainee, world):
    trainee.begin()
    simulate(world.drawn(trainee.episodes + 1), trainee.agent)
    return trainee.end()


def test_a_training_is_its_draws_one_after_the_other(world, tmp_path):
    """Whoever runs the episodes, the draws and the public facts make the weights."""
    light = train(world.scenario, "parl", tmp_path / "train", GIVEN)
    trainee = Trainee(world.agent, "parl", GIVEN, tmp_path / "own")
    assert not trainee.resume()
    while not trainee.finished:
        run_episode(trainee, world)
    wanted, found = (read_checkpoint(path) for path in (light, trainee.save_light()))
    assert found.header == wanted.header
    np.testing.assert_array_equal(*(c.arrays["learner_online"] for c in (found, wanted)))


def test_it_stops_and_goes_on(world, tmp_path):
    whole, first = (Trainee(world.agent, "parl", GIVEN, tmp_path) for _ in range(2))
    expected = [run_episode(whole, world) for _ in range(4)]
    found = [run_episode(first, world) for _ in range(2)]
    first.save()
    later = Trainee(world.agent, "parl", GIVEN, tmp_path)
    assert later.resume()
    assert later.episodes == 2
    found += [run_episode(later, world) for _ in range(2)]
    assert [f._replace(cpu_seconds=0) for f in found] == [
        f._replace(cpu_seconds=0) for f in expected
    ]
    spent = [figures.cpu_seconds for figures in found]
    assert spent == sorted(spent), "what was spent before the stop counts, too"
    assert [figures.episode for figures in found] == [0, 1, 2, 3]
    assert found[0].phase == "buffer population"
    assert found[0].decisions > 50
    whole_state, later_state = whole.agent.state(), later.agent.state()
    for name, array in whole_state.items():
        np.testing.assert_array_equal(later_state[name], array, err_msg=name)


def test_what_it_cannot_be_is_refused(world, tmp_path):
    with pytest.raises(InputError, match="needs disclosure level 'total'"):
        Trainee(make_world(disclosure="none").agent, "parl", None, tmp_path)
    with pytest.raises(InputError, match="no agent is called 'best'"):
        Trainee(world.agent, "best", None, tmp_path)
    Trainee(world.agent, "parl", GIVEN, tmp_path).save()
    for other in (
        Trainee(world.agent, "plrl-ql", GIVEN, tmp_path),
        Trainee(make_world("paper").agent, "parl", GIVEN, tmp_path),
        Trainee(world.drawn(1).agent, "parl", GIVEN, tmp_path),
    ):
        with pytest.raises(InputError, match=f"{CHECKPOINT}: belongs to another training"):
            other.resume()
    assert not (tmp_path / LIGHT).exists()


def test_the_log_is_kept_for_episodes_from_anywhere(world, tmp_path):
    trainee = Trainee(world.agent, "parl", GIVEN, tmp_path / "agent")
    scenario = load_scenario(SCENARIOS / "tiny.toml")
    noted = []
    figures = [run_episode(trainee, world) for _ in range(3)]
    out = tmp_path / "experimenter"
    out.mkdir()
    keep_log(out, resume_log(out, scenario, 0), ((f, 7.5) for f in figures), noted.append)
    assert [done.fog_loop for done in noted] == [7.5] * 3
    assert noted[2].last_returns == pytest.approx(np.mean([f.returned for f in figures]))
    assert resume_log(out, scenario, 3) == [vars(done) for done in noted]
    # The agent's checkpoint was behind: what came after it is run again.
    before = resume_log(out, scenario, 1)
    keep_log(out, before, [(figures[1], None)])
    assert [line["fog_loop"] for line in resume_log(out, scenario, 2)] == [7.5, None]
    with pytest.raises(InputError, match="belongs to another scenario or log"):
        resume_log(out, scenario, 3)
    with pytest.raises(InputError, match="belongs to another scenario or log"):
        resume_log(out, load_scenario(SCENARIOS / "tiny.toml", {"seed": 2}), 2)
