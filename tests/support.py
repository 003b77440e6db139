"""What several test files share: scenarios, and runs that keep all they recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import agent.policies as policies
from testbed.embedded import simulate
from testbed.joining import COLUMNS
from testbed.scenario import load_scenario
from testbed.world import World, build_world

ROOT = Path(__file__).parent.parent
SCENARIOS = ROOT / "scenarios"


class Kept:
    """A sink that keeps the joined rows."""

    def __init__(self) -> None:
        self.blocks: list[np.ndarray] = []
        self.counts: list[np.ndarray] = []

    def take(self, rows: np.ndarray, counts: np.ndarray) -> None:
        self.blocks.append(rows)
        self.counts.append(counts)

    @property
    def table(self) -> dict[str, np.ndarray]:
        rows = np.concatenate(self.blocks)
        return {name: rows[:, place] for place, name in enumerate(COLUMNS)}

    @property
    def observed(self) -> np.ndarray:
        return np.concatenate(self.counts)


class Run:
    """A finished run with all that it recorded."""

    def __init__(self, world: World, policy: str) -> None:
        self.world = world
        self.kept = Kept()
        self.hash = simulate(world, policies.load(policy, world.agent), [self.kept])
        self.jobs = self.kept.table


def make_world(scenario: str = "tiny", **overrides: Any) -> World:
    """Build a world from a shipped scenario; dots in keys are written as double underscores."""
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    dotted.setdefault("disclosure", "full")
    return build_world(load_scenario(SCENARIOS / f"{scenario}.toml", dotted))


def make_run(policy: str, scenario: str = "tiny", **overrides: Any) -> Run:
    return Run(make_world(scenario, **overrides), policy)
