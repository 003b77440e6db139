"""The channels: every way in which something could reach a participant, and how it is examined.

Whoever adds a way for participants to reach each other adds it here, with a check or with the
reason why it cannot be examined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fogveil.core.disclosure import Level
from fogveil.testbed.privacy.audit.evidence import Evidence
from fogveil.testbed.privacy.audit.findings import Finding, Verdict
from fogveil.testbed.privacy.audit.host_check import (
    check_files,
    check_output,
    check_ports,
    check_processes,
)
from fogveil.testbed.privacy.audit.http2_check import (
    check_calls,
    check_connections,
    check_frames,
)
from fogveil.testbed.privacy.audit.message_check import (
    check_deliveries,
    check_hashes,
    check_messages,
)
from fogveil.testbed.privacy.audit.mqtt_check import check_packets
from fogveil.testbed.privacy.audit.secret_check import check_secrets
from fogveil.testbed.privacy.audit.share_check import check_shares
from fogveil.testbed.privacy.audit.tls_check import check_certificates, check_handshakes

Check = Callable[[Evidence], Finding]


@dataclass(frozen=True)
class Channel:
    """A way in which something could reach a participant."""

    name: str
    checks: tuple[str, ...]
    """The beginnings of the promises under which it is examined; none where it is not."""
    how: str
    """How it is examined, or why it cannot be."""


EVIDENCE_CHECKS: tuple[Check, ...] = (
    check_messages,
    check_deliveries,
    check_hashes,
    check_connections,
    check_certificates,
    check_handshakes,
    check_calls,
    check_frames,
    check_packets,
    check_secrets,
    check_ports,
    check_processes,
    check_files,
    check_output,
)
"""What is judged of a tapped run; at level `total` the shares as well."""

CHANNELS = (
    Channel("gRPC messages", ("messages",), "byte for byte, number and order, by the reference"),
    Channel("shares of totals", ("shares",), "sums by the reference; masks and keys by statistics"),
    Channel("MQTT messages", ("deliveries",), "as published and as delivered, by the reference"),
    Channel("joined records", ("records",), "run hash by the embedded engine"),
    Channel("connections", ("connections",), "who to whom and how often, with TLS or without"),
    Channel("TLS certificates", ("certificates",), "every byte against what was issued"),
    Channel("TLS version, host name, ALPN", ("certificates",), "exact values at the wire taps"),
    Channel(
        "TLS handshakes",
        ("handshakes",),
        "offers, extensions, tickets, alerts, padding of records, as the libraries choose them",
    ),
    Channel("recurrence", ("freshness",), "keys and random values of all runs of the audit"),
    Channel("gRPC methods", ("schema", "refusals"), "reflection, and calls of many method names"),
    Channel("headers, trailers, status", ("calls",), "exact values, as an own gRPC sends them"),
    Channel("HTTP/2 frames", ("frames",), "types, flags, reserved bits, padding, settings, codes"),
    Channel("MQTT packets", ("packets",), "types, fields, ids, flags, canonical encoding"),
    Channel("MQTT topics", ("refusals",), "every identity tries every topic"),
    Channel("encoded and derived secrets", ("secrets",), "sought in all that each one gets"),
    Channel("ports and sockets", ("ports",), "kernel tables: TCP, UDP, raw, Unix, abstract"),
    Channel("process tables", ("processes",), "command lines, threads, priority, limits, locks"),
    Channel("files, shared memory, IPC", ("files",), "own folders; shared places before and after"),
    Channel("reports, log lines, exit codes", ("output",), "shape and number"),
    Channel("memory and files of others", ("process",), "attempts as the agent's user"),
    Channel("influence of secrets", ("non-interference",), "twins that differ in their secrets"),
    Channel("time of answers", ("timing",), "measured by Welch's t over twins, not promised"),
    Channel(
        "random values",
        (),
        "in TLS (hello, keys, tickets), X25519 keys, signatures, masks, pings and MQTT client "
        "ids: that they never recur is examined, but chance cannot be told from a good cipher",
    ),
    Channel(
        "scheduling",
        (),
        "segments, window updates, pings, the order across connections: they follow the "
        "machine's load, and only gross differences between twins are noticed",
    ),
    Channel(
        "wall-clock times",
        (),
        "when somebody joins, is done, or leaves: only the time of answers is measured",
    ),
    Channel(
        "encoding of headers", (), "how HPACK encodes a header: values are judged, not their bytes"
    ),
    Channel(
        "the broker's process", (), "its sockets, files and output: only its connections are judged"
    ),
    Channel("log lines of the clock", (), "it logs whom it refuses, the auditor among them"),
    Channel(
        "large files", (), "beyond 256 KiB of a file, 1 MiB of all shared places: not searched"
    ),
    Channel("times of records", (), "when a participant last wrote to its records"),
    Channel(
        "resource use",
        (),
        "CPU time, memory, context switches and caches, where processes "
        "share a kernel without namespaces",
    ),
    Channel(
        "short-lived traces",
        (),
        "processes, sockets, locks, files that come and go between "
        "two looks at the system's tables",
    ),
)


def judge_evidence(evidence: Evidence) -> list[Finding]:
    """Judge all channels of a tapped run."""
    findings = [check(evidence) for check in EVIDENCE_CHECKS]
    if evidence.world.agent.disclosed is Level.TOTAL:
        findings.append(check_shares(evidence))
    return findings


def not_examined(findings: list[Finding]) -> Iterator[str]:
    """Yield every channel that an audit did not examine, with the reason."""
    shown = {
        finding.promise.partition(":")[0]
        for finding in findings
        if finding.verdict is not Verdict.NOT_SHOWN
    }
    for channel in CHANNELS:
        if not channel.checks:
            yield f"{channel.name}: {channel.how}"
        elif not shown.intersection(channel.checks):
            yield f"{channel.name}: no check of it was possible in this audit"
