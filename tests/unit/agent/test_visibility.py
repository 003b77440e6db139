"""What a level permits: one function for the embedded engine and for the agent's process."""

from __future__ import annotations

import pytest
from support import make_world

from fogveil.agent.core import DecisionCore
from fogveil.agent.decision_record import observed_counts
from fogveil.agent.policy import Level, Load, Observation, Policy
from fogveil.agent.visibility import Disclosed, Visibility
from fogveil.testbed.engine.embedded import Embedded
from fogveil.v1.workload_pb2 import Workload

EMISSION = (1.5, 7, 1, 0)
LOAD = Load((1.0,), (2.0,), ((3.0,),), (4.0,), (5.0,))
EVERYTHING = Disclosed(counts=(2, 0, 4), cloud_count=1, load=LOAD)


@pytest.mark.parametrize("watches_cloud", [False, True])
@pytest.mark.parametrize(
    ("level", "shown", "recorded"),
    [
        (Level.NONE, {}, ()),
        (Level.TOTAL, {"total": 7}, (7,)),
        (Level.COUNT, {"counts": (2, 0, 4)}, (2, 0, 4, -1)),
        (Level.FULL, {"counts": (2, 0, 4), "load": LOAD}, (2, 0, 4, -1)),
    ],
)
def test_each_level_shows_what_it_says(level, shown, recorded, watches_cloud):
    visibility = Visibility(level, watches_cloud=watches_cloud)
    observation = visibility.observation(EMISSION, *EVERYTHING)
    if watches_cloud and level >= Level.COUNT:
        shown, recorded = {**shown, "cloud_count": 1}, (*recorded[:3], 1)
    assert observation == Observation(*EMISSION, **shown)
    assert observed_counts(observation) == recorded
    needs_cloud = level is Level.TOTAL or (watches_cloud and level >= Level.COUNT)
    assert visibility.needs_cloud == needs_cloud


def test_a_disclosed_total_needs_no_counts():
    observation = Visibility(Level.TOTAL).observation(EMISSION, *Disclosed(total=9))
    assert observation == Observation(*EMISSION, total=9)


def test_an_instance_cannot_raise_its_level():
    class Sneaky(Policy):
        needs = Level.TOTAL

        def place(self, observation):
            return 0

    policy = Sneaky(make_world().agent)
    policy.needs = Level.FULL
    assert Visibility.of(policy).level is Level.TOTAL


@pytest.mark.parametrize("watches", [False, True])
@pytest.mark.parametrize("level", list(Level))
def test_engine_and_agent_show_a_policy_the_same(level, watches):
    class Watcher(Policy):
        needs = level
        watches_cloud = watches

        def reset(self):
            self.observations = []

        def place(self, observation):
            self.observations.append(observation)
            return observation.job % 3

    world = make_world(horizon=400.0)
    embedded, federated = Watcher(world.agent), Watcher(world.agent)
    full = Embedded(world, Level.FULL, watches_cloud=True)
    engine = Embedded(world, level, watches_cloud=watches)
    decisions = []
    core = DecisionCore(world.agent, federated, decisions.append)
    while (observation := engine.next_decision()) is not None:
        engine.place(embedded.place(observation))
        time, job, cluster, category, counts, cloud_count, _, load, *_ = full.next_decision()
        workload = Workload(job=job, cluster=cluster, category=category, emitted=time)
        node, _ = core.place(workload, Disclosed(counts, cloud_count, load=load))
        full.place(node)
        assert decisions[-1].counts == observed_counts(observation)
    assert federated.observations == embedded.observations
    assert len(decisions) > 20
