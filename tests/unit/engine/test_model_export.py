"""Models of stable-baselines3 as policies: the file decides as the model does, in every run."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from federated_support import embedded_hash, make_scenario
from support import ROOT, SCENARIOS, make_run, make_world

import fogveil.agent.policies as policies
from fogveil.agent.learning.checkpoint import read_checkpoint, write_checkpoint
from fogveil.agent.observation_vector import ObservationVector
from fogveil.agent.policy import Level
from fogveil.core.errors import InputError
from fogveil.gym import policy_from_callable, policy_from_sb3, save_sb3
from fogveil.testbed.engine.embedded import simulate
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.launch.federated_run import run_federated
from fogveil.testbed.launch.participant_config import Plan

pytestmark = pytest.mark.filterwarnings("ignore")  # third-party libraries warn about each other
ID = "fogveil.gym:fogveil/Placement-v0"
OWN_CLASS = """
from fogveil.agent.observation_vector import VectorPolicy
from fogveil.agent.policy import Level


class Shortest(VectorPolicy):
    needs = Level.COUNT

    def act(self, vector, mask):
        return int(vector[self.vectors.parts["counts"]].argmin())
"""


def make(scenario="tiny", **options):
    return gym.make(ID, scenario=SCENARIOS / f"{scenario}.toml", **options)


def make_model(algorithm: str, env, **options):
    import stable_baselines3
    import torch

    torch.set_num_threads(1)  # small matrices
    kind = getattr(stable_baselines3, algorithm)
    return kind("MlpPolicy", env, seed=3, device="cpu", **options)


def episode_of(model, env, normalise=lambda vector: vector) -> str:
    """Return the run hash of the greedy episode of a model in the environment."""
    vector, _ = env.reset(seed=1)
    while True:
        action, _ = model.predict(normalise(vector), deterministic=True)
        vector, _, _, truncated, info = env.step(int(action))
        if truncated:
            return info["run_hash"]


@pytest.fixture(autouse=True)
def _no_old_gym(monkeypatch):
    """Doctests put our folder `gym` on the path, and the library looks for another of that name."""
    monkeypatch.setitem(sys.modules, "gym", None)


@pytest.fixture(scope="module")
def ppo_on_paper():
    """A PPO that was trained for a moment on normalised observations, in two environments."""
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    options = {"scenario": SCENARIOS / "paper.toml", "reward": "marginal", "seed_step": 2}
    vec = VecNormalize(make_vec_env("fogveil/Placement-v0", 2, seed=7, env_kwargs=options))
    return make_model("PPO", vec, n_steps=512, batch_size=128, n_epochs=4).learn(2048)


def test_a_ppo_trained_on_paper_decides_in_a_run_as_in_the_environment(ppo_on_paper, tmp_path):
    path = save_sb3(ppo_on_paper, tmp_path / "ppo.npz")
    vec = ppo_on_paper.get_env()
    expected = episode_of(ppo_on_paper, make("paper"), vec.normalize_obs)
    scenario = make_scenario("paper", disclosure="count")
    result = run_embedded(scenario, str(path))
    assert result["run_hash"] == expected
    assert result["level"] == "count"
    assert result["label"] == "ppo"
    placed = np.array(result["summary"]["placed"]).sum(axis=(0, 1))
    assert (placed > 0).sum() > 1, "it places everything on one node: nothing is compared"
    assert path.stat().st_size < 100_000


@pytest.mark.parametrize(
    ("algorithm", "activation", "level"),
    [("DQN", "ReLU", "full"), ("A2C", "Tanh", "total")],
)
def test_models_of_each_kind_and_level_decide_alike(algorithm, activation, level, tmp_path):
    import torch

    env = make(level=level, reward="delay")
    kind = {"activation_fn": getattr(torch.nn, activation)}
    model = make_model(algorithm, env, policy_kwargs=kind)
    path = tmp_path / "model.npz"
    last = model.q_net.q_net[-1] if algorithm == "DQN" else model.policy.action_net
    for seed in range(50):  # untrained, many choose one node for all workloads
        torch.manual_seed(seed)
        torch.nn.init.normal_(last.weight)
        run = make_run(str(save_sb3(model, path)))
        if len(set(run.jobs["node"])) > 1:
            break
    assert len(set(run.jobs["node"])) > 1
    assert run.hash == episode_of(model, make(level=level, reward="delay"))
    assert policies.find(str(path)).needs is Level.parse(level)


def test_a_network_of_one_layer_that_observes_nothing_decides_by_public_facts(tmp_path):
    import torch

    env = make(level="none", reward="delay")
    model = make_model("A2C", env, policy_kwargs={"net_arch": []})
    with torch.no_grad():
        model.policy.action_net.weight.zero_()[:, -3:] = -torch.eye(3)
    path = save_sb3(model, tmp_path / "nearest.npz")
    assert policies.find(str(path)).needs is Level.NONE
    run = make_run(str(path))
    assert run.hash == make_run("nearest").hash == episode_of(model, env)


def test_federated_runs_of_a_model_and_of_a_class_have_the_same_run_hashes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = make(level="count")
    model = make_model("PPO", env, n_steps=64).learn(64)
    spec = policy_from_sb3(model)
    assert Path(spec).parent == Path("runs/policies")
    assert policy_from_sb3(model) == spec, "the same model is the same file"
    Path("own.py").write_text(OWN_CLASS)
    own = policy_from_callable(lambda vector: vector[-4:-1].argmin())
    scenario, world = make_scenario(), make_world()
    expected = [episode_of(model, env), simulate(world, own(world.agent))]
    specs = (spec, "own.py:Shortest")
    assert [embedded_hash(scenario, each) for each in specs] == expected
    federated = run_federated(scenario, Plan(specs))
    assert [result["run_hash"] for result in federated] == expected


def test_a_loaded_model_is_given_its_environment(ppo_on_paper, tmp_path, monkeypatch):
    from stable_baselines3 import PPO

    # The library looks for OpenAI's old `gym`; under pytest it would find our folder of that name.
    monkeypatch.setitem(sys.modules, "gym", None)
    with io.BytesIO() as file:  # given a path, the library leaves files open
        ppo_on_paper.save(file)
        file.seek(0)
        loaded = PPO.load(file, device="cpu")
    with pytest.raises(InputError, match="the model has no environment: give the one"):
        save_sb3(loaded, tmp_path / "loaded.npz")
    path = save_sb3(loaded, tmp_path / "loaded.npz", env=ppo_on_paper.get_env())
    original = save_sb3(ppo_on_paper, tmp_path / "original.npz")
    one, other = read_checkpoint(path), read_checkpoint(original)
    assert one.header == other.header
    assert all(np.array_equal(one.arrays[name], other.arrays[name]) for name in other.arrays)
    with pytest.raises(InputError, match=r"44 actions|its environment has 11 and 3"):
        save_sb3(loaded, tmp_path / "loaded.npz", env=make())


def test_the_light_form_needs_neither_torch_nor_the_library(tmp_path):
    model = make_model("DQN", make(level="count"))
    path = save_sb3(model, tmp_path / "dqn.npz")
    script = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from support import make_run\n"
        f"print(make_run({str(path)!r}).hash)\n"
        "assert not {'torch', 'stable_baselines3', 'gymnasium'} & sys.modules.keys()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == make_run(str(path)).hash


def test_the_file_holds_public_facts_only(tmp_path):
    ipt, ram = [317.0917, 523.4411, 991.7313], [11.5071, 17.6203, 23.9401]
    env = make(overrides={"fog.ipt": ipt, "fog.ram": ram, "seed": 90210}, reward="delay")
    path = save_sb3(make_model("DQN", env), tmp_path / "dqn.npz")
    header = read_checkpoint(path).header
    assert header["public"].keys() < make_world().projection("agent").keys()
    assert header["reward"] == "delay"
    assert "90210" not in json.dumps(header)
    for secret in (*ipt, *ram):
        assert str(secret) not in json.dumps(header)
        for kind in (np.float64, np.float32):
            assert kind(secret).tobytes() not in path.read_bytes()


def test_absent_nodes_are_not_chosen(monkeypatch, tmp_path):
    path = save_sb3(make_model("DQN", make()), tmp_path / "dqn.npz")
    chosen = set(make_run(str(path), disclosure="count").jobs["node"].astype(int))
    favourite = max(chosen)
    mask = np.arange(3) != favourite
    monkeypatch.setattr(ObservationVector, "mask", lambda _self, _seen: mask)
    assert favourite not in make_run(str(path), disclosure="count").jobs["node"]


# --- what is refused ------------------------------------------------------------------------------


def test_networks_that_are_no_plain_layers_are_refused(tmp_path):
    import torch

    env = make()
    elu = make_model("PPO", env, policy_kwargs={"activation_fn": torch.nn.ELU})
    with pytest.raises(InputError, match=r"network is .*ELU.*expected linear layers with ReLU"):
        save_sb3(elu, tmp_path / "x.npz")
    with pytest.raises(InputError, match=r"policy is NoneType: expected the MlpPolicy of PPO"):
        save_sb3(object(), tmp_path / "x.npz")
    with pytest.raises(InputError, match=r"expected a file name that ends with \.npz"):
        save_sb3(make_model("PPO", env), tmp_path / "x.zip")
    assert not list(tmp_path.iterdir())


def test_environments_that_change_what_is_observed_are_refused(tmp_path):
    from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

    scaled = gym.wrappers.TransformObservation(make(), lambda vector: vector / 2, None)
    stacked = VecFrameStack(DummyVecEnv([make]), 2)
    for env, changed in ((scaled, "TransformObservation"), (stacked, "VecFrameStack")):
        with pytest.raises(InputError, match=f"changed by {changed}: write it as a class"):
            save_sb3(make_model("PPO", env), tmp_path / "x.npz")
    with pytest.raises(InputError, match="is not fogveil/Placement-v0"):
        save_sb3(make_model("PPO", gym.make("CartPole-v1")), tmp_path / "x.npz")


def test_another_shape_of_scenario_is_refused(tmp_path):
    path = save_sb3(make_model("DQN", make()), tmp_path / "dqn.npz")
    with pytest.raises(InputError, match="another shape of scenario: 3 nodes against 10"):
        policies.load(str(path), make_world("paper").agent)
    with pytest.raises(InputError, match=r"needs disclosure level 'count'.*disclose 'total'"):
        policies.load(str(path), make_world(disclosure="total").agent)


def test_broken_files_are_refused(ppo_on_paper, tmp_path):
    path, view = tmp_path / "x.npz", make_world("paper").agent
    save_sb3(ppo_on_paper, path)
    header, arrays = read_checkpoint(path)
    for changes, spoilt, sentence in (
        ({"level": "all"}, {}, "level or activation is unknown"),
        ({"activation": "elu"}, {}, "level or activation is unknown"),
        ({"sizes": [3, 2]}, {}, "expected a network of 8 finite parameters"),
        ({"level": "full"}, {}, "inputs and 10 outputs, expected"),
        ({"clip": None}, {}, "expected means and deviations"),
        ({}, {"mean": arrays["mean"][1:]}, "expected means and deviations"),
        ({}, {"deviation": arrays["deviation"] * 0}, "expected means and deviations"),
    ):
        write_checkpoint(path, {**header, **changes}, {**arrays, **spoilt})
        with pytest.raises(InputError, match=sentence):
            policies.load(str(path), view)


# --- functions ------------------------------------------------------------------------------------


def test_a_function_runs_as_a_policy(tmp_path):
    model = make_model("DQN", make(level="count"))
    kind = policy_from_callable(lambda vector: model.predict(vector, deterministic=True)[0])
    world = make_world()
    assert kind.needs is Level.COUNT
    expected = make_run(str(save_sb3(model, tmp_path / "dqn.npz"))).hash
    assert simulate(world, kind(world.agent)) == expected


def test_a_function_at_another_level_gets_that_levels_vector():
    sizes = set()

    def first(vector):
        sizes.add(vector.size)
        return 0

    kind = policy_from_callable(first, level="total", name="First")
    world = make_world()
    simulate(world, kind(world.agent))
    assert sizes == {2 + 2 + 3 + 1}
    assert kind.__name__ == "First"
    with pytest.raises(InputError, match="level 'all': expected none, total, count or full"):
        policy_from_callable(first, level="all")


def test_the_error_of_a_function_is_its_authors():
    def broken(vector):
        return vector["counts"]

    world = make_world()
    with pytest.raises(InputError, match="policy broken failed at time .*IndexError"):
        simulate(world, policy_from_callable(broken)(world.agent))
