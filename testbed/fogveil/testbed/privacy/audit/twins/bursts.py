"""Twins by construction: bursts of jobs whose counts do not depend on speeds that differ a lot.

At level `count` no job finishes within a burst, whatever the speed of its provider, and before the
next burst all have finished. So each count at a decision depends on the placements alone.

At level `total` jobs come in groups: one to each provider, at the same moment, over equal ways. The
twin has the same speeds at other providers. So the providers' counts change places, within a burst
at every decision, and their sum does not change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from fogveil.testbed.scenario import Scenario
from fogveil.testbed.scenario.world import World, build_world

NODES = 3
BURST_SIZE, GROUPED_BURST_SIZE = 9, 24
JOB_INTERVAL = 10.0
CATEGORIES = {"light": 1.0, "moderate": 1.25, "demanding": 1.5}
"""Instructions, as factors."""
INSTRUCTIONS = 1e6
LONGEST_SERVICE, SHORTEST_SERVICE = 300.0, 120.0
"""Of the lightest category, at level `count`: longer than a burst."""
GROUP_INTERVAL = 40.0
GROUP_SERVICES = 25.0, 60.0, 150.0
"""Of the lightest category, at level `total`: shorter and longer than between two groups."""
BURST_INTERVAL = 5000.0
"""More than a provider needs for all jobs of a burst."""
LEAST_FACTOR = 2.0
LATENCY = 0.5
CLOUD = "cloud"


@dataclass(frozen=True)
class Secrets:
    """What differs between twins: per Fog provider and, last, of the Cloud."""

    services: tuple[float, ...]
    """Service times of the lightest category."""
    ram: tuple[float, ...]
    chance: int
    """The seed of chance events: which jobs go on to the Cloud."""


def draw_secrets(level: str, seed: int) -> tuple[Secrets, Secrets]:
    """Return the secrets of both twins."""
    random = Random(seed)  # noqa: S311 (not a key)
    if level == "total":
        one = list(GROUP_SERVICES)
        random.shuffle(one)
        other = [*one[1:], one[0]]  # no provider keeps its own
    else:
        slow = [random.uniform(LONGEST_SERVICE * 0.9, LONGEST_SERVICE) for _ in range(NODES)]
        fast = [random.uniform(SHORTEST_SERVICE, time / LEAST_FACTOR) for time in slow]
        # The slowest of one twin is the fastest of the other, so their order changes.
        turned = [place % 2 == 0 for place in range(NODES)]
        random.shuffle(turned)
        pairs = [(a, b) if turn else (b, a) for a, b, turn in zip(slow, fast, turned, strict=True)]
        one, other = map(list, zip(*pairs, strict=True))
    first, second = (
        Secrets(
            (*services, random.uniform(*cloud)),
            tuple(float(random.randrange(1, 10**9)) for _ in range(NODES + 1)),
            random.getrandbits(128),
        )
        for services, cloud in ((one, (0.002, 0.003)), (other, (0.0001, 0.001)))
    )
    return first, second


def burst_times(level: str, decisions: int) -> list[tuple[float, str]]:
    """Return when the workloads of whole bursts are emitted, and of which category each is."""
    names = list(CATEGORIES)
    result: list[tuple[float, str]] = []
    burst = 0
    while len(result) < decisions:
        burst += 1
        for number in range(GROUPED_BURST_SIZE if level == "total" else BURST_SIZE):
            if level == "total":
                offset, kind = GROUP_INTERVAL * (number // NODES), number // NODES + burst
            else:
                offset, kind = JOB_INTERVAL * number, number * burst
            result.append((BURST_INTERVAL * burst + offset, names[kind % len(names)]))
    return result


def burst_world(folder: Path, level: str, count: str, decisions: int, secrets: Secrets) -> World:
    """Return the world of one twin; its trace is written to the folder."""
    jobs = burst_times(level, decisions)
    trace = folder / "bursts.csv"
    lines = (f"{time},{category}\n" for time, category in jobs)
    trace.write_text("time,category\n" + "".join(lines), encoding="utf-8")
    fogs = [f"fog-{number}" for number in range(1, NODES + 1)]
    roles = {"hub": "relay", CLOUD: "cloud", "cluster-1": "cluster"} | dict.fromkeys(fogs, "fog")
    *services, cloud_service = secrets.services
    scenario = Scenario.model_validate(
        {
            "name": "twin",
            "seed": 1,
            "horizon": jobs[-1][0] + 1.0,
            "count": count,
            "disclosure": level,
            "topology": {
                "kind": "explicit",
                "nodes": [{"name": name, "role": role} for name, role in roles.items()],
                "links": [
                    {"between": [name, "hub"], "bandwidth": 1000.0, "propagation": LATENCY}
                    for name in roles
                    if name != "hub"
                ],
            },
            "fog": {
                "ipt": [INSTRUCTIONS / time for time in services],
                "ram": list(secrets.ram[:-1]),
            },
            "cloud": {"ipt": INSTRUCTIONS / cloud_service, "ram": secrets.ram[-1]},
            "applications": [
                {
                    "name": name,
                    "instructions": factor * INSTRUCTIONS,
                    "bytes_up": 100,
                    "bytes_down": 100,
                }
                for name, factor in CATEGORIES.items()
            ],
            "loops": {"to_cloud": 0.3, "feedback": 0.5},
            "sources": {
                "kind": "trace",
                "file": str(trace),
                "columns": {"time": "time", "category": "category"},
            },
        }
    )
    world = build_world(scenario)
    return replace(
        world,
        fogs=tuple(replace(fog, seed=secrets.chance) for fog in world.fogs),
        cloud_provider=replace(world.cloud_provider, seed=secrets.chance),
    )
