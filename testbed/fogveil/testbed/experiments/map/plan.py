"""The points of the map of where PARL works: latency and load varied apart, and interventions.

κ is the mean latency up, divided by the mean gap between two decisions: how many decisions are
taken before a placement shows in the total of queued jobs. Load is the share of the Fog's speed
that the workloads demand. Every point is the scenario `tiered` with its links and its instructions
scaled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.testbed.experiments.comparison import Comparison
from fogveil.testbed.experiments.planned_work import TrainingFolder
from fogveil.testbed.scenario import Scenario, load_scenario
from fogveil.testbed.scenario.world import World, build_world

SCENARIO = "tiered"
OUT = Path("runs/map")
RATE = 100.0
LATENCIES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Values of κ."""
LOADS = (0.2, 0.4, 0.6, 0.8)
SEEDS = (21, 22)
"""Of trainings."""
QUARTER = 4
CHECKED = ((0.5, 0.4), (1.0, 0.4), (2.0, 0.4), (4.0, 0.4), (0.5, 0.8), (8.0, 0.2))
"""Points (κ, load) that are trained at full length, too."""
ORACLE = "setr"
RIVALS = ("jsq", "fastest", "electre")
EVALUATION_SEEDS = 3
LONGER = 10
"""Horizon of the second evaluation, in horizons of training."""


@dataclass(frozen=True)
class Point:
    """An environment of the map, and how PARL is trained in it."""

    latency: float
    """κ, the latency in decisions."""
    load: float
    decay: float = 0.5
    """What PARL's distribution d keeps of its past at each placement."""
    links: float | None = None
    """The κ that the links give at the rate of `tiered`, where κ is reached by another rate."""
    full_length: bool = False

    @property
    def name(self) -> str:
        """The name of the point's folder."""
        name = f"kappa-{self.latency:g}-load-{self.load:g}"
        name += "" if self.decay == 0.5 else f"-decay-{self.decay:g}"  # noqa: PLR2004
        return name + ("-by-rate" if self.links else "") + ("-full" if self.full_length else "")

    @cached_property
    def overrides(self) -> dict[str, Any]:
        """What the environment changes of the scenario `tiered`."""
        base = build_world(load_scenario(SCENARIO, {"sources.scale": RATE}))
        slower = (self.links or self.latency) / kappa(base)
        gap = (self.links or self.latency) / self.latency
        demand = gap * self.load / load(base)
        applications = [app.model_dump() for app in base.scenario.applications]
        for application in applications:
            application["instructions"] *= demand
        bandwidth, propagation = (
            base.scenario.model_dump()["links"][key]["uniform"]
            for key in ("bandwidth", "propagation")
        )
        return {
            "disclosure": "total",
            "sources.scale": RATE * gap,
            "horizon": base.scenario.horizon * max(gap, 1.0),  # else hardly any decision is taken
            "links.bandwidth": {"uniform": [end / slower for end in bandwidth]},
            "links.propagation": {"uniform": [end * slower for end in propagation]},
            "applications": applications,
        }

    @property
    def hyperparameters(self) -> Hyperparameters:
        """The paper's, with a quarter of its decisions unless at full length."""
        paper = Hyperparameters(distribution_decay=self.decay)
        if self.full_length:
            return paper
        quarter = {
            "buffer_capacity": paper.buffer_capacity // QUARTER,
            "training_steps": paper.training_steps // QUARTER,
        }
        return paper.model_copy(update=quarter)


@dataclass(frozen=True)
class PointTraining(TrainingFolder):
    """A training of PARL at a point."""

    point: Point
    seed: int

    @property
    def folder(self) -> Path:
        """The training's folder; its name ends in the seed."""
        return OUT / "training" / f"{self.point.name}-{self.seed}"

    @property
    def agent(self) -> str:
        """The agent's name."""
        return "parl"

    @property
    def hyperparameters(self) -> Hyperparameters:
        """Those of the point."""
        return self.point.hyperparameters

    def load_scenario(self) -> Scenario:
        """Return the environment with the training's seed."""
        return load_scenario(SCENARIO, {**self.point.overrides, "seed": self.seed})


GRID = [Point(latency, share) for latency in LATENCIES for share in LOADS]
FULL = [Point(latency, share, full_length=True) for latency, share in CHECKED]
SLOWER = [Point(4.0, 0.4, decay=decay) for decay in (0.8, 0.9, 0.95)]
FASTER = [Point(0.5, 0.4, decay=0.1)]
BY_RATE = [Point(4.0, 0.4, links=0.5), Point(0.5, 0.4, links=4.0)]
POINTS = [*GRID, *FULL, *SLOWER, *FASTER, *BY_RATE]


def trainings(points: list[Point]) -> list[PointTraining]:
    """Return the trainings of some points; those at full length have one seed."""
    return [
        PointTraining(point, seed)
        for point in points
        for seed in (SEEDS[:1] if point.full_length else SEEDS)
    ]


def comparison_of(point: Point) -> Comparison:
    """Return the evaluation of a point: PARL, its rivals and the oracle at both horizons."""
    agents = (str(training.light) for training in trainings([point]))
    horizon = point.overrides["horizon"]
    return Comparison(
        file=SCENARIO,
        overrides={key: value for key, value in point.overrides.items() if key != "disclosure"},
        policies=(ORACLE, *RIVALS, *agents),
        rates=(None,),
        horizons=(horizon, LONGER * horizon),
        seeds=EVALUATION_SEEDS,
        out=OUT / "runs" / point.name,
    )


def kappa(world: World) -> float:
    """Return the mean latency up in gaps between decisions."""
    scale: float = world.scenario.sources.scale  # type: ignore[union-attr]
    sources = len(world.clusters) * len(world.scenario.applications)
    return float(np.mean(world.agent.up)) * sources / scale


def load(world: World) -> float:
    """Return the share of the Fog's speed that the workloads demand."""
    scale: float = world.scenario.sources.scale  # type: ignore[union-attr]
    demand = sum(app.instructions for app in world.scenario.applications)
    return len(world.clusters) * demand / scale / sum(config.ipt for config in world.fogs)
