"""The Gymnasium environment: it keeps Gymnasium's contract, and any library can train on it."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from support import SCENARIOS, make_run, make_world

from fogveil.agent.observation_vector import ObservationVector
from fogveil.core.errors import InputError
from fogveil.testbed.engine.embedded import Embedded
from fogveil.testbed.scenario import load_scenario

ID = "fogveil.gym:fogveil/Placement-v0"


def make(**options):
    return gym.make(ID, scenario=SCENARIOS / "tiny.toml", **options)


@pytest.mark.parametrize("level", ["total", "count", "full"])
@pytest.mark.filterwarnings("ignore:.*A Box observation space maximum value is infinity")
def test_it_passes_gymnasiums_checker(level):
    check_env(make(level=level, render_mode="ansi").unwrapped)


@pytest.mark.filterwarnings("ignore")  # third-party libraries warn about each other
def test_it_passes_the_checker_of_stable_baselines3():
    from stable_baselines3.common.env_checker import check_env as check

    check(make(), warn=True)


def test_an_episode_is_a_run():
    env = make()
    env.reset(seed=1)
    action = -1
    rewards = []
    while True:
        action = (action + 1) % 3
        _, reward, terminated, truncated, info = env.step(action)
        rewards.append(reward)
        assert not terminated
        if truncated:
            break
    expected = make_run("round-robin", disclosure="count")
    assert info["summary"]["workloads"] == len(expected.jobs["job"]) == len(rewards)
    assert info["summary"]["fog_loop"] == pytest.approx(
        (expected.jobs["returned"] - expected.jobs["emitted"]).mean()
    )


def test_the_reward_is_the_decrease_of_queued_jobs():
    env = make()
    vector, _ = env.reset(seed=3)
    total = vector[-4:].sum()
    for _ in range(60):
        vector, reward, *_ = env.step(0)
        assert reward == total - vector[-4:].sum()
        total = vector[-4:].sum()
    assert total > 3


def test_resets_go_through_the_seeds():
    env = make()
    first, _ = env.reset(seed=5)
    second, _ = env.reset()
    again, _ = env.reset(seed=5)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, second)


def test_a_level_without_counts_has_no_reward():
    with pytest.raises(InputError, match="the reward needs disclosure level"):
        make(level="none")


# --- observations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["none", "total", "count", "full"])
def test_a_vector_holds_its_parts_in_the_documented_order(level):
    world = make_world(disclosure=level)
    view = world.agent
    vectors = ObservationVector(view, view.disclosed)
    engine = Embedded(world, view.disclosed, watches_cloud=True)
    for number in range(60):
        seen = engine.next_decision()
        expected = [
            np.eye(2)[seen.cluster],
            np.eye(2)[seen.category],
            view.up[seen.cluster][seen.category],
        ]
        if level == "total":
            expected.append([seen.total])
        if level in ("count", "full"):
            expected += [seen.counts, [seen.cloud_count]]
        if level == "full":
            expected += [seen.load.backlog, seen.load.service]
        vector = vectors.of(seen)
        assert np.array_equal(vector, np.concatenate(expected).astype(np.float32))
        sizes = [part.stop - part.start for part in vectors.parts.values()]
        assert sizes == [len(part) for part in expected]
        engine.place(number % 3)


def test_at_level_none_nothing_of_the_nodes_is_observed():
    env = make(level="none", reward="delay")
    start = env.reset(seed=1)[1]
    workloads = {(start["cluster"], start["category"]): env.reset(seed=1)[0]}
    for _ in range(80):
        vector, _, _, _, info = env.step(0)
        first = workloads.setdefault((info["cluster"], info["category"]), vector)
        assert np.array_equal(vector, first)
    assert info["experimenter"]["counts"]["fog-1"] > 10


# --- rewards --------------------------------------------------------------------------------------

SHAPES = {
    "first come first served": {},
    "shortest first": {"fog.discipline": "sjf"},
    "two servers": {"fog.servers": 2, "service": {"distribution": "exponential"}},
}


def play(actions="cycle", **options):
    """Play an episode; return its rewards and infos."""
    env = make(**options)
    env.reset(seed=1)
    rewards, infos, truncated = [], [], False
    while not truncated:
        action = len(rewards) % 3 if actions == "cycle" else actions
        _, reward, _, truncated, info = env.step(action)
        rewards.append(reward)
        infos.append(info)
    return np.array(rewards), infos


@pytest.mark.parametrize("shape", SHAPES)
def test_marginal_rewards_add_up_to_the_delay_of_all_workloads(shape):
    rewards, infos = play(reward="marginal", overrides=SHAPES[shape])
    summary = infos[-1]["summary"]
    assert -rewards.sum() == pytest.approx(summary["fog_loop"] * summary["workloads"], rel=1e-12)
    others = [info["experimenter"]["delay_to_others"] for info in infos]
    assert max(others) > 0, "no placement delays another: nothing is tested"


def test_a_delay_is_that_of_the_run_unless_a_later_workload_gets_in_before():
    run = make_run("round-robin", disclosure="count")
    delays = run.jobs["returned"] - run.jobs["emitted"]
    rewards, infos = play(reward="delay")
    later = delays + rewards
    overtaken = later > 1e-9
    assert (later > -1e-9).all()
    assert 0 < overtaken.sum() < len(delays) / 3
    others = sum(info["experimenter"]["delay_to_others"] for info in infos)
    assert later[overtaken].sum() == pytest.approx(others)
    parts = infos[0]["experimenter"]
    assert parts["latency"] + parts["waiting"] + parts["service"] < parts["delay"]


def test_a_reward_may_be_a_function_of_the_outcome():
    outcomes = []

    def reward(outcome):
        outcomes.append(outcome)
        return -outcome.waiting

    rewards, infos = play(reward=reward)
    run = make_run("round-robin", disclosure="count")
    assert [outcome.seen.job for outcome in outcomes] == run.jobs["job"].tolist()
    assert [outcome.node for outcome in outcomes] == run.jobs["node"].tolist()
    assert [outcome.last for outcome in outcomes] == [False] * (len(outcomes) - 1) + [True]
    assert rewards.tolist() == [-info["experimenter"]["waiting"] for info in infos]
    queue, _ = play()
    assert queue.tolist() == [o.queued_before - o.queued_after for o in outcomes]


@pytest.mark.parametrize("returned", [None, "1", float("nan"), [1.0]])
def test_a_reward_that_is_no_number_is_refused(returned):
    env = make(reward=lambda _outcome: returned)
    env.reset(seed=1)
    with pytest.raises(InputError, match="the reward function returned .*expected a finite number"):
        env.step(0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"reward": "speed"}, "no reward is called 'speed': expected one of queue, delay, marg"),
        ({"seed_step": 0}, "seed_step 0: expected 1 or more"),
        ({"level": "all"}, "disclosure"),
    ],
)
def test_bad_options_are_refused(options, sentence):
    with pytest.raises(InputError, match=sentence):
        make(**options)


# --- info, masks, pictures ------------------------------------------------------------------------


def test_info_tells_the_workload_at_hand_and_the_last_placement():
    env = make(level="total")
    _, before = env.reset(seed=1)
    run = make_run("round-robin", disclosure="count")
    for number in range(40):
        vector, reward, _, _, info = env.step(number % 3)
        placed, private = info["placed"], info["experimenter"]
        assert placed["node"] == f"fog-{number % 3 + 1}"
        workload = {key: before[key] for key in ("time", "job", "cluster", "category")}
        assert placed == {**workload, "node": placed["node"]}
        assert workload["time"] == run.jobs["emitted"][number]
        assert private["rewards"]["queue"] == reward
        assert sum(private["counts"].values()) == vector[-1]
        before = info
    assert list(private["counts"]) == ["fog-1", "fog-2", "fog-3", "cloud"]
    assert "run_hash" not in info


def test_all_nodes_can_be_chosen_and_absent_ones_could_not(monkeypatch):
    env = make()
    _, info = env.reset(seed=1)
    assert env.unwrapped.action_masks().tolist() == info["action_mask"].tolist() == [True] * 3
    monkeypatch.setattr(
        ObservationVector, "mask", lambda _self, _seen: np.array([True, False, True])
    )
    _, _, _, _, info = env.step(1)
    assert info["action_mask"].tolist() == [True, False, True]
    with pytest.raises(InputError, match="action 1: expected one of"):
        env.step(1)


def test_a_step_after_the_end_is_refused():
    env = make(overrides={"horizon": 50}).unwrapped
    env.reset(seed=1)
    while not env.step(0)[3]:
        pass
    with pytest.raises(InputError, match="the episode is over: reset"):
        env.step(0)


def test_it_is_shown_as_text():
    env = make(render_mode="ansi")
    env.reset(seed=1)
    assert "nothing is placed yet" in env.render()
    for _ in range(30):
        _, reward, _, _, info = env.step(0)
    count = info["experimenter"]["counts"]["fog-1"]
    assert count > 5
    lines = env.render().splitlines()
    assert lines[0] == "tiny, seed 1, time {time:.1f}: {category} from {cluster}".format(**info)
    assert lines[1] == f"last on fog-1, reward {reward:g}"
    assert lines[2] == f"▸ fog-1 {count:4d} {'█' * count}"
    assert lines[3] == "  fog-2    0"


def test_it_is_shown_as_a_picture():
    env = make(render_mode="rgb_array")
    env.reset(seed=1)
    empty = env.render()
    assert empty.dtype == np.uint8
    for _ in range(30):
        env.step(0)
    full = env.render()
    assert full.shape == empty.shape == (178, 480, 3)
    orange = np.array([255, 127, 14])
    assert (empty != orange).any(axis=2).all()
    assert (full == orange).all(axis=2).sum() > 1000, "fog-1's bar, where the last job went"


# --- many at once ---------------------------------------------------------------------------------


def test_environments_in_parallel_processes_play_what_one_process_plays():
    def episodes(mode):
        options = {"scenario": SCENARIOS / "tiny.toml", "seed_step": 2, "reward": "marginal"}
        same_step = {"autoreset_mode": AutoresetMode.SAME_STEP}
        vec = gym.make_vec(
            ID, num_envs=2, vectorization_mode=mode, vector_kwargs=same_step, **options
        )
        vec.reset(seed=1)
        hashes, rewards = [], []
        while len(hashes) < 4:
            _, reward, _, truncated, info = vec.step(np.array([0, 1]))
            rewards.append(reward.tolist())
            if truncated.any():
                hashes += info["final_info"]["run_hash"][truncated].tolist()
        vec.close()
        return hashes, rewards

    assert episodes("sync") == episodes("async")
    assert len(set(episodes("sync")[0])) == 4


def test_a_scenario_may_be_given_as_an_object():
    scenario = load_scenario("tiny", {"sources.scale": 45})
    one = gym.make(ID, scenario=scenario, level="total").reset(seed=1)
    other = make(level="total", overrides={"sources.scale": 45}).reset(seed=1)
    assert np.array_equal(one[0], other[0])
    assert one[1]["time"] == other[1]["time"]


@pytest.mark.filterwarnings("ignore")  # third-party libraries warn about each other
def test_stable_baselines3_trains_on_it():
    import torch
    from stable_baselines3 import DQN

    torch.set_num_threads(1)  # small matrices
    model = DQN("MlpPolicy", make(), learning_starts=50, buffer_size=1000, seed=1, device="cpu")
    before = [p.detach().clone() for p in model.q_net.parameters()]
    model.learn(300)
    changed = [not p.equal(old) for p, old in zip(model.q_net.parameters(), before, strict=True)]
    assert all(changed)
