"""The host checks: ports, files, shared memory, process tables, output and exit codes."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path

from fogveil.agent.drift_record import agent_path, checkpoint_path, drifts_path
from fogveil.core.disclosure import Level
from fogveil.protocol.identity import AGENT, CLOCK, CLOUD, PROVIDER, SOURCES
from fogveil.testbed.privacy.audit.evidence import Evidence
from fogveil.testbed.privacy.audit.findings import Finding, judge
from fogveil.testbed.privacy.audit.host_watch import FileFact, ProcessFacts
from fogveil.testbed.privacy.audit.wire_tap import Endpoint

NOT_WATCHED = "the participants' processes could not be watched"
COMMON_FILES = {
    ".",
    "config.json",
    "identity",
    *(f"identity/{name}.pem" for name in ("key", "certificate", "authority")),
}
RECORDS = {
    AGENT: ("decisions",),
    SOURCES: ("emissions", "feedback"),
    PROVIDER: ("journal",),
    CLOUD: ("journal",),
}
"""What a participant of each role records, a file of each kind for each episode."""
SYSTEM_ATTRIBUTES = ("security.", "system.")
"""Beginnings of extended attributes that the system sets."""
STATUS_KEYS = {"episode", "time", "decisions", "placed"}


def check_ports(evidence: Evidence) -> Finding:
    """Check that each participant listens where it should, and connects to whom it was told."""
    host = evidence.host
    faults: list[str] = []
    for name, facts in host.processes.items():
        expected = {host.listening[name]} if name in host.listening else set()
        faults += [f"{name} can be reached at {each}" for each in sorted(facts.listens - expected)]
        if facts.samples and not facts.listens >= expected:
            faults.append(f"{name} was not seen to listen at {', '.join(sorted(expected))}")
        told = {
            f"{endpoint.host}:{endpoint.port}"
            for endpoint in map(Endpoint.parse, host.told.get(name, ()))
            if endpoint.port
        }
        faults += [f"{name} connects to {each}" for each in sorted(facts.dials - told)]
    text = (
        f"{len(host.processes)} participants, {_samples(evidence)} looks at the system's tables of "
        "sockets (TCP, UDP, raw, Unix with or without a path): each listens at its one address or "
        "at none, and connects to nobody but those it was told"
    )
    promise = "ports: nobody listens or connects elsewhere"
    return judge(promise, text, faults, _samples(evidence), NOT_WATCHED)


def check_processes(evidence: Evidence) -> Finding:
    """Check what process tables show: command lines, names, priorities, limits, locks, children."""
    host = evidence.host
    faults: list[str] = []
    for name, facts in host.processes.items():
        faults += [f"{name} {fault}" for fault in _process_faults(facts, host.own_attributes)]
        faults += [
            f"{name} shows {each[:80]!r} in its environment"
            for each in sorted(facts.environments - host.environment)
            if host.environment
        ]
    # Libraries have threads that come and go: which of them a look finds depends on the machine.
    library = {
        _shape(each)
        for name, facts in host.processes.items()
        if name not in evidence.providers
        for each in facts.names
    }
    for fog in evidence.roster.fogs[1:]:
        first = evidence.roster.fogs[0]
        one, other = (host.processes.get(name, ProcessFacts()).names for name in (first, fog))
        if one and other and (different := one ^ other):
            shapes, known = {*map(_shape, different)}, {*map(_shape, one & other)}
            faults += [
                f"{fog} or {first} has a thread called {each}"
                for each in sorted(shapes - known - library)
            ]
    text = (
        f"{len(host.processes)} participants, {_samples(evidence)} looks: command lines are those "
        "that were started, without children of other programs; environments are the launcher's; "
        "priority, CPUs, limits, umask are inherited unchanged; nobody holds a file lock; all Fog "
        "providers have the same threads"
    )
    promise = "processes: process tables show nothing"
    return judge(promise, text, faults, _samples(evidence), NOT_WATCHED)


def _shape(name: str) -> str:
    """Return the name of a thread without its number."""
    return re.sub(r"\d+", "0", name)


def _process_faults(facts: ProcessFacts, inherited: tuple[str, ...]) -> Iterator[str]:
    for command in sorted(facts.commands):
        if facts.command and facts.command[-len(command) :] != command:
            yield f"has a process with the command line {' '.join(command)[:120]!r}"
    for attributes in facts.attributes:
        for line in sorted({*attributes} - {*inherited}):
            yield f"has changed what everybody sees of it: {line}"
    for lock in sorted(facts.locks):
        yield f"holds a lock that everybody sees: {lock}"


def check_files(evidence: Evidence) -> Finding:
    """Check what participants leave in their folders and in the places that all share."""
    host = evidence.host
    faults: list[str] = []
    number = 0
    for name, files in host.folders.items():
        number += len(files)
        expected = _expected_files(evidence, name)
        for fact in files:
            if fact.path not in expected and not _is_policy(name, fact):
                faults.append(f"{name} has a file that it should not have: {fact.path}")
            faults += [
                f"{fact.path} of {name} {fault}" for fault in _file_faults(evidence, name, fact)
            ]
    by_user = {user: name for name, user in host.users.items()}
    faults += [
        f"{by_user[fact.user]} left {fact.path} ({fact.size} bytes)"
        for fact in host.left
        if fact.user in by_user
    ]
    faults += [
        f"{by_user[user]} left a System V object: {each}"
        for each, user in zip(host.ipc, host.ipc_users, strict=True)
        if user in by_user
    ]
    text = (
        f"{number} files of {len(host.folders)} participants: names, owners and modes are the "
        "expected ones, without extended attributes; what the launcher wrote has its size and time"
    )
    if by_user:
        text += "; they left nothing in /tmp, /dev/shm, /run, message queues or shared memory"
        return judge("files: nobody leaves anything for others", text, faults, number, NOT_WATCHED)
    nothing = (
        f"{text}; but without users of their own, what they leave elsewhere cannot be told from "
        "other programs' files"
    )
    return judge("files: nobody leaves anything for others", text, faults, 0, nothing)


def _expected_files(evidence: Evidence, name: str) -> set[str]:
    expected = set(COMMON_FILES)
    role = evidence.roster.role_of(name)
    if role in RECORDS:
        expected |= {
            f"{kind}-{episode:04}.csv"
            for kind in RECORDS[role]
            for episode in range(len(evidence.plan.episodes))
        }
    if name == AGENT and evidence.plan.adaptation:
        expected |= {
            file(Path(), episode).name
            for file in (drifts_path, agent_path, checkpoint_path)
            for episode in range(len(evidence.plan.episodes))
        }
    if evidence.plan.record:
        expected.add("traffic.jsonl")
    return expected


def _is_policy(name: str, fact: FileFact) -> bool:
    return name == AGENT and re.fullmatch(r"policy-\d+(/.*)?", fact.path) is not None


def _file_faults(evidence: Evidence, name: str, fact: FileFact) -> Iterator[str]:
    users = evidence.host.users
    if not (stat.S_ISREG(fact.mode) or stat.S_ISDIR(fact.mode)):
        yield "is neither a file nor a folder"
    if fact.mode & 0o077 and not _is_policy(name, fact):
        yield f"is open to others (mode {stat.S_IMODE(fact.mode):o})"
    if users and fact.user != users[name]:
        yield f"belongs to user {fact.user}"
    written = evidence.host.written.get(name, {}).get(fact.path)
    if written and written != (fact.size, fact.changed):
        yield "has another size or time than the launcher gave it"
    if [each for each in fact.attributes if not each.startswith(SYSTEM_ATTRIBUTES)]:
        yield f"has extended attributes: {', '.join(fact.attributes)}"


def check_output(evidence: Evidence) -> Finding:
    """Check what participants report to the launcher, what they write besides, and how they end."""
    host = evidence.host
    faults: list[str] = []
    for name, report in host.reports:
        if fault := _report_fault(evidence, name, report):
            faults.append(f"{name} reports {fault}")
    for name, facts in host.processes.items():
        if facts.exit_code != 0:
            faults.append(f"{name} ended with code {facts.exit_code}")
        if name in evidence.providers:
            listening = [r for sender, r in host.reports if sender == name]
            if len(listening) != 1:
                faults.append(f"{name} reports {len(listening)} times, expected once")
    for name, lines in host.output.items():
        if name != CLOCK:  # it knows no secret, and logs whom it refuses
            faults += [f"{name} writes {line[:120]!r}" for line in lines]
    text = (
        f"{len(host.reports)} reports of {len(host.processes)} participants have the expected keys "
        "and nothing else; nobody writes anything besides; all end with code 0"
    )
    promise = "output: reports, log lines and exit codes say nothing"
    return judge(promise, text, faults, len(host.reports), NOT_WATCHED)


def _report_fault(evidence: Evidence, name: str, report: dict[str, object]) -> str:
    match report:
        case {"listening": int() | str() | None, **rest} if not rest:
            known = name in evidence.providers or name == CLOCK
        case {"agent": {"decisions": int(), "queued": int() | None as queued, **rest}, **others}:
            counts = rest.pop("counts", None)
            known = name == AGENT and not rest and not others
            known = known and (counts is None or _are_counts(evidence, counts, queued))
        case {"clock": dict() as status, **rest}:
            known = name == CLOCK and not rest and set(status) == STATUS_KEYS
        case {"joined": str() as who, **rest}:
            known = name == CLOCK and not rest and who in evidence.roster.all
        case {"over": int(), **rest} | {"refused": str(), **rest}:  # it refuses the auditor, too
            known = name == CLOCK and not rest
        case _:
            known = False
    return "" if known else str(report)[:120]


def _are_counts(evidence: Evidence, counts: object, queued: int | None) -> bool:
    """Return whether these may be the counts that the agent was told last, and nothing else."""
    providers = evidence.providers
    return (
        isinstance(counts, list)
        and evidence.world.agent.disclosed >= Level.COUNT
        and len(providers) - 1 <= len(counts) <= len(providers)  # the Cloud's may be among them
        and all(type(count) is int for count in counts)
        and sum(counts) == queued
    )


def _samples(evidence: Evidence) -> int:
    return sum(facts.samples for facts in evidence.host.processes.values())
