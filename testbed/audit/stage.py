"""The stage of an audit: a scenario with planted secrets, brought up, probed, run and recorded."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from pathlib import Path
from random import Random

from fogveil.identity import AGENT
from fogveil.recording import TRAFFIC
from testbed.federated.launch import Testbed
from testbed.federated.split import Plan, Split
from testbed.scenario import Scenario
from testbed.sources import streams
from testbed.traffic import Crossing, read_traffic
from testbed.world import World, build_world

SCALE = 10**6
"""Speeds and instructions are scaled alike: service times stay, and a speed has nine digits."""
RAM = 10**9, 2 * 10**9


def plant(scenario: Scenario, seed: int | None = None) -> Scenario:
    """Permute the secrets at random over the nodes, and make each a number found nowhere else.

    In some scenarios speed follows public centrality; here nothing public tells anything of it.
    The scenario's seed is drawn anew with 128 bits: a small one could be found by trying all.
    """
    random = Random(secrets.randbits(64) if seed is None else seed)  # noqa: S311 (no key)
    world = build_world(scenario)
    speeds = [fog.ipt for fog in world.fogs]
    random.shuffle(speeds)
    canaries = [round(speed * SCALE) + random.randrange(1, SCALE) for speed in speeds]
    fog = scenario.fog.model_copy(
        update={
            "ipt": [float(canary) for canary in canaries],
            "ram": [float(random.randrange(*RAM)) for _ in speeds],
            "assignment": "centrality",
        }
    )
    cloud = scenario.cloud.model_copy(
        update={
            "ipt": float(round(scenario.cloud.ipt * SCALE) + random.randrange(1, SCALE)),
            "ram": float(random.randrange(*RAM)),
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


def horizon_for(scenario: Scenario, decisions: int) -> float:
    """Return a horizon before which about so many workloads are emitted."""
    emitted = merge(*streams(build_world(scenario).sources))
    last = scenario.horizon
    for emission in islice(emitted, decisions):
        last = emission[0]
    return min(last, scenario.horizon)


@dataclass
class Stage:
    """What an audit looks at: the whole world, and what each participant had and kept."""

    world: World
    plan: Plan
    folder: Path
    split: Split
    environment: dict[str, list[str]] = field(default_factory=dict)
    """Of each process, its command line and its environment, as the kernel shows them."""
    said: Mapping[str, Iterable[str]] = field(default_factory=dict)
    """What each participant wrote to its standard streams."""

    def crossings(self, name: str) -> Iterator[Crossing]:
        """Yield what a participant recorded."""
        return read_traffic(self.split.folder_of(name) / TRAFFIC)

    def agent_sees(self) -> Iterator[tuple[str, bytes]]:
        """Yield everything that the agent can see, with where it sees it."""
        for crossing in self.crossings(AGENT):
            if crossing.receiver == AGENT:
                where = f"{crossing.kind} of {crossing.method} from {crossing.sender}"
                yield where, crossing.payload + json.dumps(crossing.text).encode()
        for path in sorted(self.split.folder_of(AGENT).rglob("*")):
            # The recording is what was just read, in hexadecimal.
            if path.is_file() and path.name != TRAFFIC:
                yield f"its file {path.name}", path.read_bytes()
        for words in self.environment.get(AGENT, ()):
            yield "its command line and environment", words.encode()
        for line in self.said.get(AGENT, ()):
            yield "its log", line.encode()


def look_at_processes(testbed: Testbed) -> dict[str, list[str]]:
    """Read the command lines and environments of all participants from the kernel."""
    found: dict[str, list[str]] = {}
    for name, participant in testbed.participants.items():
        if facts := getattr(participant.process, "facts", None):  # a container's
            found[name] = facts()
            continue
        proc = Path("/proc") / str(participant.process.pid)
        try:
            texts = [(proc / what).read_bytes() for what in ("cmdline", "environ")]
        except OSError:
            continue
        found[name] = [
            word.decode(errors="replace") for text in texts for word in text.split(b"\0") if word
        ]
    return found


SECRETS = "ipt", "ram", "seed"
"""Of each provider."""


def secrets_of(world: World, disclosed: Collection[str] = ()) -> list[tuple[str, float]]:
    """Return the planted numbers that the agent must find nowhere, each once, with what it is.

    `disclosed` are those of a provider's secrets that the level of the run gives away. The seed of
    chance is one number that all providers hold.
    """
    found: dict[float, list[str]] = {
        world.scenario.seed: ["seed of the scenario"],
        world.sources.seed: ["seed of the sources"],
    }
    for config in (*world.fogs, world.cloud_provider):
        for what in SECRETS:
            if what not in disclosed:
                found.setdefault(getattr(config, what), []).append(f"{what} of {config.name}")
    return [(_called(names), value) for value, names in found.items()]


def _called(names: list[str]) -> str:
    first, *others = names
    return f"{first} and {len(others)} others" if others else first
