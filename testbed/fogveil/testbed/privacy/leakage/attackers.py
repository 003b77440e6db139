"""Running an attacker, and returning the transcript from which it infers.

It runs in the embedded engine, which is fast, or in a testbed, whose transcript is read from the
record in the agent's own folder: an agent could infer the same from it.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from itertools import islice
from math import inf
from pathlib import Path

import fogveil.agent.policies as policies
from fogveil.agent.decision_record import read_record, record_path
from fogveil.agent.inference.transcript import Transcript
from fogveil.agent.policy import AgentView, Level, Policy
from fogveil.agent.visibility import Disclosed, Visibility
from fogveil.core.errors import InputError
from fogveil.protocol.identity import AGENT
from fogveil.testbed.engine.embedded import Embedded, take_decisions
from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.participant_config import Plan as TestbedPlan
from fogveil.testbed.privacy.leakage import attacker_policies
from fogveil.testbed.privacy.leakage.attacker_policies import OBSERVED, Prober, observer_name
from fogveil.testbed.scenario.world import World, build_world

DEFAULT_POLICIES = {Level.COUNT: "jsq", Level.TOTAL: "random"}
"""What an honest agent might use at each level, and that places on every node."""


def load_attacker(name: str | None, level: Level, view: AgentView) -> Policy:
    """Return the policy that places while the attacker observes; None is the prober."""
    if name is None:
        return Prober(view)
    needs = policies.find(name).needs
    if needs not in (Level.NONE, level):
        raise InputError(
            f"policy {name} needs disclosure level {needs.word!r}, but the attacker sees level "
            f"{level.word!r}: choose a policy that needs this level, or none"
        )
    return policies.load(name, view)


def watch(world: World, level: Level, policy: Policy, decisions: int) -> Transcript:
    """Run the embedded engine for some decisions; return what an agent at this level observed."""
    # Sources emit until there are enough decisions, whatever the horizon; only a trace ends.
    endless = replace(world, sources=replace(world.sources, horizon=inf))
    taken = tuple(islice(take_decisions(Embedded(endless, level), policy), decisions))
    if len(taken) < decisions:
        raise InputError(
            f"--decisions {decisions}: the scenario's trace has only {len(taken)} workloads"
        )
    return Transcript(world.agent, taken)


def policy_on_testbed(name: str | None, level: Level) -> str:
    """Return the policy by which a testbed's agent places like `name` and is shown this level."""
    if name in OBSERVED:
        return f"{Path(attacker_policies.__file__)}:{observer_name(OBSERVED[name], level)}"
    assert name is not None
    if policies.find(name).needs is not level:
        raise InputError(
            f"policy {name} needs no disclosure, and a testbed's agent is shown only what its "
            f"policy needs: choose a policy that needs {level.word!r}"
        )
    return name


def watch_testbed(
    world: World, level: Level, name: str | None, decisions: int, plan: TestbedPlan
) -> Transcript:
    """Run a testbed for some decisions; return the transcript in its agent's own folder."""
    # The embedded engine gives the same run, and so the horizon at which the sources must stop.
    embedded = watch(world, level, load_attacker(name, level, world.agent), decisions)
    scenario = world.scenario.model_copy(update={"horizon": float(embedded.times[-1])})
    plan = replace(plan, policies=(policy_on_testbed(name, level),))
    with tempfile.TemporaryDirectory(prefix="fogveil-leakage-") as folder:
        with create_testbed(build_world(scenario), plan, Path(folder) / "testbed") as testbed:
            testbed.wait()
        record = record_path(testbed.split.folder_of(AGENT), 0)
        visibility, taken = Visibility(level), []
        for decision in islice(read_record(record), decisions):
            emission = decision.emitted, decision.job, decision.cluster, decision.category
            if level is Level.TOTAL:
                disclosed = Disclosed(total=decision.counts[0])
            else:
                disclosed = Disclosed(decision.counts[: len(world.nodes)])
            taken.append((visibility.observation(emission, *disclosed), decision.node))
    return Transcript(world.agent, tuple(taken))
