"""An audit from start to end: plant, start, attack, run, and judge every promise."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from heapq import merge
from itertools import islice
from pathlib import Path

import tomli_w

from fogveil.agent.policies import label_of
from fogveil.core.disclosure import Level
from fogveil.core.errors import InfrastructureError, InputError
from fogveil.protocol.identity import AGENT, AUDITOR, Identity
from fogveil.sources.core import streams
from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.join_records import join
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.launch.testbed import Testbed
from fogveil.testbed.privacy.audit import total_observer_policy
from fogveil.testbed.privacy.audit.audited_run import AuditedRun, process_environments
from fogveil.testbed.privacy.audit.canaries import plant
from fogveil.testbed.privacy.audit.channels import judge_evidence
from fogveil.testbed.privacy.audit.count_check import check_counts, check_masks
from fogveil.testbed.privacy.audit.findings import Finding, Verdict
from fogveil.testbed.privacy.audit.freshness_check import DrawnValues
from fogveil.testbed.privacy.audit.grpc_access_check import check_grpc_access
from fogveil.testbed.privacy.audit.mqtt_access_check import check_mqtt_access
from fogveil.testbed.privacy.audit.page_check import check_page
from fogveil.testbed.privacy.audit.process_check import check_process
from fogveil.testbed.privacy.audit.reachability_probe import probe_providers
from fogveil.testbed.privacy.audit.recording_check import check_canaries, check_wire
from fogveil.testbed.privacy.audit.schema_check import check_schema, served_methods
from fogveil.testbed.privacy.audit.tapped_run import run_tapped
from fogveil.testbed.privacy.audit.twins.check import check_twins
from fogveil.testbed.scenario import Scenario, load_scenario
from fogveil.testbed.scenario.world import World, build_world

DECISIONS = 300
"""About as many are audited if no horizon is chosen."""
CONTAINER_RUN_TIME = 10.0
"""Seconds that a run in containers is stretched to, so that its agent can be examined."""
SETUP_TIMEOUT = 300.0
"""Seconds for everything that is tried before the agent starts."""
ENDED_EARLY = "run: it can be judged"
"""The finding about what could not be examined any more."""
TOTAL_OBSERVER = f"{Path(total_observer_policy.__file__)}:TotalObserver"
FOLLOWED = ("speed", "rate", "mix", "demand")
"""Kinds of events that may be audited."""
POLICIES = {"count": "veil", "total": TOTAL_OBSERVER, "full": "setr", "none": "round-robin"}
"""The policy of an audited run, by level."""


def horizon_for(scenario: Scenario, decisions: int) -> float:
    """Return a horizon before which about so many workloads are emitted."""
    emissions = merge(*streams(build_world(scenario).sources))
    last = scenario.horizon
    for emission in islice(emissions, decisions):
        last = emission[0]
    return min(last, scenario.horizon)


def run_audit(
    scenario: Scenario,
    plan: Plan,
    report: Callable[[str], None],
    seed: int | None = None,
) -> list[Finding]:
    """Start the scenario with planted secrets, attack it, and judge every promise.

    `report` is called with each step.
    """
    if not plan.secure:
        raise InputError("a testbed without identities cannot be audited: set `secure`")
    refuse_events(scenario)
    with tempfile.TemporaryDirectory(prefix="fogveil-scenario-") as path:
        return _audit_planted(_plant_file(scenario, Path(path), seed), plan, report, seed)


def refuse_events(scenario: Scenario) -> None:
    """Refuse events that the reference, with which everything is compared, does not follow."""
    kinds = [kind for event in scenario.events if (kind := event.kind) not in FOLLOWED]
    if kinds:
        raise InputError(
            f"events: the audit does not follow events of kind {', '.join(dict.fromkeys(kinds))}, "
            f"only {', '.join(FOLLOWED)}; take them out of the scenario to audit it"
        )


def _plant_file(scenario: Scenario, folder: Path, seed: int | None) -> Scenario:
    """Return the scenario with planted secrets, read from a file that everybody may read.

    So the scenarios of most users are: whoever finds the file finds the secrets.
    """
    folder.chmod(0o755)
    path = folder / "scenario.toml"
    table = plant(scenario, seed).model_dump(mode="json", exclude_none=True)
    path.write_text(tomli_w.dumps(table), encoding="utf-8")
    return load_scenario(path)


def _audit_planted(
    planted: Scenario, plan: Plan, report: Callable[[str], None], seed: int | None
) -> list[Finding]:
    world = build_world(planted)
    level = planted.disclosure
    plan = replace(plan, policies=plan.policies or (POLICIES[level],))
    if plan.contained:
        plan = replace(plan, speed=planted.horizon / CONTAINER_RUN_TIME, patience=SETUP_TIMEOUT)
    with tempfile.TemporaryDirectory(prefix="fogveil-audit-") as path:
        folder = Path(path)
        report(f"starting {planted.name} with planted secrets, level {level}")
        drawn = DrawnValues()
        if plan.contained:
            findings = _audit_containers(world, plan, folder, report)
        else:
            findings = audit_processes(world, plan, folder, report, drawn)
        with telling_what_is_broken(findings):
            report("trying every topic as every identity")
            findings.append(
                check_mqtt_access(plan.broker, contained=plan.contained, product=plan.product)
            )
            if not plan.contained:
                report("attacking the page of a run")
                findings.append(check_page(world, POLICIES[level], folder / "page"))
            findings += check_twins(
                folder / "twins", plan, world, TOTAL_OBSERVER, seed or 1, report, drawn
            )
    return [*findings, drawn.finding()]


@contextmanager
def telling_what_is_broken(findings: list[Finding]) -> Iterator[None]:
    """Add to the findings why the audit ends here, if a promise was found broken before that.

    A testbed that ends early shows nothing: without a broken promise, that is the error to tell.
    """
    try:
        yield
    except InfrastructureError as error:
        if not any(finding.verdict is Verdict.FAIL for finding in findings):
            raise
        findings.append(Finding(ENDED_EARLY, Verdict.NOT_SHOWN, str(error)))


def run_all(
    scenario: Scenario, plan: Plan, report: Callable[[str], None], seed: int | None = None
) -> list[Finding]:
    """Audit every disclosure level with two episodes; each promise names its level."""
    findings: list[Finding] = []
    for level in POLICIES:
        chosen = scenario.model_copy(update={"disclosure": level})
        found = run_audit(chosen, replace(plan, draws=(0, 1)), report, seed)
        findings += [replace(each, promise=f"{each.promise} (level {level})") for each in found]
    return findings


def audit_processes(
    world: World, plan: Plan, folder: Path, report: Callable[[str], None], drawn: DrawnValues
) -> list[Finding]:
    """Run a testbed of processes with wire taps between all, and judge every channel.

    Random values are added to `drawn`. If a promise was broken before the agent had started, the
    run may end by that: then what was found so far is returned.
    """
    findings: list[Finding] = []

    def before_agent(testbed: Testbed) -> None:
        findings.extend(_check_services(testbed, world, folder, report))
        report(f"running with policy {label_of(plan.policies[0])}")

    def with_agent(testbed: Testbed) -> None:
        findings.append(check_process(testbed, testbed.split.users.get(AGENT)))

    with telling_what_is_broken(findings):
        evidence = run_tapped(world, plan, folder, before_agent, with_agent)
        drawn.add(evidence.wire)
        report("judging every channel")
        findings += judge_evidence(evidence)
    return findings


def _audit_containers(
    world: World, plan: Plan, folder: Path, report: Callable[[str], None]
) -> list[Finding]:
    """Run a testbed of containers, between which no tap can stand; judge what they recorded."""
    plan = replace(plan, record=True)
    with create_testbed(world, plan, folder / "testbed", hold=True, progress=report) as testbed:
        split = testbed.split
        findings = _check_services(testbed, world, folder, report)
        from_providers = probe_providers(testbed)
        testbed.release()
        run = AuditedRun(world, plan, split, process_environments(testbed))
        process_finding = check_process(testbed, split.users.get(AGENT), from_providers)
        report(f"running with policy {label_of(plan.policies[0])}")
        testbed.wait()
        run.logs = testbed.output
    join(world, split, 0, [])
    findings += [check_wire(run), check_canaries(run), check_counts(run)]
    if world.agent.disclosed is Level.TOTAL:
        findings.append(check_masks(run))
    return [*findings, process_finding]


def _check_services(
    testbed: Testbed, world: World, folder: Path, report: Callable[[str], None]
) -> list[Finding]:
    """Check what providers serve and to whom; at level `none` they serve nothing."""
    if testbed.level is Level.NONE:
        return []
    report("trying every method as every identity")
    return [_check_schema(testbed, folder), check_grpc_access(testbed, world)]


def _check_schema(testbed: Testbed, folder: Path) -> Finding:
    auditor = testbed.split.identify("auditor", AUDITOR, folder / "auditor")
    assert auditor is not None
    roster = testbed.split.roster
    served = {}
    for name in (*roster.fogs, roster.cloud):
        host = Identity(testbed.run, roster.role_of(name) or name, name)
        served[name] = asyncio.run(served_methods(testbed.addresses[name], host, auditor))
    return check_schema(testbed.level, served)
