"""What several test files share: scenarios, and runs that keep all they recorded."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import fogveil.agent.policies as policies
from fogveil.agent.learning.agent_base import LearningAgent
from fogveil.agent.policy import Observation, Policy
from fogveil.testbed.engine.embedded import simulate
from fogveil.testbed.experiments.comparison import ComparedRun, Comparison, RunWork
from fogveil.testbed.records.join import COLUMNS, Decisions
from fogveil.testbed.records.summary import Summary
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import World, build_world
from fogveil.testbed.workers.choice import execute, parse_workers

ROOT = Path(__file__).parent.parent
SCENARIOS = ROOT / "scenarios"
DATA = ROOT / "tests" / "data"


class MemorySink:
    """A sink that keeps the joined rows."""

    def __init__(self) -> None:
        self.blocks: list[np.ndarray] = []
        self.counts: list[np.ndarray] = []
        self.decisions: list[np.ndarray] = []

    def take(self, rows: np.ndarray, decisions: Decisions) -> None:
        self.blocks.append(rows)
        self.decisions.append(decisions.taken)
        self.counts.append(decisions.counts)

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
        self.sink = MemorySink()
        self.hash = simulate(world, policies.load(policy, world.agent), [self.sink])
        self.jobs = self.sink.table


def make_world(scenario: str = "tiny", **overrides: Any) -> World:
    """Build a world from a shipped scenario; dots in keys are written as double underscores."""
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    dotted.setdefault("disclosure", "full")
    return build_world(load_scenario(SCENARIOS / f"{scenario}.toml", dotted))


def make_run(policy: str, scenario: str = "tiny", **overrides: Any) -> Run:
    return Run(make_world(scenario, **overrides), policy)


def mean_fog_loop(world: World, policy: Policy, seeds: Iterable[int] = range(1, 6)) -> float:
    """Return the mean Fog loop of a policy over some seeds."""
    delays = []
    for seed in seeds:
        summary = Summary(world)
        policy.reset()
        simulate(world.reseeded(seed), policy, [summary])
        delays.append(summary.result()["fog_loop"])
    return float(np.mean(delays))


def run_outstanding(outstanding: Iterable[tuple[Comparison, ComparedRun]]) -> None:
    """Do runs of comparisons on all cores."""
    list(execute([RunWork(*each) for each in outstanding], parse_workers(None), print))


def decide(agent: LearningAgent, observation: Observation) -> int:
    """Let an agent that decides ahead do so, and learn at once: what the engine does."""
    node = agent.place(observation.without_disclosure())
    agent.learn(observation, node)
    return node


def train_fully(agent: LearningAgent, world: World, first_seed: int = 1000) -> None:
    """Train an agent to the end of its schedule, episode after episode."""
    episode = 0
    while agent.phase != "evaluation":
        agent.reset()
        simulate(world.reseeded(first_seed + episode), agent)
        episode += 1


ANY_SHAPE = [name for name in policies.POLICIES if name != "parl"]
"""The policies that run on every scenario; the shipped PARL fits the shape of `paper`."""
ONE_NODE = {
    "kind": "explicit",
    "nodes": [
        {"name": "cloud", "role": "cloud"},
        {"name": "fog", "role": "fog"},
        {"name": "cluster", "role": "cluster"},
    ],
    "links": [{"between": ["cloud", "fog"]}, {"between": ["fog", "cluster"]}],
}
"""The smallest network there is."""
