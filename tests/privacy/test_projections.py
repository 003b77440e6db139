"""Each participant's projection of the scenario has its own secrets, and nobody else's."""

from __future__ import annotations

import json

import pytest
from support import make_world

from fogveil.core.errors import InputError
from fogveil.core.randomness import Seeds, drawn

IPT = [317.0917, 523.4411, 991.7313]
RAM = [11.5071, 17.6203, 23.9401]
CLOUD_IPT = 1503.7707
WORK = [4001.25, 30003.5]


@pytest.fixture(scope="module")
def world():
    applications = [
        {"name": name, "instructions": work, "bytes_up": 100.0, "bytes_down": 50.0}
        for name, work in zip(("light", "demanding"), WORK, strict=True)
    ]
    return make_world(
        fog__ipt=IPT,
        fog__ram=RAM,
        cloud__ipt=CLOUD_IPT,
        applications=applications,
        disclosure="count",
        seed=90210,
    )


def projection_text(world, participant):
    return json.dumps(world.projection(participant))


@pytest.mark.parametrize("participant", ["agent", "sources", "clock"])
def test_no_provider_secret_reaches_the_others(world, participant):
    text = projection_text(world, participant)
    for secret in (*IPT, *RAM, CLOUD_IPT, *WORK):
        assert str(secret) not in text


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_provider_gets_its_own_secrets_only(world, number):
    text = projection_text(world, f"fog-{number}")
    for node, (ipt, ram) in enumerate(zip(IPT, RAM, strict=True), 1):
        assert (str(ipt) in text) == (str(ram) in text) == (node == number)
    assert str(CLOUD_IPT) not in text
    assert str(CLOUD_IPT) in projection_text(world, "cloud")


def test_each_participant_gets_its_own_seed_and_none_the_scenarios(world):
    seeds = Seeds.of(90210)
    expected = {
        "agent": {seeds.policy},
        "sources": {seeds.workload},
        "fog-1": {seeds.environment},
        "cloud": {seeds.environment},
        "clock": set(),
    }
    for participant, own_seeds in expected.items():
        text = projection_text(world, participant)
        assert {seed for seed in seeds if str(seed) in text} == own_seeds
        assert "90210" not in text
    assert len(set(seeds)) == 3


def test_each_participant_draws_the_next_episode_from_its_own_seed(world):
    episode = world.drawn(3)
    for participant in ("agent", "sources", "fog-1", "cloud"):
        projection = world.projection(participant)
        projection["seed"] = drawn(projection["seed"], 3)
        assert episode.projection(participant) == projection
    assert world.drawn(0).sources == world.sources
    assert world.drawn(0).fogs == world.fogs


def test_only_the_sources_get_the_demands_of_all_jobs(tmp_path):
    """A provider receives a job's demand with the job; the agent receives none."""
    (tmp_path / "trace.csv").write_text("t,size\n0,1234.5\n5,2345.5\n9,34567.5\n")
    columns = {"time": "t", "demand": "size"}
    sources = {"kind": "trace", "file": str(tmp_path / "trace.csv"), "columns": columns}
    world = make_world(sources=sources)
    for participant in ("agent", "sources", "fog-1", "cloud", "clock"):
        text = projection_text(world, participant)
        demands = [factor for factor in world.demands if str(factor) in text]
        assert demands == (list(world.demands) if participant == "sources" else [])
        for size in ("1234.5", "2345.5", "34567.5"):
            assert size not in text
    assert world.fogs[0].demands_vary
    assert not make_world().fogs[0].demands_vary
    assert make_world().demands is None


def test_the_agents_projection_has_exactly_these_keys(world):
    assert set(world.projection("agent")) == {
        "nodes",
        "cloud",
        "clusters",
        "categories",
        "count",
        "disclosed",
        "up",
        "down",
        "hops",
        "bandwidth",
        "seed",
        "settings",
        "latency_changes",
    }


def test_secrets_do_not_change_the_agents_projection(world):
    other = make_world(disclosure="count", seed=90210, applications=_applications(world))
    assert other.projection("agent") == world.projection("agent")
    assert other.projection("fog-1") != world.projection("fog-1")


def test_no_participant_receives_a_deadline(world):
    applications = [{**app, "deadline": 54321.5} for app in _applications(world)]
    other = make_world(disclosure="count", seed=world.scenario.seed, applications=applications)
    for participant in ("agent", "sources", "clock", "fog-1", "fog-2", "fog-3", "cloud"):
        assert "54321" not in projection_text(other, participant)
        assert set(other.projection(participant)) == set(world.projection(participant))


def _applications(world):
    return [app.model_dump() for app in world.scenario.applications]


def test_shuffled_resources_are_the_same_resources_elsewhere():
    original = make_world("stress")
    shuffled = make_world("stress", fog__assignment="shuffled")
    speeds = [[config.ipt for config in world.fogs] for world in (original, shuffled)]
    assert speeds[0] != speeds[1]
    assert speeds[0] == sorted(speeds[1])
    assert shuffled.projection("agent") == original.projection("agent")


def test_an_unknown_participant_is_refused(world):
    with pytest.raises(InputError, match="no participant is called 'fog-4'.*fog-3"):
        world.projection("fog-4")
