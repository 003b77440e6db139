"""What a policy can reach: walk every object it holds or is handed, and look for the secrets."""

from __future__ import annotations

import gc
from types import CodeType, FunctionType, MethodType, ModuleType

import pytest
from support import make_world

import agent.policies as policies
from agent.policy import Level, Observation, Policy
from fogveil.errors import InputError
from provider_node.node import Node
from provider_node.provider import Provider, ProviderConfig
from testbed.embedded import Embedded
from testbed.scenario import Scenario
from testbed.world import World

SECRET_HOLDERS = (World, Scenario, Provider, ProviderConfig, Node, Embedded)
IPT = [317.0917, 523.4411, 991.7313]
RAM = [11.5071, 17.6203, 23.9401]
BELOW_FULL = [name for name in policies.POLICIES if policies.find(name).needs < Level.FULL]


def reachable(*roots):
    """Everything an object leads to, but for code and module globals, which hold no run's state."""
    seen, queue = {}, list(roots)
    while queue:
        thing = queue.pop()
        if id(thing) in seen or isinstance(thing, type | ModuleType | CodeType):
            continue
        seen[id(thing)] = thing
        if isinstance(thing, FunctionType):
            queue += [cell.cell_contents for cell in thing.__closure__ or ()]
            queue += thing.__defaults__ or ()
        elif isinstance(thing, MethodType):
            queue += [thing.__self__, thing.__func__]
        else:
            queue += gc.get_referents(thing)
    return list(seen.values())


def secrets_in(things, world):
    numbers = {*IPT, *RAM, world.scenario.cloud.ipt}
    work = [app.instructions for app in world.scenario.applications]
    numbers |= {instructions / ipt for instructions in work for ipt in IPT} | set(work)
    numbers |= {config.seed for config in world.fogs} | {world.sources.seed}
    holders = [thing for thing in things if isinstance(thing, SECRET_HOLDERS)]
    return holders + [x for x in things if isinstance(x, int | float) and x in numbers]


class Greedy(Policy):
    """Keeps everything it is ever handed."""

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
def test_everything_ever_handed_over_holds_no_secret(world, level):
    policy = play(world, type("Kept", (Greedy,), {"needs": level})(world.agent))
    assert len(policy.kept) > 50
    assert secrets_in(reachable(policy), world) == []


def test_the_search_finds_secrets_where_they_are(world):
    """The search above can fail: at level full the secrets are handed over."""
    policy = play(world, type("Kept", (Greedy,), {"needs": Level.FULL})(world.agent))
    found = secrets_in(reachable(policy), world)
    assert set(IPT) | set(RAM) <= set(found)
    assert secrets_in(reachable([lambda: world]), world)


@pytest.mark.parametrize(
    ("level", "given"),
    [
        (Level.NONE, set()),
        (Level.TOTAL, {"total"}),
        (Level.COUNT, {"counts"}),
        (Level.FULL, {"counts", "load"}),
    ],
)
def test_each_level_gives_what_it_says(world, level, given):
    policy = play(world, type("Kept", (Greedy,), {"needs": level})(world.agent))
    optional = ("counts", "cloud_count", "total", "load")
    for seen in policy.kept:
        assert {name for name in optional if getattr(seen, name) is not None} == given


def test_an_observation_does_not_change_after_it_was_given(world):
    policy = type("Kept", (Greedy,), {"needs": Level.COUNT})(world.agent)
    engine = Embedded(world, Level.COUNT)
    spelled = []
    while (seen := engine.next_decision()) is not None:
        spelled.append(repr(seen))
        engine.place(policy.place(seen))
    assert [repr(seen) for seen in policy.kept] == spelled


@pytest.mark.parametrize("name", policies.POLICIES)
def test_a_policy_that_needs_more_than_is_disclosed_is_refused(name):
    needs = policies.find(name).needs
    for level in Level:
        world = make_world(disclosure=level.word)
        if level >= needs:
            assert policies.load(name, world.agent).needs is needs
        else:
            with pytest.raises(InputError, match=f"needs disclosure level '{needs.word}'"):
                policies.load(name, world.agent)
