"""An audit from beginning to end."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from agent.policies import label_of
from fogveil.errors import InputError
from fogveil.identity import AGENT, AUDITOR, PROVIDER, Identity
from testbed.audit.confinement import around, check_process
from testbed.audit.findings import Finding
from testbed.audit.messages import check_masks, check_schema, check_truth, check_wire
from testbed.audit.refusals import check_methods, check_topics
from testbed.audit.schema import served_methods
from testbed.audit.stage import Stage, look_at_processes, plant
from testbed.audit.twins import check_twins
from testbed.federated.bringing import bring_up
from testbed.federated.evaluate import join
from testbed.federated.launch import Testbed
from testbed.federated.split import Plan
from testbed.scenario import Scenario
from testbed.world import build_world

DECISIONS = 300
"""About as many are audited, unless the horizon is asked for."""
LOOK_AROUND = 10.0
"""Seconds that a run in containers takes in an audit."""
PATIENCE = 300.0
"""Seconds in which all that is tried before the agent comes must be done."""
LOOKER = f"{Path(__file__).with_name('looker.py')}:TotalLooker"
POLICIES = {"count": "veil", "total": LOOKER, "full": "setr", "none": "round-robin"}
"""Who decides in an audit, by level."""


def audit(
    scenario: Scenario,
    plan: Plan,
    say: Callable[[str], None],
    seed: int | None = None,
) -> list[Finding]:
    """Bring the scenario up with planted secrets, attack it, and judge every promise."""
    if not plan.secure:
        raise InputError("an audit of a testbed without identities has nothing to find")
    planted = plant(scenario, seed)
    world = build_world(planted)
    level = planted.disclosure
    plan = replace(plan, record=True, policies=plan.policies or (POLICIES[level],))
    if plan.contained:  # there must be time to look around, from inside the agent's container too
        plan = replace(plan, speed=planted.horizon / LOOK_AROUND, patience=PATIENCE)
    findings: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="fogveil-audit-") as place:
        folder = Path(place)
        say(f"bringing {planted.name} up with planted secrets, level {level}")
        with bring_up(world, plan, folder / "testbed", hold=True, say=say) as testbed:
            split = testbed.split
            if level != "none":
                findings.append(_schema(testbed, folder))
                say("every identity tries every method")
                findings.append(check_methods(testbed, world))
            inside = around(testbed)
            testbed.release()
            stage = Stage(world, plan, folder / "testbed", split)
            stage.environment = look_at_processes(testbed)
            confined = check_process(testbed, split.users.get(AGENT), inside)
            say(f"{label_of(plan.policies[0])} places the workloads")
            testbed.wait()
            stage.said = testbed.said
        join(world, split, 0, [])
        findings += check_wire(stage)
        findings.append(check_truth(stage))
        if level == "total":
            findings.append(check_masks(stage))
        say("every identity tries every topic")
        findings.append(check_topics(plan.broker, contained=plan.contained))
        findings.append(confined)
        if level == "count":
            say("twins with different secrets")
            findings += check_twins(folder, plan, planted.count.value, seed or 1)
    return findings


def _schema(testbed: Testbed, folder: Path) -> Finding:
    auditor = testbed.split.identify("auditor", AUDITOR, folder / "auditor")
    assert auditor is not None
    name = testbed.split.seats.fogs[0]
    host = Identity(testbed.run, PROVIDER, name)
    served = asyncio.run(served_methods(testbed.addresses[name], host, auditor))
    return check_schema(testbed.level, served)
