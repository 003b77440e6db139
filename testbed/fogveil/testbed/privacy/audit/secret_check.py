"""The secret check: nobody can find another's secret, or what follows from it, in what it gets."""

from __future__ import annotations

import base64
import binascii
import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import permutations

from fogveil.core.disclosure import Level
from fogveil.protocol.identity import AGENT
from fogveil.testbed.privacy.audit.canaries import encodings
from fogveil.testbed.privacy.audit.evidence import Evidence
from fogveil.testbed.privacy.audit.findings import Finding, judge

LEAST_ON_THE_WIRE = 5
"""Bytes of a pattern that is sought on the wire, where much is random: four match by chance."""
DIGITS = 9
"""Characters of a derived number that are sought: about eight significant digits."""
LEAST_RANKED = 5
"""Nodes whose order is long enough to be told from other numbers."""
LARGEST_UNPACKED = 2**20
TOKEN = re.compile(rb"[A-Za-z0-9+/_-]{16,}={0,2}")

Pattern = tuple[str, bytes]
"""A secret with its encoding, in words, and its bytes."""


def check_secrets(evidence: Evidence) -> Finding:
    """Seek the secrets of others in everything that each participant receives or can read."""
    faults: list[str] = []
    searched = patterns = 0
    shared = [(f"the file {fact.path}", fact.content) for fact in evidence.host.left]
    for receiver in evidence.receivers:
        sought = forbidden(evidence, receiver)
        patterns += len(sought)
        on_the_wire = [p for p in sought if len(p[1]) >= LEAST_ON_THE_WIRE]
        places = [(where, content, on_the_wire) for where, content in _received(evidence, receiver)]
        places += [
            (where, text, sought) for where, text in (*_readable(evidence, receiver), *shared)
        ]
        for where, content, looked_for in places:
            for text in unpacked(content):
                searched += len(text)
                faults += [
                    f"{receiver} finds {name} in {where}"
                    for name, pattern in looked_for
                    if pattern in text
                ]
    summary = (
        f"{patterns:,} spellings of secrets and of what follows from them (service times, ratios, "
        "ranks; text, varint, fixed, float, double, both byte orders, reversed, hexadecimal, "
        f"base64, compressed) sought in {searched:,} bytes that {len(evidence.receivers)} "
        "participants received or can read"
    )
    if evidence.world.agent.disclosed is Level.FULL:
        summary += "; level full discloses speeds and memories to the agent"
    promise = "secrets: nobody finds another's secret in what it gets"
    return judge(promise, summary, sorted(set(faults)), searched)


def forbidden(evidence: Evidence, receiver: str) -> list[Pattern]:
    """Return how the secrets look that a participant must not find."""
    world = evidence.world
    configs = [*world.fogs, world.cloud_provider]
    open_to_agent = receiver == AGENT and world.agent.disclosed is Level.FULL
    others = [] if open_to_agent else [each for each in configs if each.name != receiver]
    whole: list[tuple[str, float]] = [("the seed of the scenario", world.scenario.seed)]
    if receiver not in evidence.providers:
        whole.append(("the providers' seed", world.cloud_provider.seed))
    if receiver not in evidence.roster.sources:
        whole.append(("the sources' seed", world.sources.seed))
    if receiver != AGENT:
        whole.append(("the agent's seed", world.agent.seed))
    for config in others:
        whole += [
            (f"the ipt of {config.name}", config.ipt),
            (f"the ram of {config.name}", config.ram),
        ]
    patterns = [
        (f"{name} as {encoding}", pattern)
        for name, value in whole
        for encoding, pattern in encodings(value).items()
    ]
    for config in others:
        for number, work in enumerate(config.instructions):
            what = f"the service time of category {number} at {config.name}"
            patterns += derived(what, work / config.ipt)
    for one, other in permutations(others, 2):
        patterns += derived(
            f"the speed of {one.name} relative to {other.name}", one.ipt / other.ipt
        )
    fogs = [config for config in others if config.name != world.cloud]
    return patterns + _ranks([config.ipt for config in fogs])


def derived(what: str, value: float) -> list[Pattern]:
    """Return the spellings of a number that follows from secrets."""
    found = [
        (f"{what} as double", struct.pack("<d", value)),
        (f"{what} as double, big-endian", struct.pack(">d", value)),
    ]
    text = repr(value)
    if len(text) >= DIGITS and "e" not in text:  # a short number is found anywhere
        found.append((f"{what} as text", text[:DIGITS].encode()))
    return found


def _ranks(speeds: list[float]) -> list[Pattern]:
    """Return the spellings of the order of the speeds."""
    if len(speeds) < LEAST_RANKED or len(set(speeds)) < len(speeds):
        return []
    order = sorted(range(len(speeds)), key=speeds.__getitem__)
    ranks = sorted(range(len(order)), key=order.__getitem__)
    found: list[Pattern] = []
    for first in (0, 1):
        for numbers in (order, ranks):
            for listed in (numbers, numbers[::-1]):
                shifted = [number + first for number in listed]
                found.append(("the ranks of the speeds as bytes", bytes(shifted)))
                found += [
                    ("the ranks of the speeds as text", separator.join(map(str, shifted)).encode())
                    for separator in (",", ", ", " ", "-", "")
                ]
    return found


def unpacked(content: bytes) -> Iterator[bytes]:
    """Yield a content, reversed, and whatever is packed in it: base64, hexadecimal, compressed."""
    yield content
    yield content[::-1]
    yield from _decompressed(content)
    for token in TOKEN.findall(content):
        decoded = _decoded(token)
        for each in decoded:
            yield each
            yield from _decompressed(each)


def _decoded(token: bytes) -> Iterator[bytes]:
    with suppress(binascii.Error, ValueError):
        yield bytes.fromhex(token.decode())
    padded = token.rstrip(b"=") + b"=" * (-len(token.rstrip(b"=")) % 4)
    with suppress(binascii.Error, ValueError):
        yield base64.b64decode(padded, altchars=b"-_" if b"-" in token or b"_" in token else None)


def _decompressed(content: bytes) -> Iterator[bytes]:
    """Yield what is compressed by gzip or zlib, wherever it begins."""
    for begin in re.finditer(rb"\x1f\x8b\x08|\x78[\x01\x5e\x9c\xda]", content):
        with suppress(zlib.error):
            reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
            yield reader.decompress(content[begin.start() :], LARGEST_UNPACKED)


def _received(evidence: Evidence, receiver: str) -> Iterator[tuple[str, bytes]]:
    """Yield all bytes that reached a participant, and headers as they read."""
    for peer, connection, stream in evidence.wire.received_by(receiver):
        yield f"what comes from {peer} ({connection.plane})", bytes(stream.content)
    for traffic in evidence.traffic.grpc:
        for side, number, call in traffic.half_calls():
            if side.receiver == receiver:
                yield f"headers of stream {number} from {side.sender}", repr(call.blocks).encode()


def _readable(evidence: Evidence, receiver: str) -> Iterator[tuple[str, bytes]]:
    """Yield what a participant has in its folder and environment, and what it writes itself."""
    host = evidence.host
    for fact in host.folders.get(receiver, ()):
        yield f"its file {fact.path}", fact.content
    if facts := host.processes.get(receiver):
        shown = [*facts.environments, *facts.names, *(" ".join(each) for each in facts.commands)]
        yield "its process", "\n".join(shown).encode()
    yield "its output", "\n".join(host.output.get(receiver, ())).encode()
