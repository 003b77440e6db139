"""Training: checkpoints, resuming after a kill, trained agents as policies, what files hold."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support import ROOT, SCENARIOS, make_run, make_world

import fogveil.agent.policies as policies
from fogveil.agent.learning.checkpoint import read_checkpoint, write_checkpoint
from fogveil.agent.learning.hyperparameters import Hyperparameters, read_hyperparameters
from fogveil.agent.learning.registry import AGENTS, find_agent, load_trained
from fogveil.agent.learning.training_state import AGENT_FILE, CHECKPOINT
from fogveil.core.errors import InputError
from fogveil.testbed.experiments.embedded_training import train
from fogveil.testbed.records.training_log import LOG, training_lock
from fogveil.testbed.scenario import load_scenario

SMALL = {
    "buffer_capacity": 4000,
    "training_steps": 300,
    "layers": (32, 16),
    "target_update_period": 200,
}
HYPERPARAMETERS = Hyperparameters(**SMALL)


def tiny(**overrides):
    return load_scenario(SCENARIOS / "tiny.toml", {"disclosure": "full", **overrides})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parl")
    train(tiny(), "parl", folder, HYPERPARAMETERS)
    return folder


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_trains_and_acts_as_a_policy(name, tmp_path):
    kind = find_agent(name)
    hyperparameters = kind.defaults.model_copy(update=SMALL)
    light = train(tiny(), name, tmp_path, hyperparameters)
    run = make_run(str(light))
    assert run.hash == make_run(str(tmp_path / CHECKPOINT)).hash
    # Punished by execution delay, an agent may well find one node the best for everything.
    assert name in ("plrl-ed", "plrl-edql") or len(set(run.jobs["node"])) > 1


def test_the_log_tells_the_phases(trained):
    log = [json.loads(line) for line in (trained / LOG).read_text().splitlines()]
    assert log[0]["phase"] == "buffer population"
    assert log[-1]["training_steps"] == 300
    steps = [line["training_steps"] for line in log]
    assert steps == sorted(steps)
    last = [line["returned"] for line in log[-10:]]
    assert log[-1]["last_returns"] == pytest.approx(np.mean(last))
    assert list((trained / "tensorboard").iterdir())


KILLED = """
import sys
from pathlib import Path
sys.path[:0] = ["tests", "tests/unit/agent"]
from test_training import HYPERPARAMETERS, tiny
from fogveil.testbed.experiments.embedded_training import train
train(tiny(), "parl", Path(sys.argv[1]), HYPERPARAMETERS, every=2)
"""


def test_a_killed_training_goes_on_bit_for_bit(trained, tmp_path):
    words = [sys.executable, "-c", KILLED, str(tmp_path)]
    process = subprocess.Popen(words, cwd=ROOT)
    deadline = time.monotonic() + 60
    while not (tmp_path / CHECKPOINT).exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    stopped = read_checkpoint(tmp_path / CHECKPOINT).header["episodes"]
    whole = read_checkpoint(trained / CHECKPOINT)
    assert 0 < stopped < whole.header["episodes"]
    train(tiny(), "parl", tmp_path, HYPERPARAMETERS)
    resumed = read_checkpoint(tmp_path / CHECKPOINT)
    assert resumed.arrays.keys() == whole.arrays.keys()
    for name, array in whole.arrays.items():
        np.testing.assert_array_equal(resumed.arrays[name], array, err_msg=name)
    logs = []
    for folder in (trained, tmp_path):
        lines = [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
        logs.append([{**line, "cpu_seconds": 0} for line in lines])
    assert logs[0] == logs[1]


def test_going_on_with_another_training_is_refused(trained):
    with pytest.raises(InputError, match="belongs to another training: its seed differs"):
        train(tiny(seed=2), "parl", trained, HYPERPARAMETERS)
    with pytest.raises(InputError, match="its hyperparameters differs"):
        train(tiny(), "parl", trained, HYPERPARAMETERS.model_copy(update={"batch_size": 7}))
    with pytest.raises(InputError, match="belongs to another scenario"):
        train(tiny(**{"fog.ipt": [9.0, 9.0, 9.0]}), "parl", trained, HYPERPARAMETERS)


def test_two_trainings_in_one_folder_are_kept_apart(tmp_path):
    with training_lock(tmp_path), pytest.raises(InputError, match="another training is running"):
        train(tiny(), "parl", tmp_path, HYPERPARAMETERS)


@pytest.mark.parametrize("name", ["parl", "veil"])
def test_training_without_a_filled_buffer_trains_to_the_end(name, tmp_path):
    changes = {**SMALL, "buffer_population": 0.0, "training_steps": 40}
    kind = find_agent(name)
    hyperparameters = kind.defaults.model_copy(update=changes)
    train(tiny(), name, tmp_path, hyperparameters)
    _, arrays = read_checkpoint(tmp_path / CHECKPOINT)
    assert arrays["counters"][1] == 40, "training steps"
    untrained = kind(make_world().agent, hyperparameters).state()
    assert (arrays["learner_online"] != untrained["learner_online"]).any()
    assert np.isfinite(arrays["learner_online"]).all()


def test_a_checkpoint_of_another_shape_says_what_differs(trained):
    view = make_world("stress").agent
    with pytest.raises(InputError, match="3 nodes against 10, 2 clusters against 8, 2 categories"):
        policies.load(str(trained / AGENT_FILE), view)


def test_the_light_form_needs_no_torch_and_decides_alike(trained):
    script = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from support import make_run\n"
        f"print(make_run({str(trained / AGENT_FILE)!r}).hash)\n"
        "assert 'torch' not in sys.modules, 'torch was loaded'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == make_run(str(trained / CHECKPOINT)).hash
    assert (trained / AGENT_FILE).stat().st_size < 50_000


def test_the_light_form_decides_as_torch_does(trained):
    """The same decisions as the torch network takes on the states of a whole run."""
    from fogveil.agent.learning.network import Network
    from fogveil.agent.learning.parl import Parl, StateLayout

    world = make_world()
    layout = StateLayout(world.agent)
    checkpoint = read_checkpoint(trained / CHECKPOINT)
    hyperparameters = HYPERPARAMETERS.model_copy(update={"buffer_population": 0.0})
    agent = Parl(world.agent, hyperparameters)
    actor = load_trained(trained / AGENT_FILE, world.agent)
    network = Network(checkpoint.header["sizes"])
    network.parameters.numpy()[:] = checkpoint.arrays["learner_online"]
    run = make_run(str(trained / AGENT_FILE))
    agent.reset()
    same = 0
    for job, cluster, category, node in zip(
        *(run.jobs[name].astype(int) for name in ("job", "cluster", "category", "node")),
        strict=True,
    ):
        agent.replay.add(triple=layout.triple(node, cluster, category), action=0, reward=0)
        place = np.array([agent.replay.added - 1])
        same += int(network.forward(agent.states(place))[0].argmax()) == node
        assert job >= 0
    assert same == len(run.jobs["job"])
    assert actor.layers[0][0].shape[0] == network.sizes[0]


def test_a_checkpoint_holds_public_facts_only(tmp_path):
    ipt, ram = [317.0917, 523.4411, 991.7313], [11.5071, 17.6203, 23.9401]
    scenario = tiny(**{"fog.ipt": ipt, "fog.ram": ram, "seed": 90210})
    hyperparameters = HYPERPARAMETERS.model_copy(update={"training_steps": 20})
    train(scenario, "parl", tmp_path, hyperparameters)
    header = read_checkpoint(tmp_path / CHECKPOINT).header
    text = json.dumps(header["public"])
    assert header["public"].keys() < make_world().projection("agent").keys()
    for secret in (*ipt, *ram, scenario.cloud.ipt):
        assert str(secret) not in json.dumps(header)
        for kind in (np.float64, np.float32):
            for name in (CHECKPOINT, AGENT_FILE):
                assert kind(secret).tobytes() not in (tmp_path / name).read_bytes()
    assert "90210" not in json.dumps(header)
    assert text


def test_broken_files_are_refused(tmp_path, trained):
    path = tmp_path / "x.npz"
    with pytest.raises(InputError, match="does not exist"):
        read_checkpoint(path)
    for content in (b"", b"nonsense", (trained / AGENT_FILE).read_bytes()[:500]):
        path.write_bytes(content)
        with pytest.raises(InputError, match="is not a checkpoint"):
            read_checkpoint(path)
    np.savez(path, a=np.zeros(3))
    with pytest.raises(InputError, match="is not a checkpoint"):
        read_checkpoint(path)
    for header, arrays in (({}, {}), ({"agent": "parl", "public": {}, "sizes": [3, 2]}, {})):
        write_checkpoint(path, header, arrays)
        with pytest.raises(InputError, match="is not a checkpoint|another shape"):
            policies.load(str(path), make_world().agent)
    light = read_checkpoint(trained / AGENT_FILE)
    for spoilt in (np.full(3, 1.0), light.arrays["learner_online"] * np.nan):
        write_checkpoint(path, light.header, {"learner_online": spoilt})
        with pytest.raises(InputError, match="finite parameters"):
            policies.load(str(path), make_world().agent)
    write_checkpoint(path, {"format": 99}, {})
    with pytest.raises(InputError, match="checkpoint format 99, expected 1"):
        read_checkpoint(path)
    with pytest.raises(InputError, match="cannot be written"):
        write_checkpoint(Path("/proc/none/x.npz"), {}, {})


@pytest.mark.parametrize("agent", ["parl", "veil"])
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("batch_size = 0", "batch_size: expected 1 or more, got 0"),
        ("batch = 3", "no hyper-parameter is called batch; there are .*batch_size"),
        ("layers = [0]", "layers.0: .*got 0"),
        ("epsilon_first = 7", "epsilon_first"),
        ("learning_rate = -1.0", "learning_rate"),
        ("batch_size =", "is not TOML"),
    ],
)
def test_bad_hyperparameters_are_refused(tmp_path, text, sentence, agent):
    path = tmp_path / "h.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=f"h.toml: .*{sentence}"):
        read_hyperparameters(path, find_agent(agent).defaults)
    path.write_text("batch_size = 7")
    assert read_hyperparameters(path, Hyperparameters()).batch_size == 7
