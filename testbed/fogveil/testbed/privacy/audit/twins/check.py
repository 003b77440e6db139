"""The twin check: runs that differ only in their secrets look the same to everybody.

Two kinds of twins are run. One is of the audited run as a whole: the search finds other secrets
with the same permitted output at every decision. The other is made of bursts, where secrets differ
by a factor of two and more. Of each, three runs are compared: two with the same secrets, and one
with others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import fogveil.agent.policies as policies
from fogveil.agent.decision_record import read_record, record_path
from fogveil.core.disclosure import Level
from fogveil.protocol.identity import AGENT, BROKER, CLOCK, SOURCES
from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.privacy.audit.audited_run import process_environments
from fogveil.testbed.privacy.audit.findings import Finding, Verdict, judge
from fogveil.testbed.privacy.audit.freshness_check import DrawnValues
from fogveil.testbed.privacy.audit.traffic import Traffic
from fogveil.testbed.privacy.audit.twins.answer_times import Delays, answer_delays, compare_times
from fogveil.testbed.privacy.audit.twins.bursts import CLOUD as BURST_CLOUD
from fogveil.testbed.privacy.audit.twins.bursts import burst_world, draw_secrets
from fogveil.testbed.privacy.audit.twins.comparison import (
    LEAST_RATIO,
    Comparison,
    Triple,
    compare_content,
    conspicuous,
    repeated,
)
from fogveil.testbed.privacy.audit.twins.form import Form
from fogveil.testbed.privacy.audit.twins.host_form import (
    DECISIONS,
    MACHINE,
    add_outcome,
    add_processes,
)
from fogveil.testbed.privacy.audit.twins.replay import Placed, decisions_of
from fogveil.testbed.privacy.audit.twins.search import Difference, find_twin
from fogveil.testbed.privacy.audit.twins.wire_form import wire_form
from fogveil.testbed.privacy.audit.wire_tap import WireTap
from fogveil.testbed.scenario.world import World

PROMISE = "non-interference"
NOT_EXAMINED = (
    "what twins cannot compare: the 64 random bits of a ping; the sizes of single window updates; "
    "how few TLS records data is cut into; random keys, masks and signatures"
)
BURST_POLICIES = {Level.COUNT: "jsq", Level.NONE: "round-robin"}
"""At level `total` the caller chooses."""
CLOUD, FOGS = "the Cloud", "Fog providers"
GROUPS = (AGENT, CLOCK, BROKER, SOURCES, CLOUD, FOGS, MACHINE)
"""Receivers that have a finding."""
TOLD_OF_RESULTS = BROKER, SOURCES, CLOUD
"""Those who get messages about finished jobs."""

Report = Callable[[str], None]


class Kind(NamedTuple):
    """Runs that are compared with each other."""

    name: str
    policy: str
    same_chance: bool
    """Whether the same jobs go on to the Cloud."""


@dataclass(frozen=True)
class TwinRun:
    """One run, as seen from outside."""

    form: Form
    delays: Delays
    placed: list[Placed]
    """By the agent's own record."""


class TwinCheck:
    """Runs twins, each in a folder of its own, and collects what comparing them gives."""

    def __init__(
        self, folder: Path, plan: Plan, world: World, report: Report, drawn: DrawnValues
    ) -> None:
        self._folder, self._plan, self._world, self._report = folder, plan, world, report
        self._drawn = drawn
        self._runs = 0
        self._comparison = Comparison()
        self._differences: list[str] = []
        """How different the secrets were, by kind of twins."""
        self._alarms: list[str] = []
        self._artefacts = 0
        self._not_shown: list[str] = []
        self._times: Finding | None = None
        self._public_sizes = sizes_are_public(world)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    # --- running ---------------------------------------------------------------------------------

    def run(self, world: World, kind: Kind) -> TwinRun:
        """Run a world once, as processes."""
        self._runs += 1
        folder = self._folder / f"twin-{self._runs:03}"
        plan = Plan(
            policies=(kind.policy,),
            broker=self._plan.broker,
            window=self._plan.window,
            product=self._plan.product,
        )
        with (
            WireTap(self._folder / f"tap-{self._runs:03}") as tap,
            create_testbed(world, plan, folder, hold=True, interposer=tap) as testbed,
        ):
            environments = process_environments(testbed)
            testbed.release()
            environments |= process_environments(testbed)
            testbed.wait()
        Traffic(tap.log).require_ends()
        self._drawn.add(tap.log)
        form = wire_form(
            tap.log, world.cloud, same_chance=kind.same_chance, public_sizes=sizes_are_public(world)
        )
        add_processes(form, environments, folder)
        add_outcome(form, testbed, folder)
        record = read_record(record_path(testbed.split.folder_of(AGENT), 0))
        placed = [Placed(d.emitted, d.job, d.category, d.node, d.arrival) for d in record]
        return TwinRun(form, answer_delays(tap.log, world.nodes), placed)

    def compare_whole_runs(self, policy: str, seed: int, *, foreign: bool) -> int:
        """Compare the audited run with a twin; return its number of decisions.

        A foreign policy's code does not run in this process: its decisions are those of its record.
        """
        world, kind = self._world, Kind("the whole run", policy, same_chance=True)
        first = self.run(world, kind)
        watches_cloud, placed = True, first.placed
        if not foreign:
            chosen = policies.load(policy, world.agent)
            watches_cloud, placed = type(chosen).watches_cloud, decisions_of(world, chosen)
        twin = find_twin(world, placed, watches_cloud=watches_cloud, seed=seed)
        if twin is None:
            self._not_shown.append("of the whole run no twin was found, only bursts were compared")
        else:
            self.compare(kind, world, twin, first)
        return len(placed)

    def compare(self, kind: Kind, world: World, other: World, first: TwinRun | None = None) -> None:
        """Compare two runs of a world with one of its twin."""
        one = first or self.run(world, kind)
        twin, again = self.run(other, kind), self.run(world, kind)
        runs = Triple(one.form, again.form, twin.form)
        if one.form.content[DECISIONS] != again.form.content[DECISIONS]:
            self._not_shown.append(
                f"policy {kind.policy} does not repeat its decisions, so runs cannot be compared"
            )
            return
        self._differences.append(f"{kind.name}: {Difference.between(world, other)}")
        self._comparison.add(compare_content(runs), kind.name)
        self._artefacts += sum(sum(kinds.values()) for kinds in twin.form.artefacts.values())
        alarms = conspicuous(runs, world.nodes)
        if alarms:
            self._report("something conspicuous, which has to happen again: two more runs")
            fresh = Triple(self.run(world, kind).form, again.form, self.run(other, kind).form)
            alarms = repeated(alarms, conspicuous(fresh, world.nodes))
        self._alarms += [f"{kind.name}: {alarm.evidence}" for alarm in alarms]
        self._times = compare_times(one.delays, again.delays, twin.delays)

    # --- findings --------------------------------------------------------------------------------

    def findings(self) -> list[Finding]:
        """Return a finding for each kind of receiver, and those of scheduling and timing."""
        findings = [self._finding_of(group) for group in GROUPS]
        promise = f"{PROMISE} of scheduling: pings, windows, segments, endings"
        evidence = (
            f"{self._artefacts:,} counted in the twins: relative to the other providers, none "
            f"has {LEAST_RATIO:g} times as many as before, beyond what runs with the same secrets "
            "differ by, twice in the same direction"
        )
        details = (NOT_EXAMINED,)
        findings.append(judge(promise, evidence, self._alarms, self._artefacts, details=details))
        if self._not_shown:
            text = "; ".join(self._not_shown)
            findings.append(Finding(f"{PROMISE}: twins", Verdict.NOT_SHOWN, text))
        return [*findings, self._times] if self._times else findings

    def _finding_of(self, group: str) -> Finding:
        """Return the finding about one kind of receiver."""
        comparison = self._comparison
        receivers = [name for name in comparison.channels if self._group_of(name) == group]
        faults = [fault for name in receivers for fault in comparison.faults[name]]
        items = sum(comparison.compared[name] for name in receivers)
        channels = sum(comparison.channels[name] for name in receivers)
        evidence = (
            f"{items:,} items in {channels} channels are the same in twins whose secrets differ "
            f"({'; '.join(self._differences)})"
        )
        promise = f"{PROMISE}: what reaches {group} depends on secrets as permitted, and no more"
        finding = judge(promise, evidence, faults, items)
        if finding.verdict is Verdict.PASS and group in TOLD_OF_RESULTS and not self._public_sizes:
            reason = "not compared: sizes of aggregates and results, which here depend on secrets"
            return Finding(promise, Verdict.NOT_SHOWN, f"{reason}; apart from them {evidence}")
        return finding

    def _group_of(self, receiver: str) -> str:
        if receiver in (AGENT, CLOCK, BROKER, MACHINE):
            return receiver
        if receiver in (self._world.cloud, BURST_CLOUD):
            return CLOUD
        return SOURCES if receiver.startswith(SOURCES) else FOGS


def sizes_are_public(world: World) -> bool:
    """Return whether the sizes of what all providers publish follow from public facts."""
    providers = (*world.fogs, world.cloud_provider)
    return all(getattr(provider, "sizes_are_public", False) for provider in providers)


def check_twins(
    folder: Path,
    plan: Plan,
    world: World,
    total_policy: str,
    seed: int,
    report: Report,
    drawn: DrawnValues,
) -> list[Finding]:
    """Run twins at the level of a world, and compare what everybody got.

    `total_policy` is the policy that observes totals. Random values are added to `drawn`.
    """
    level = world.agent.disclosed
    if level is Level.FULL:
        evidence = "level full discloses the secrets, so there are no twins"
        return [Finding(f"{PROMISE}: at level full", Verdict.NOT_SHOWN, evidence)]
    check = TwinCheck(folder, plan, world, report, drawn)
    report("running twins of the whole run, which differ in their secrets")
    policy = plan.policies[0]
    foreign = policy != total_policy and policies.is_foreign(policy)
    decisions = check.compare_whole_runs(policy, seed, foreign=foreign)
    report("running twins in bursts, which differ more")
    one, other = (
        burst_world(folder, level.word, world.scenario.count.value, decisions, secrets)
        for secrets in draw_secrets(level.word, seed)
    )
    policy = BURST_POLICIES.get(level, total_policy)
    check.compare(Kind("bursts", policy, same_chance=False), one, other)
    return check.findings()
