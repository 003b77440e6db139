"""Transfer: a training that starts from an earlier agent, what fits it, and what does not."""

from __future__ import annotations

import hashlib
import json
import shutil

import numpy as np
import pytest
from support import SCENARIOS, make_world

from fogveil.agent.learning.checkpoint import read_checkpoint
from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.registry import find_agent
from fogveil.agent.learning.relearning import TRANSFER_SHARE
from fogveil.agent.learning.replay import Replay
from fogveil.agent.learning.training_state import AGENT_FILE, CHECKPOINT, TrainingState
from fogveil.agent.learning.transfer import Transfer
from fogveil.core.errors import InputError
from fogveil.testbed.experiments.embedded_training import train
from fogveil.testbed.records.training_log import DESCRIPTION
from fogveil.testbed.scenario import load_scenario

SMALL = {
    "buffer_capacity": 2000,
    "training_steps": 120,
    "layers": (32, 16),
    "batch_size": 8,
    "target_update_period": 200,
}


def scenario(name: str = "tiny", **overrides):
    return load_scenario(SCENARIOS / f"{name}.toml", {"disclosure": "full", **overrides})


def small(agent: str) -> Hyperparameters:
    return find_agent(agent).defaults.model_copy(update=SMALL)


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """Trainings to start from, by the agent's name."""
    folder = tmp_path_factory.mktemp("earlier")
    for agent in ("parl", "veil"):
        train(scenario(), agent, folder / agent, small(agent))
    return folder


def start(earlier, agent: str, world, tmp_path, file: str = AGENT_FILE, *, replay: bool = False):
    transfer = Transfer(earlier / agent / file, replay=replay)
    return TrainingState(world.agent, agent, None, tmp_path, transfer).agent


@pytest.mark.parametrize("agent", ["parl", "veil"])
def test_it_begins_with_the_weights_and_a_shorter_schedule(agent, earlier, tmp_path):
    begun = start(earlier, agent, make_world(), tmp_path)
    state, origin = begun.state(), read_checkpoint(earlier / agent / AGENT_FILE)
    for network in ("online", "target"):
        np.testing.assert_array_equal(
            state[f"learner_{network}"], origin.arrays["learner_online"], err_msg=network
        )
    chosen, trained = begun.hyperparameters, small(agent)
    assert chosen.training_steps == TRANSFER_SHARE * trained.training_steps
    assert chosen.layers == trained.layers
    assert 0 < chosen.population_decisions < trained.population_decisions
    assert begun.epsilon <= 0.1, "while it fills the buffer it acts as it has learned to"
    assert len(begun.replay) == 0


def test_with_the_buffer_it_trains_at_once(earlier, tmp_path):
    begun = start(earlier, "parl", make_world(), tmp_path, CHECKPOINT, replay=True)
    arrays = read_checkpoint(earlier / "parl" / CHECKPOINT).arrays
    assert len(begun.replay) == len(arrays["replay_age"]) > 500
    assert begun.phase == "training"
    assert begun.decisions == 0
    with pytest.raises(InputError, match="agent.npz: has no buffer, only a checkpoint.npz has one"):
        start(earlier, "parl", make_world(), tmp_path, replay=True)


def test_veil_comes_from_any_shape_and_parl_from_its_own(earlier, tmp_path):
    stress = make_world("stress")
    assert len(start(earlier, "veil", stress, tmp_path).view.nodes) == 10
    with pytest.raises(InputError, match="another shape of scenario: 3 nodes against 10"):
        start(earlier, "parl", stress, tmp_path)
    with pytest.raises(InputError, match=r"its buffer is of another .*3 nodes against 10.*leave"):
        start(earlier, "veil", stress, tmp_path, CHECKPOINT, replay=True)


def test_what_it_cannot_start_from_is_one_sentence(earlier, tmp_path):
    with pytest.raises(InputError, match="is an agent parl, and cannot become one of veil: use"):
        Transfer(earlier / "parl" / AGENT_FILE).check("veil")
    with pytest.raises(InputError, match="the checkpoint does not exist"):
        Transfer(tmp_path / "none.npz").check("parl")
    other = small("parl").model_copy(update={"layers": (8,)})
    transfer = Transfer(earlier / "parl" / AGENT_FILE)
    with pytest.raises(InputError, match="has layers of 16, 32, 16, 3 neurons, and the agent .* 8"):
        TrainingState(make_world().agent, "parl", other, tmp_path, transfer)


def test_a_stopped_transfer_goes_on_bit_for_bit_and_names_its_origin(earlier, tmp_path):
    class StoppedError(BaseException):
        pass

    def stop(_agent, episode):
        if episode and episode.episode == 2:
            raise StoppedError

    transfer = Transfer(earlier / "parl" / CHECKPOINT, replay=True)
    values = small("parl").model_copy(update={"buffer_population": 0.0, "training_steps": 600})
    harder = scenario(**{"sources.scale": 20.0})
    train(harder, "parl", tmp_path / "whole", values, transfer=transfer)
    with pytest.raises(StoppedError):
        train(harder, "parl", tmp_path / "parts", values, every=2, watch=stop, transfer=transfer)
    train(harder, "parl", tmp_path / "parts", values, transfer=transfer)
    whole, parts = (read_checkpoint(tmp_path / name / CHECKPOINT) for name in ("whole", "parts"))
    assert whole.arrays.keys() == parts.arrays.keys()
    for name, array in whole.arrays.items():
        np.testing.assert_array_equal(parts.arrays[name], array, err_msg=name)

    digest = hashlib.sha256((earlier / "parl" / CHECKPOINT).read_bytes()).hexdigest()
    assert whole.header["started_from"] == {"sha256": digest, "replay": True}
    description = json.loads((tmp_path / "whole" / DESCRIPTION).read_text())
    assert description["started_from"]["sha256"] == digest
    assert description["mode"] == "embedded"
    with pytest.raises(InputError, match="another training: its started_from differs"):
        train(harder, "parl", tmp_path / "whole", values)


def test_the_origin_may_be_replaced_without_harm_to_a_file_that_was_read(earlier, tmp_path):
    """The same content elsewhere is the same origin: the digest counts, not the path."""
    copy = tmp_path / "copy.npz"
    shutil.copy(earlier / "parl" / AGENT_FILE, copy)
    values = small("parl").model_copy(update={"training_steps": 20})
    train(scenario(), "parl", tmp_path / "t", values, transfer=Transfer(copy))
    origin = Transfer(earlier / "parl" / AGENT_FILE)
    again = TrainingState(make_world().agent, "parl", values, tmp_path / "t", origin)
    assert again.resume()


# --- the buffer ----------------------------------------------------------------------------------


def filled(capacity: int, decisions: int, reach: int = 0) -> Replay:
    replay = Replay(capacity, {"action": np.int16}, reach)
    replay.begin_episode()
    for action in range(decisions):
        replay.add(action=action)
    return replay


@pytest.mark.parametrize("capacity", [300, 150])
def test_a_buffer_of_another_capacity_keeps_the_latest_decisions(capacity):
    """Of a ring that has gone round."""
    random = np.random.default_rng(1)
    taken = filled(capacity, 0)
    taken.adopt(filled(200, 517).state())
    now, after = taken.sample(2000, random)
    actions = taken.columns["action"]
    kept = min(capacity, 200)
    assert len(taken) == kept
    assert set(actions[now]) == set(range(517 - kept, 516))
    np.testing.assert_array_equal(actions[after], actions[now] + 1)


def test_states_that_reach_beyond_what_was_taken_over_are_not_sampled():
    random = np.random.default_rng(1)
    taken = filled(300, 0, reach=24)
    taken.adopt(filled(200, 517, reach=24).state())
    now, _ = taken.sample(2000, random)
    assert min(taken.columns["action"][now]) == 517 - 200 + 24


def test_what_is_forgotten_is_not_sampled_also_after_a_checkpoint():
    replay, random = filled(200, 150), np.random.default_rng(1)
    replay.forget(20)
    assert replay.held == 20
    again = filled(200, 0)
    again.restore(replay.state())
    for buffer in (replay, again):
        now, _ = buffer.sample(500, random)
        assert set(buffer.columns["action"][now]) == set(range(130, 149))
    taken = filled(500, 0)
    taken.adopt(replay.state())
    now, _ = taken.sample(500, random)
    assert set(taken.columns["action"][now]) == set(range(130, 149))
