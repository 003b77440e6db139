"""Who decides while the attacker watches, and what an agent holds after that.

It watches the embedded engine, which is fast, or a testbed, where the transcript is read from the
record in the agent's own folder: what is inferred from that, an agent could have inferred.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from math import inf
from pathlib import Path

import agent.policies as policies
from agent.choosing import choose, learn
from agent.inference.transcript import Transcript
from agent.policy import AgentView, Level, Observation, Policy
from agent.record import read_record, record_path
from fogveil.errors import InputError
from fogveil.identity import AGENT
from testbed.embedded import Embedded
from testbed.federated.bringing import bring_up
from testbed.federated.split import Plan as TestbedPlan
from testbed.leakage import placing
from testbed.leakage.placing import BLIND, Prober, class_name
from testbed.world import World, build_world

ORDINARY = {Level.COUNT: "jsq", Level.TOTAL: "random"}
"""What an honest agent might place by that sees this much, and that still uses every node."""


def attacker(name: str | None, level: Level, view: AgentView) -> Policy:
    """Make the policy that decides; None is the active one."""
    if name is None:
        return Prober(view)
    needs = policies.find(name).needs
    if needs not in (Level.NONE, level):
        raise InputError(
            f"policy {name} needs disclosure level {needs.word!r}, but the attacker is to see "
            f"{level.word!r}: expected a policy that needs this level, or none"
        )
    return policies.load(name, view)


def watch(world: World, level: Level, policy: Policy, decisions: int) -> Transcript:
    """Run the embedded engine for some decisions; return what an agent at this level holds then."""
    # Sources go on for as long as it takes, whatever horizon the scenario has; a trace ends.
    endless = replace(world, sources=replace(world.sources, horizon=inf))
    engine = Embedded(endless, level)
    kind = type(policy)
    held: list[tuple[Observation, int]] = []
    while len(held) < decisions:
        seen = engine.next_decision()
        if seen is None:
            raise InputError(
                f"--decisions {decisions}: the scenario's trace has only {len(held)} workloads"
            )
        blind = kind.needs is Level.NONE or kind.decides_ahead
        node = choose(policy, seen.blind() if blind else seen, len(world.nodes))
        if kind.decides_ahead and kind.needs is not Level.NONE:
            learn(policy, seen, node)
        engine.place(node)
        held.append((seen, node))
    return Transcript(world.agent, tuple(held))


def policy_at(name: str | None, level: Level) -> str:
    """Return the policy with which a testbed's agent places like this one, and sees so much."""
    if name in BLIND:
        return f"{Path(placing.__file__)}:{class_name(name, level)}"
    assert name is not None
    if policies.find(name).needs is not level:
        raise InputError(
            f"policy {name} needs no disclosure, and a testbed's agent is shown only what its "
            f"policy needs: expected one that needs {level.word!r}"
        )
    return name


def watch_testbed(
    world: World, level: Level, name: str | None, decisions: int, how: TestbedPlan
) -> Transcript:
    """Bring a testbed up for some decisions; return what is in its agent's own folder then."""
    # When the sources must stop is known beforehand: the embedded engine gives the same run.
    ahead = watch(world, level, attacker(name, level, world.agent), decisions)
    scenario = world.scenario.model_copy(update={"horizon": float(ahead.times[-1])})
    plan = replace(how, policies=(policy_at(name, level),))
    with tempfile.TemporaryDirectory(prefix="fogveil-leakage-") as place:
        with bring_up(build_world(scenario), plan, Path(place) / "testbed") as testbed:
            testbed.wait()
        record = record_path(testbed.split.folder_of(AGENT), 0)
        held = []
        for job, cluster, category, node, emitted, _, seen in read_record(record):
            blind = Observation(emitted, job, cluster, category)
            if level is Level.TOTAL:
                held.append((blind._replace(total=seen[0]), node))
            else:
                held.append((blind._replace(counts=seen[: len(world.nodes)]), node))
    return Transcript(world.agent, tuple(held[:decisions]))
