"""A federated run equals the embedded one to the last bit, whatever its options."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from federated_support import embedded_hash, fogveil, make_scenario, once
from support import ANY_SHAPE

import fogveil.agent.policies as policies
from fogveil.agent.learning.registry import AGENTS, find_agent
from fogveil.testbed.engine.embedded import simulate
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.experiments.embedded_training import train
from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.federated_run import run_federated
from fogveil.testbed.launch.join_records import join
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.report import tables
from fogveil.testbed.scenario.world import build_world

OWN = Path(__file__).parent / "own_policies.py"
OWN_CLASSES = (
    "Cycles",
    "SeesCloud",
    "SeesTotal",
    "Ahead",
    "AheadOfNothing",
    "AheadOfAll",
    "Prints",
)
BRIEFLY = {
    "buffer_capacity": 1000,
    "training_steps": 40,
    "layers": (16,),
    "batch_size": 8,
    "target_update_period": 50,
    "learning_rate": 0.02,
}


def own_policy(name: str) -> str:
    return f"{OWN}:{name}"


def train_briefly(scenario, name: str, folder: Path) -> str:
    hyperparameters = find_agent(name).defaults.model_copy(update=BRIEFLY)
    return str(train(scenario, name, folder, hyperparameters))


def check(scenario, plan: Plan) -> None:
    """Run a plan, each policy an episode of one testbed, and compare."""
    federated = [result["run_hash"] for result in run_federated(scenario, plan)]
    assert federated == [embedded_hash(scenario, policy) for policy in plan.policies]


# --- every policy ---------------------------------------------------------------------------------

EVERY = [*ANY_SHAPE, *(f"trained {name}" for name in AGENTS), *OWN_CLASSES]


@pytest.fixture(scope="module")
def hashes(tmp_path_factory):
    """The run hashes of every policy, federated (an episode each of one testbed) and embedded."""

    def run(folder: Path):
        scenario = make_scenario()
        specs = [*ANY_SHAPE]
        specs += [train_briefly(scenario, name, folder / name) for name in AGENTS]
        specs += [own_policy(name) for name in OWN_CLASSES]
        results = run_federated(scenario, Plan(policies=tuple(specs)))
        federated = [result["run_hash"] for result in results]
        return dict(
            zip(
                EVERY,
                zip(federated, [embedded_hash(scenario, s) for s in specs], strict=True),
                strict=True,
            )
        )

    return once(tmp_path_factory, "every-policy", run)


@pytest.mark.parametrize("policy", EVERY)
def test_a_policy_gives_the_embedded_run(hashes, policy):
    federated, embedded = hashes[policy]
    assert federated == embedded


def test_different_policies_give_different_runs(hashes):
    """Else the comparison would show nothing."""
    alike = [
        (one, other) for one, other in combinations(EVERY, 2) if hashes[one][1] == hashes[other][1]
    ]
    expected = {
        ("Cycles", "Prints"),
        ("trained plrl-ed", "trained plrl-edql"),
        ("veil-total", "trained veil-total"),  # too short for its network to be asked
    }
    assert set(alike) <= expected


# --- every combination of options ----------------------------------------------------------------

FACTORS = {
    "broker": ("builtin", "mosquitto"),
    "window": (1, 64),
    "service": ("deterministic", "exponential"),
    "count": ("waiting", "in_system"),
    "source_processes": (1, 3),
}
COMBINATIONS = list(product(*FACTORS.values()))


def pairwise_cover() -> list[tuple]:
    """Return few rows in which any two factors occur with all pairs of their values.

    The first row holds the first value of every factor. In the five others a factor has its second
    value in three rows, each factor in a different set of three: any two sets overlap, and neither
    contains the other.
    """
    columns = list(combinations(range(5), 3))[: len(FACTORS)]
    rows = [[0] * len(FACTORS)] + [[int(row in c) for c in columns] for row in range(5)]
    return [
        tuple(values[place] for values, place in zip(FACTORS.values(), row, strict=True))
        for row in rows
    ]


def test_any_two_options_meet_with_all_their_values():
    rows = pairwise_cover()
    for one, other in combinations(range(len(FACTORS)), 2):
        assert len({(row[one], row[other]) for row in rows}) == 4


@pytest.fixture(scope="module")
def stress_agents(tmp_path_factory):
    """PARL on the paper's scenario, trained a little, for each kind of count."""

    def make(folder: Path):
        return {
            count: train_briefly(stress(count=count), "parl", folder / count)
            for count in FACTORS["count"]
        }

    return once(tmp_path_factory, "stress-agents", make)


def stress(**overrides):
    return make_scenario("stress", horizon=1000.0, sources__scale=100.0, **overrides)


def check_combination(agents, broker, window, service, count, source_processes):
    scenario = stress(count=count, service__distribution=service, disclosure="count")
    policies = (agents[count], "round-robin", "jsq", own_policy("Ahead"))
    check(scenario, Plan(policies, broker=broker, window=window, source_processes=source_processes))


@pytest.mark.parametrize("options", pairwise_cover(), ids=str)
def test_pairs_of_options_give_the_embedded_run(stress_agents, options):
    check_combination(stress_agents, *options)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [each for each in COMBINATIONS if each not in pairwise_cover()], ids=str
)
def test_all_other_combinations_give_the_embedded_run(stress_agents, options):
    check_combination(stress_agents, *options)


@pytest.mark.parametrize("window", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_secure_total_is_the_total(stress_agents, window):
    scenario = stress(disclosure="total")
    agents = (
        stress_agents["waiting"],
        own_policy("SeesTotal"),
        own_policy("AheadOfTotal"),
        "random",
    )
    check(scenario, Plan(agents, window=window))


def test_without_identities_the_run_is_the_same():
    scenario = make_scenario()
    check(scenario, Plan(("jsq", "setr"), secure=False, record=True))


# --- odd scenarios --------------------------------------------------------------------------------

SERVERS = {"fog.servers": 2, "fog.discipline": "sjf", "cloud.servers": 3, "cloud.discipline": "sjf"}


def test_several_servers_other_disciplines_and_erlang_service():
    service = {"distribution": "erlang", "shape": 3}
    scenario = make_scenario(service=service, sources__scale=20.0, **SERVERS)
    check(scenario, Plan(("jsq", "lwl", own_policy("Ahead"), own_policy("SeesCloud"))))


def test_sizes_with_a_heavy_tail():
    service = {"distribution": "pareto", "tail": 1.5}
    scenario = make_scenario(service=service, sources__scale=20.0)
    policies = ("jsq", "setr", "veil-total", own_policy("Ahead"))
    check(scenario, Plan(policies, source_processes=2))


def trace(folder: Path, lines: list[str], **options):
    """A trace whose jobs bring demands of their own."""
    path = folder / "trace.csv"
    path.write_text("t,size,app,place\n" + "\n".join(lines) + "\n")
    columns = {"time": "t", "demand": "size", "category": "app", "cluster": "place"}
    sources = {"kind": "trace", "file": str(path), "columns": columns, "demand_scale": 1000.0}
    return make_scenario(sources={**sources, **options})


def test_a_trace_with_demands_of_its_own(tmp_path):
    lines = [
        f"{at / 3},{1 + at * 7 % 23},{('light', 'demanding')[at % 2]},cluster-{1 + at % 5 // 3}"
        for at in range(600)
    ]
    scenario = trace(tmp_path, lines, time_scale=9.0)
    check(
        scenario,
        Plan(("round-robin", "jsq", "setr", own_policy("AheadOfAll")), source_processes=2),
    )


@pytest.mark.parametrize("window", [1, 3])
def test_workloads_of_one_instant(window):
    """All sources emit together, so that windows end in the midst of an instant."""
    sources = {"kind": "deterministic", "scale": 25.0, "phase": "together"}
    scenario = make_scenario(sources=sources, horizon=1500.0)
    check(
        scenario,
        Plan(
            ("jsq", "round-robin", own_policy("Ahead"), own_policy("SeesCloud")),
            window=window,
            source_processes=2,
        ),
    )


def many_at_once(folder: Path, number: int):
    lines = [f"5,{1 + at % 7},light,cluster-{1 + at % 2}" for at in range(number)]
    return trace(folder, ["1,1,light,cluster-1", *lines, "6,1,light,cluster-2"])


def test_very_many_workloads_of_one_instant(tmp_path):
    """Far more than a window takes, from several processes that each know only their own."""
    check(
        many_at_once(tmp_path, 2500), Plan(("round-robin", own_policy("Ahead")), source_processes=2)
    )


@pytest.mark.slow
def test_more_workloads_of_one_instant_than_fit_into_a_message(tmp_path):
    check(many_at_once(tmp_path, 150_000), Plan(("nearest",), source_processes=2))


@pytest.mark.parametrize("horizon", [20.0, pytest.param(60.0, marks=pytest.mark.slow)])
def test_a_run_that_is_over_at_once(horizon):
    check(make_scenario(horizon=horizon), Plan(("random", "jsq", own_policy("Ahead"))))


@pytest.mark.parametrize("broker", ["mosquitto", pytest.param("builtin", marks=pytest.mark.slow)])
def test_names_that_are_invalid_in_topics_and_folders(tmp_path, broker):
    """A space, a slash, a percent sign, an umlaut; wildcards of MQTT; a comma, as in a record."""
    world = build_world(make_scenario())
    names, cloud = ("fog 1/ä", "100 %41, #2", "+/..\\'\"☁"), "the Cloud / $SYS"
    world = replace(
        world,
        nodes=names,
        cloud=cloud,
        agent=replace(world.agent, nodes=names, cloud=cloud),
        fogs=tuple(replace(fog, name=name) for fog, name in zip(world.fogs, names, strict=True)),
        cloud_provider=replace(world.cloud_provider, name=cloud),
    )
    plan = Plan(("jsq", own_policy("SeesCloud")), broker=broker)
    with create_testbed(world, plan, tmp_path) as testbed:
        testbed.wait()
    for episode, policy in enumerate(plan.policies):
        expected = simulate(world, policies.load(policy, world.agent))
        assert join(world, testbed.split, episode, []) == expected


def test_a_node_with_the_name_of_another_participant_is_refused(write_scenario):
    path = write_scenario(*[('"fog-1"', '"sources-1"')] * 4)
    done = fogveil("run", path, "--policy", "jsq", "--federated", "--source-processes", 2)
    assert done.returncode == 2
    assert "two participants are called sources-1" in done.stderr


# --- on a busy machine ----------------------------------------------------------------------------


@contextmanager
def busy(processes: int = 2):
    """Keep the processors busy with something else."""
    command = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_ten_repetitions_on_a_busy_machine_are_equal():
    scenario = make_scenario()
    plans = (
        Plan(("jsq",) * 5),
        Plan(("jsq",) * 3, broker="builtin", source_processes=2),
        Plan(("jsq",) * 2, broker="mosquitto"),
    )
    with busy():
        results = [result for plan in plans for result in run_federated(scenario, plan)]
    assert len(results) == 10
    assert {result["run_hash"] for result in results} == {embedded_hash(scenario, "jsq")}


# --- records --------------------------------------------------------------------------------------


def test_the_records_are_those_of_the_embedded_run(tmp_path):
    scenario, specs = (
        make_scenario(),
        ("jsq", "random", own_policy("SeesCloud"), own_policy("SeesTotal")),
    )
    results = run_federated(scenario, Plan(specs), tmp_path / "federated")
    for episode, (spec, federated) in enumerate(zip(specs, results, strict=True)):
        expected, folder = (
            tmp_path / f"embedded-{episode}",
            tmp_path / f"federated/episode-{episode:04}",
        )
        embedded = run_embedded(scenario, spec, expected)
        check_records(expected, folder)
        written = json.loads((folder / "run.json").read_text())
        assert written == federated
        assert written.keys() - {"federated"} == embedded.keys()
        same = embedded.keys() - {"mode", "wall_seconds", "cpu_seconds", "provenance"}
        assert {key: written[key] for key in same} == {key: embedded[key] for key in same}
        assert 0 < written["cpu_seconds"] < 120
        assert list(tables.run_tables(written))
    done = fogveil("figures", tmp_path / "federated", "--out", tmp_path / "figures")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "figures/loops.svg").exists()


def check_records(expected: Path, folder: Path) -> None:
    for name in ("jobs.parquet", "decisions.parquet"):
        one, other = (pq.read_table(each / name) for each in (expected, folder))
        assert one.equals(other)
        assert one.num_rows > 100
        assert (folder / name).stat().st_mode & 0o777 == 0o600


def test_the_records_of_one_run_lie_in_its_folder(tmp_path):
    scenario = make_scenario(horizon=3000.0)
    run_embedded(scenario, "jsq", tmp_path / "embedded")
    run_federated(scenario, Plan(("jsq",)), tmp_path / "federated")
    check_records(tmp_path / "embedded", tmp_path / "federated")


def test_a_testbed_may_be_named_relative_to_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scenario = make_scenario()
    (result,) = run_federated(scenario, Plan(("jsq",), broker="builtin"), Path("runs/one"))
    assert result["run_hash"] == embedded_hash(scenario, "jsq")
