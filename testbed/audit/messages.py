"""The checks of what crossed: its schema, its bytes, and whether it was the truth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.unknown_fields import UnknownFieldSet

from agent.record import read_record, record_path
from fogveil.disclosure import CountKind, Level
from fogveil.identity import AGENT
from fogveil.recording import INITIAL, RESPONSE, STATUS, TRAILING
from provider_node.journal import journal_path, read_journal
from testbed.audit.canaries import seek
from testbed.audit.findings import Finding, judge
from testbed.audit.stage import SECRETS, Stage, secrets_of
from testbed.traffic import Crossing

LISTED = Path(__file__).with_name("boundary.txt")
"""Every field that the agent's identity may reach, by level: changed on purpose, or not at all."""
METADATA = frozenset({"user-agent", "content-type", "grpc-accept-encoding", "accept-encoding"})
"""Keys of metadata and trailers that gRPC itself sends."""
NEAR, LUCK = 256, 3
"""Shares nearer than this might be two counts under one mask; so many are let pass as chance."""
STATUSES = frozenset({"", "Locally cancelled by application!", "somebody watches already"})
"""Error texts that a provider may send: none says anything of it."""


def listed_fields(level: Level) -> set[str]:
    """Read the checked-in list."""
    lines = LISTED.read_text(encoding="utf-8").splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    return {name for for_level, name in words if for_level == level.word}


def fields_of(described: Descriptor) -> Iterator[str]:
    """Yield every field of a message and of what it holds, spelled with its number and type."""
    for field in described.fields:
        kind = field.message_type.name if field.message_type else _TYPES[field.type]
        many = "repeated " if field.is_repeated else ""
        yield f"{described.name}.{field.name}={field.number}:{many}{kind}".replace(" ", "-")
        if field.message_type:
            yield from fields_of(field.message_type)


_TYPES = {
    getattr(FieldDescriptor, name): name.removeprefix("TYPE_").lower()
    for name in dir(FieldDescriptor)
    if name.startswith("TYPE_")
}


def check_schema(level: Level, served: Iterable[Any]) -> Finding:
    """Compare what the agent's identity can reach with the checked-in list.

    `served` are the descriptions of the methods that a provider serves to the agent.
    """
    reachable = {field for method in served for field in fields_of(method.output_type)}
    listed = listed_fields(level)
    faults = [f"{name} is served and not listed" for name in sorted(reachable - listed)]
    faults += [f"{name} is listed and not served" for name in sorted(listed - reachable)]
    evidence = f"all that a provider serves the agent: {', '.join(sorted(reachable)) or 'nothing'}"
    return judge("schema: only listed fields are served", evidence, faults, len(reachable))


def check_wire(stage: Stage) -> list[Finding]:
    """Decode every byte that came from a provider, and seek the planted secrets in all the rest."""
    providers = {*stage.world.nodes, stage.world.cloud}
    level = stage.world.agent.disclosed
    allowed = {name.split("=")[0] for name in listed_fields(level)}
    faults: list[str] = []
    size = number = 0
    for crossing in stage.crossings(AGENT):
        if crossing.sender not in providers or crossing.receiver != AGENT:
            continue
        if crossing.kind == RESPONSE:
            number += 1
            size += len(crossing.payload)
            faults += _message_faults(crossing, allowed)
        else:
            faults += _beside_faults(crossing)
    evidence = (
        f"{number:,} messages of {size:,} bytes from providers to the agent: every byte is a "
        "listed field, metadata and trailers are gRPC's own"
    )
    examined, nothing = number, "no message came from a provider to the agent"
    if level is Level.NONE:  # here that is the promise, kept at each decision
        if number:
            faults.append(f"{number:,} messages came from providers, which tell nothing")
        examined = sum(len(times) for times in _instants(stage).values())
        evidence = f"{nothing} at {examined:,} decisions"
        nothing = "no decision was taken"
    wire = judge("wire: nothing but listed fields crosses", evidence, faults, examined, nothing)
    return [wire, _check_canaries(stage, allowed)]


def _check_canaries(stage: Stage, allowed: set[str]) -> Finding:
    """Seek every planted number that no listed field gives away in all that the agent sees."""
    disclosed = [what for what in SECRETS if f"Resources.{what}" in allowed]
    planted = secrets_of(stage.world, disclosed)
    seen = list(stage.agent_sees())
    volume = sum(len(content) for _, content in seen)
    evidence = (
        f"{len(planted)} planted numbers, sought as text, varint, fixed, float and double in "
        f"{volume:,} bytes: messages, MQTT deliveries, files, log, environment, command line"
    )
    if disclosed:
        level = stage.world.agent.disclosed.word
        evidence += f"; not sought: {' and '.join(disclosed)}, which level {level} discloses"
    faults = [*seek(planted, seen)]
    return judge("canaries: the agent sees no secret", evidence, faults, min(len(planted), volume))


def _message_faults(crossing: Crossing, allowed: set[str]) -> Iterator[str]:
    message = crossing.message
    if len(UnknownFieldSet(message)):
        yield f"{crossing.sender} sent a field that the protocol does not have: " + (
            crossing.payload.hex(" ")
        )
    name = message.DESCRIPTOR.name
    for field, _ in message.ListFields():
        if f"{name}.{field.name}" not in allowed:
            yield f"{crossing.sender} sent {name}.{field.name}, which is not listed"
    if message.SerializeToString(deterministic=True) != crossing.payload:
        yield f"{crossing.sender} sent {name} in an unusual encoding: {crossing.payload.hex(' ')}"


def _beside_faults(crossing: Crossing) -> Iterator[str]:
    if crossing.kind in (INITIAL, TRAILING):
        for key, value in crossing.text:
            if key not in METADATA:
                yield f"{crossing.sender} sent the {crossing.kind} {key}: {value}"
    elif crossing.kind == STATUS:
        text = crossing.text[1] or ""
        if text not in STATUSES:
            yield f"{crossing.sender} sent the error text {text!r}"


def check_truth(stage: Stage) -> Finding:
    """Recompute every count from the provider's journal: nothing else hides in the number."""
    world = stage.world
    names = (*world.nodes, world.cloud)
    faults: list[str] = []
    compared = 0
    instants = _instants(stage)
    times = [time for episode in sorted(instants) for time in instants[episode]]
    truth = {name: _counts(stage, name, instants) for name in names}
    sent = {name: _sent(stage, name) for name in names}
    if world.agent.disclosed is Level.TOTAL:
        told = np.array([sent[name] for name in names if sent[name]], np.uint64)
        total = told.sum(axis=0) % 2**32 if told.size else np.empty(0)
        right = np.array([truth[name] for name in names]).sum(axis=0)[: len(total)]
        compared = len(total)
        faults += [
            f"the total at time {times[at]:.6g} was {total[at]}, and is {right[at]}"
            for at in np.flatnonzero(total != right)
        ]
    else:
        for name in names:
            if not sent[name]:
                continue
            if len(sent[name]) != len(times):
                faults.append(f"{name} told {len(sent[name])} counts at {len(times)} instants")
                continue
            compared += len(times)
            wrong = np.flatnonzero(np.array(sent[name]) != truth[name])
            faults += [
                f"{name} told {sent[name][at]} at time {times[at]:.6g}, not {truth[name][at]}"
                for at in wrong
            ]
    evidence = f"{compared:,} counts equal what the journals give"
    nothing = f"no provider told a count at {len(times):,} decisions"
    return judge("truth: the count is the count", evidence, faults, compared, nothing)


def _instants(stage: Stage) -> dict[int, list[float]]:
    """Return when the agent decided, by episode."""
    own = stage.split.folder_of(AGENT)
    return {
        episode: [decision.emitted for decision in read_record(record_path(own, episode))]
        for episode in range(len(stage.plan.episodes))
    }


def check_masks(stage: Stage) -> Finding:
    """Look for masks that were used twice: two shares under one mask differ by little."""
    faults = []
    number = 0
    for name in (*stage.world.nodes, stage.world.cloud):
        shares = np.array(_sent(stage, name), np.int64)
        number += len(shares)
        apart = np.diff(np.sort(shares))
        near = int((apart < NEAR).sum())
        # Of n numbers drawn at random from 2^32, about n^2 / 2^32 x NEAR are so near.
        if near > LUCK + len(shares) ** 2 * NEAR / 2**32 * 4:
            faults.append(f"{near} of {len(shares)} shares of {name} lie within {NEAR} of another")
    evidence = f"{number:,} shares: none lies nearer to another than chance puts it"
    return judge("masks: none is used twice", evidence, faults, number, "no share was sent")


def _sent(stage: Stage, name: str) -> list[int]:
    """Return the numbers that a provider sent, by its own recording, in their order."""
    numbers: list[int] = []
    for crossing in stage.crossings(name):
        if crossing.sender == name and crossing.receiver == AGENT and crossing.kind == RESPONSE:
            message = crossing.message
            for field, value in message.ListFields():
                if field.is_repeated and field.message_type is None:
                    numbers += value
    return numbers


def _counts(stage: Stage, name: str, instants: dict[int, list[float]]) -> Any:
    """Count from a journal: at one instant the order is finish, arrival, start, observe."""
    waiting = stage.world.scenario.count is CountKind.WAITING
    found = []
    for episode, times in sorted(instants.items()):
        rows = [
            served for served, _ in read_journal(journal_path(stage.split.folder_of(name), episode))
        ]
        arrived = np.sort([row[2] for row in rows])
        left = np.sort([row[3 if waiting else 4] for row in rows])
        found.append(
            np.searchsorted(arrived, times, "right") - np.searchsorted(left, times, "right")
        )
    return np.concatenate(found)
