"""Canaries: secrets planted as numbers found nowhere else, and the search for them in bytes."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Collection, Iterable, Iterator
from random import Random

from fogveil.testbed.scenario import Scenario
from fogveil.testbed.scenario.world import World, build_world

SCALE = 10**6
"""Factor of all speeds and instructions: service times stay, and a speed has nine digits."""
RAM_RANGE = 10**9, 2 * 10**9
SECRETS = "ipt", "ram", "seed"
"""The secrets of each provider."""
LARGEST_FLOAT = 2.0**127


def plant(scenario: Scenario, seed: int | None = None) -> Scenario:
    """Return the scenario with its secrets permuted over the nodes, and each one unique.

    In some scenarios speed follows public centrality; after this, nothing public implies a speed.
    The scenario's seed is replaced by one of 128 random bits: a small one could be guessed.
    """
    random = Random(secrets.randbits(64) if seed is None else seed)  # noqa: S311 (not a key)
    world = build_world(scenario)
    speeds = [fog.ipt for fog in world.fogs]
    random.shuffle(speeds)
    canaries = [round(speed * SCALE) + random.randrange(1, SCALE) for speed in speeds]
    fog = scenario.fog.model_copy(
        update={
            "ipt": [float(canary) for canary in canaries],
            "ram": [float(random.randrange(*RAM_RANGE)) for _ in speeds],
            "assignment": "centrality",
        }
    )
    cloud = scenario.cloud.model_copy(
        update={
            "ipt": float(round(scenario.cloud.ipt * SCALE) + random.randrange(1, SCALE)),
            "ram": float(random.randrange(*RAM_RANGE)),
        }
    )
    applications = [
        application.model_copy(update={"instructions": application.instructions * SCALE})
        for application in scenario.applications
    ]
    return scenario.model_copy(
        update={
            "fog": fog,
            "cloud": cloud,
            "applications": applications,
            "seed": random.getrandbits(128),
        }
    )


def planted_secrets(world: World, disclosed: Collection[str] = ()) -> list[tuple[str, float]]:
    """Return the planted numbers that the agent must not see, each once, with a description.

    `disclosed` are the secrets that the disclosure level of the run gives away. All providers share
    one seed of chance events.
    """
    names: dict[float, list[str]] = {
        world.scenario.seed: ["seed of the scenario"],
        world.sources.seed: ["seed of the sources"],
    }
    for config in (*world.fogs, world.cloud_provider):
        for secret in SECRETS:
            if secret not in disclosed:
                names.setdefault(getattr(config, secret), []).append(f"{secret} of {config.name}")
    return [(_joint_name(same), value) for value, same in names.items()]


def _joint_name(names: list[str]) -> str:
    first, *others = names
    return f"{first} and {len(others)} others" if others else first


def encodings(value: float) -> dict[str, bytes]:
    """Return the ways in which a number may be encoded in a message, a file or a text.

    >>> encodings(300.0)["varint"].hex()
    'ac02'
    """
    result = {
        "text": repr(value).encode(),
        "double": struct.pack("<d", value),
        "double, big-endian": struct.pack(">d", value),
        "double in hexadecimal": struct.pack("<d", value).hex().encode(),
        "double, big-endian, in hexadecimal": struct.pack(">d", value).hex().encode(),
    }
    if value < LARGEST_FLOAT:
        result |= {
            "float": struct.pack("<f", value),
            "float, big-endian": struct.pack(">f", value),
        }
    integer = int(value)
    if integer == value and integer > 0:
        size = 4 if integer < 2**32 else (8 if integer < 2**64 else 16)
        result |= {
            "digits": str(integer).encode(),
            "digits, reversed": str(integer)[::-1].encode(),
            "hexadecimal": f"{integer:x}".encode(),
            "varint": _varint(integer),
            "zigzag varint": _varint(2 * integer),
            "fixed": integer.to_bytes(size, "little"),
            "fixed, big-endian": integer.to_bytes(size, "big"),
        }
    return result


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:  # noqa: PLR2004 (seven bits a byte)
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def search(
    canaries: Iterable[tuple[str, float]], contents: Iterable[tuple[str, bytes]]
) -> Iterator[str]:
    """Yield a description of every canary found in the contents, in whatever encoding.

    Each canary and each content comes with its name.
    """
    patterns = [
        (name, encoding, pattern)
        for name, value in canaries
        for encoding, pattern in encodings(value).items()
    ]
    for where, content in contents:
        for name, encoding, pattern in patterns:
            if pattern in content:
                yield f"{name} found as {encoding} in {where}"
