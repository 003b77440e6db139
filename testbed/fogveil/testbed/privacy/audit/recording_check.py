"""The wire and canary checks by the participants' own recordings, for containers.

A wire tap cannot stand between containers, so these trust what the agent records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from google.protobuf.unknown_fields import UnknownFieldSet

from fogveil.core.disclosure import Level
from fogveil.protocol.identity import AGENT
from fogveil.protocol.recording import INITIAL, RESPONSE, STATUS, TRAILING
from fogveil.testbed.privacy.audit.audited_run import AuditedRun
from fogveil.testbed.privacy.audit.canaries import SECRETS, planted_secrets, search
from fogveil.testbed.privacy.audit.findings import Finding, judge
from fogveil.testbed.privacy.audit.grpc_habits import CANCELLING
from fogveil.testbed.privacy.audit.schema_check import allowed_fields
from fogveil.testbed.privacy.inspect.crossing import Crossing

GRPC_METADATA = frozenset({"user-agent", "content-type", "grpc-accept-encoding", "accept-encoding"})
"""Keys of metadata and trailers that gRPC itself sends."""
STATUS_TEXTS = re.compile(
    r"(OK|UNKNOWN|CANCELLED) |CANCELLED Locally cancelled by application!"
    rf"|UNAVAILABLE ({CANCELLING}|(Stream removed \()?(Secure read failed \()?"
    r"(Socket closed|(recvmsg:|sendmsg:)?(Connection reset by peer|Broken pipe))\)*)"
)
"""Codes and error texts of gRPC itself; the last ones at an agent that leaves after a provider."""


def check_wire(run: AuditedRun) -> Finding:
    """Check that every byte from a provider to the agent belongs to a listed field."""
    providers = {*run.world.nodes, run.world.cloud}
    level = run.world.agent.disclosed
    allowed = _allowed_names(level)
    faults: list[str] = []
    size = number = 0
    for crossing in run.crossings(AGENT):
        if crossing.sender not in providers or crossing.receiver != AGENT:
            continue
        if crossing.kind == RESPONSE:
            number += 1
            size += len(crossing.payload)
            faults += _message_faults(crossing, allowed)
        else:
            faults += _metadata_faults(crossing)
    evidence = (
        f"{number:,} messages ({size:,} bytes) from providers to the agent: every byte belongs to "
        "a listed field, metadata and trailers are gRPC's own"
    )
    examined, nothing = number, "no message came from a provider to the agent"
    if level is Level.NONE:  # no message is what this level promises, at each decision
        if number:
            faults.append(f"{number:,} messages came from providers, which disclose nothing")
        examined = sum(len(times) for times in run.decision_times().values())
        evidence = f"{nothing} at {examined:,} decisions"
        nothing = "no decision was made"
    return judge("wire: only listed fields cross", evidence, faults, examined, nothing)


def _allowed_names(level: Level) -> set[str]:
    """Return the listed fields as Message.field."""
    return {field.split("=")[0] for field in allowed_fields(level)}


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
        encoded = crossing.payload.hex(" ")
        yield f"{crossing.sender} sent {name} in a non-canonical encoding: {encoded}"


def _metadata_faults(crossing: Crossing) -> Iterator[str]:
    if crossing.kind in (INITIAL, TRAILING):
        for key, value in crossing.text:
            if key not in GRPC_METADATA:
                yield f"{crossing.sender} sent the {crossing.kind} {key}: {value}"
    elif crossing.kind == STATUS:
        code, text = crossing.text[0], crossing.text[1] or ""
        if not STATUS_TEXTS.fullmatch(f"{code} {text}"):
            yield f"{crossing.sender} sent the status {code} and the error text {text!r}"


def check_canaries(run: AuditedRun) -> Finding:
    """Search all that the agent sees for the planted numbers that its level does not disclose."""
    level = run.world.agent.disclosed
    allowed = _allowed_names(level)
    disclosed = [secret for secret in SECRETS if f"Resources.{secret}" in allowed]
    planted = planted_secrets(run.world, disclosed)
    visible = list(run.visible_to_agent())
    size = sum(len(content) for _, content in visible)
    evidence = (
        f"{len(planted)} planted numbers, searched for as text, varint, fixed, float and double in "
        f"{size:,} bytes: messages, MQTT deliveries, files, log, environment, command line"
    )
    if disclosed:
        names = " and ".join(disclosed)
        evidence += f"; not searched for: {names}, which level {level.word} discloses"
    faults = [*search(planted, visible)]
    return judge("canaries: the agent sees no secret", evidence, faults, min(len(planted), size))
