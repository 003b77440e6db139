"""What a policy can reach: walk every object that it has or receives, and search for secrets."""

from __future__ import annotations

import gc
from types import CodeType, FunctionType, MethodType, ModuleType

import pytest
from support import ANY_SHAPE, make_world

import fogveil.agent.policies as policies
from fogveil.agent.policy import Level, Observation, Policy
from fogveil.core.errors import InputError
from fogveil.provider_node.node import Node
from fogveil.provider_node.provider import Provider, ProviderConfig
from fogveil.testbed.engine.embedded import Embedded
from fogveil.testbed.scenario import Scenario
from fogveil.testbed.scenario.world import World

SECRET_HOLDERS = (World, Scenario, Provider, ProviderConfig, Node, Embedded)
IPT = [317.0917, 523.4411, 991.7313]
RAM = [11.5071, 17.6203, 23.9401]
BELOW_FULL = [name for name in ANY_SHAPE if policies.find(name).needs < Level.FULL]


def reachable(*roots):
    """Return all objects reachable from others, except code and modules: they have no run state."""
    visited, queue = {}, list(roots)
    while queue:
        current = queue.pop()
        if id(current) in visited or isinstance(current, type | ModuleType | CodeType):
            continue
        visited[id(current)] = current
        if isinstance(current, FunctionType):
            queue += [cell.cell_contents for cell in current.__closure__ or ()]
            queue += current.__defaults__ or ()
        elif isinstance(current, MethodType):
            queue += [current.__self__, current.__func__]
        else:
            queue += gc.get_referents(current)
    return list(visited.values())


def secrets_in(objects, world):
    numbers = {*IPT, *RAM, world.scenario.cloud.ipt}
    work = [app.instructions for app in world.scenario.applications]
    numbers |= {instructions / ipt for instructions in work for ipt in IPT} | set(work)
    numbers |= {config.seed for config in world.fogs} | {world.sources.seed}
    holders = [each for each in objects if isinstance(each, SECRET_HOLDERS)]
    return holders + [x for x in objects if isinstance(x, int | float) and x in numbers]


class Hoarder(Policy):
    """Keeps every observation."""

    def reset(self) -> None:
        self.kept: list[Observation] = []

    def place(self, seen: Observation) -> int:
        self.kept.append(seen)
        return len(self.kept) % 3


def play(world, policy):
    engine = Embedded(world, policy.needs, watches_cloud=policy.watches_cloud)
    while (seen := engine.next_decision()) is not None:
        engine.place(policy.place(seen))
    return policy


@pytest.fixture(scope="module")
def world():
    return make_world(fog__ipt=IPT, fog__ram=RAM, horizon=1500.0)


@pytest.mark.parametrize("name", BELOW_FULL)
def test_a_policy_below_full_reaches_no_secret(world, name):
    policy = play(world, policies.load(name, world.agent))
    assert secrets_in(reachable(policy), world) == []


@pytest.mark.parametrize("level", [Level.NONE, Level.TOTAL, Level.COUNT])
def test_no_observation_contains_a_secret(world, level):
    policy = play(world, type("Kept", (Hoarder,), {"needs": level})(world.agent))
    assert len(policy.kept) > 50
    assert secrets_in(reachable(policy), world) == []


def test_the_search_finds_secrets_where_there_are_some(world):
    """At level full the observations contain them."""
    policy = play(world, type("Kept", (Hoarder,), {"needs": Level.FULL})(world.agent))
    assert set(IPT) | set(RAM) <= set(secrets_in(reachable(policy), world))
    assert secrets_in(reachable([lambda: world]), world)


@pytest.mark.parametrize(
    ("level", "disclosed"),
    [
        (Level.NONE, set()),
        (Level.TOTAL, {"total"}),
        (Level.COUNT, {"counts"}),
        (Level.FULL, {"counts", "load"}),
    ],
)
def test_each_level_discloses_what_it_promises(world, level, disclosed):
    policy = play(world, type("Kept", (Hoarder,), {"needs": level})(world.agent))
    optional = ("counts", "cloud_count", "total", "load")
    for seen in policy.kept:
        assert {name for name in optional if getattr(seen, name) is not None} == disclosed


def test_an_observation_does_not_change_later(world):
    policy = type("Kept", (Hoarder,), {"needs": Level.COUNT})(world.agent)
    engine = Embedded(world, Level.COUNT)
    at_first = []
    while (seen := engine.next_decision()) is not None:
        at_first.append(repr(seen))
        engine.place(policy.place(seen))
    assert [repr(seen) for seen in policy.kept] == at_first


@pytest.mark.parametrize("name", ANY_SHAPE)
def test_a_policy_that_needs_more_than_is_disclosed_is_refused(name):
    needs = policies.find(name).needs
    for level in Level:
        world = make_world(disclosure=level.word)
        if level >= needs:
            assert policies.load(name, world.agent).needs is needs
        else:
            with pytest.raises(InputError, match=f"needs disclosure level '{needs.word}'"):
                policies.load(name, world.agent)
