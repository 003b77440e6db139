"""Twins really have equal permitted outputs and different secrets, however they were found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support import make_world

import fogveil.agent.policies as policies
from fogveil.agent.policy import Observation
from fogveil.core.disclosure import Level
from fogveil.testbed.engine.embedded import Embedded, take_decisions
from fogveil.testbed.privacy.audit.procedure import TOTAL_OBSERVER
from fogveil.testbed.privacy.audit.twins.bursts import burst_world, draw_secrets
from fogveil.testbed.privacy.audit.twins.replay import Replay, decisions_of, permitted
from fogveil.testbed.privacy.audit.twins.search import Difference, find_twin
from fogveil.testbed.scenario.world import World

POLICIES = {"count": "jsq", "total": TOTAL_OBSERVER, "none": "round-robin"}


def seen_by_agent(world: World, policy: str) -> list[tuple[Observation, int]]:
    """Return every observation and decision of a run, by the embedded engine."""
    chosen = policies.load(policy, world.agent)
    kind = type(chosen)
    engine = Embedded(world, kind.needs, watches_cloud=kind.watches_cloud)
    return list(take_decisions(engine, chosen))


@pytest.mark.parametrize("count", ["waiting", "in_system"])
@pytest.mark.parametrize("level", ["count", "total"])
def test_a_replay_gives_the_counts_of_the_engine(level, count):
    world = make_world(disclosure=level, count=count, sources__scale=25, horizon=500)
    seen = seen_by_agent(world, POLICIES[level])
    replay = Replay(world, decisions_of(world, policies.load(POLICIES[level], world.agent)))
    counts = permitted(replay.all(world), world.agent.disclosed, watches_cloud=False)
    expected = [o.counts if level == "count" else (o.total,) for o, _ in seen]
    assert np.array_equal(counts, expected)
    assert len({*map(tuple, expected)}) > 5


@settings(max_examples=25)
@given(
    level=st.sampled_from(["count", "total", "none"]),
    count=st.sampled_from(["waiting", "in_system"]),
    scale=st.floats(30, 200),
    seed=st.integers(0, 2**32),
    service=st.sampled_from(["deterministic", "exponential"]),
    servers=st.integers(1, 2),
)
def test_a_found_twin_has_equal_outputs_and_different_secrets(
    level, count, scale, seed, service, servers
):
    world = make_world(
        disclosure=level,
        count=count,
        seed=seed,
        sources__scale=scale,
        service__distribution=service,
        fog__servers=servers,
        horizon=600,
    )
    chosen = policies.load(POLICIES[level], world.agent)
    decisions = decisions_of(world, chosen)
    assume(len(decisions) > 3)
    twin = find_twin(world, decisions, watches_cloud=False, seed=seed)
    assert twin is not None
    assert seen_by_agent(twin, POLICIES[level]) == seen_by_agent(world, POLICIES[level])
    assert twin.agent == world.agent
    assert twin.sources == world.sources
    difference = Difference.between(world, twin)
    assert all(factor > 1.0 for factor in difference.services)
    assert all(factor > 1.5 for factor in difference.speeds)
    assert not {fog.ram for fog in world.fogs} & {fog.ram for fog in twin.fogs}


def test_speeds_go_to_the_ends_of_what_leaves_the_counts():
    """Beyond the chosen speed, by a millionth, some count changes."""
    world = make_world(disclosure="count", sources__scale=40, horizon=600)
    decisions = decisions_of(world, policies.load("jsq", world.agent))
    twin = find_twin(world, decisions, watches_cloud=False, seed=1)
    assert twin is not None
    replay = Replay(world, decisions)
    changed = 0
    for number, (fog, truth) in enumerate(zip(twin.fogs, replay.all(world).T[:-1], strict=True)):
        around = [
            replay.fog(number, replace(fog, ipt=fog.ipt * factor))
            for factor in (1 - 1e-6, 1 + 1e-6)
        ]
        assert replay.fog(number, fog) == truth.tolist()
        changed += any(counts != truth.tolist() for counts in around)
    assert changed == len(world.fogs)


def test_where_demands_are_public_instructions_stay(tmp_path):
    """The agent is told a job's demand relative to its category's instructions."""
    trace = tmp_path / "trace.csv"
    lines = "".join(f"{10 * number},{4000 + number}\n" for number in range(1, 40))
    trace.write_text("time,work\n" + lines)
    columns = {"time": "time", "demand": "work"}
    world = make_world(
        disclosure="count", sources={"kind": "trace", "file": str(trace), "columns": columns}
    )
    decisions = decisions_of(world, policies.load("jsq", world.agent))
    twin = find_twin(world, decisions, watches_cloud=False, seed=1)
    assert twin is not None
    assert twin.sources == world.sources
    assert seen_by_agent(twin, "jsq") == seen_by_agent(world, "jsq")


@settings(max_examples=20)
@given(
    level=st.sampled_from(["count", "total"]),
    count=st.sampled_from(["waiting", "in_system"]),
    seed=st.integers(0, 2**32),
)
def test_bursts_hide_speeds_that_differ_by_a_factor_of_two(tmp_path_factory, level, count, seed):
    folder = tmp_path_factory.mktemp("bursts")
    worlds = [burst_world(folder, level, count, 300, s) for s in draw_secrets(level, seed)]
    seen = [seen_by_agent(world, POLICIES[level]) for world in worlds]
    assert len(seen[0]) >= 300
    assert seen[0] == seen[1]
    assert len({(o.counts, o.total) for o, _ in seen[0]}) >= 8
    difference = Difference.between(*worlds)
    assert min(difference.speeds) >= 2
    assert difference.reordered
    assert worlds[0].fogs[0].seed != worlds[1].fogs[0].seed
    if level == "total":  # each provider's own count changes, and the sum does not
        decisions = decisions_of(worlds[0], policies.load(TOTAL_OBSERVER, worlds[0].agent))
        one, other = (Replay(world, decisions).all(world) for world in worlds)
        assert (one != other).any(axis=1).mean() > 0.5
        assert worlds[0].agent.disclosed is Level.TOTAL
