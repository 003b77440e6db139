"""`make results`: the trainings and evaluations behind docs/results.md, resumable at any point."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from agent.trainee import LIGHT
from testbed.compare import Plan, execute, prepare
from testbed.scenario import load_scenario
from testbed.training import train

PAPER = Path("scenarios/paper.toml")
OTHERS = ("few", "many", "wide", "narrow", "far", "busy", "idle", "mixed")
GEANT = Path("../shared/data/topologies/Geant2012.graphml")
OUT = Path("runs/results")
RATES = (200.0, 150.0, 100.0)
HORIZONS = (10_000.0, 100_000.0)
COUNTS = ("in_system", "waiting")
SEEDS = 10
TRADITIONAL = ("random", "round-robin", "nearest", "fastest", "electre", "electre-queue")
INFORMED = ("p2c", "jsq", "lwl", "sed", "ci-setr", "setr")

console = Console()


class Training(NamedTuple):
    """One training of the results."""

    agent: str
    rate: float
    seed: int
    minutes: float
    """CPU minutes it took when last measured."""
    kind: str = "waiting"
    """Of count."""

    @property
    def folder(self) -> Path:
        """Where it lies."""
        variant = self.kind if self.agent == "veil" else f"{self.rate:g}"
        return OUT / "training" / f"{self.agent}-{variant}-{self.seed}"

    @property
    def light(self) -> Path:
        """The trained agent."""
        return self.folder / LIGHT


PARL = [Training("parl", rate, seed, 3.0) for seed in range(1, 6) for rate in RATES]
PLRL = [
    Training(agent, rate, seed, 2.0)
    for rate in reversed(RATES)
    for seed in range(1, 4)
    for agent in ("plrl-ed", "plrl-ql", "plrl-edql")
]
VEIL = [Training("veil", 100.0, seed, 1.0, count) for seed in range(1, 4) for count in COUNTS]


def do_training(training: Training) -> None:
    """Train, or go on training."""
    overrides = {
        "sources.scale": training.rate,
        "seed": training.seed,
        "count": training.kind,
        "disclosure": "full",
    }
    train(load_scenario(PAPER, overrides), training.agent, training.folder)


def do_trainings(trainings: list[Training]) -> None:
    """Do what is not done yet, on all cores."""
    to_do = [training for training in trainings if not training.light.exists()]
    cores = len(os.sched_getaffinity(0))
    minutes = sum(training.minutes for training in to_do) / cores
    console.print(f"{len(to_do)} of {len(trainings)} trainings to do, about {minutes:.0f} minutes")
    with ProcessPoolExecutor(cores, initializer=_leave_interrupts_to_the_parent) as pool:
        futures = {pool.submit(do_training, training): training for training in to_do}
        for future in as_completed(futures):
            future.result()
            console.print(f"trained {futures[future].folder.name}")


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def plans() -> dict[str, list[Plan]]:
    """Return the evaluations, by the section of docs/results.md that they are for."""

    def plan(
        policies: Iterable[str],
        section: str,
        rates: tuple[float | None, ...] = RATES,
        horizons: tuple[float, ...] = HORIZONS,
        file: Path = PAPER,
        **overrides: Any,
    ) -> Plan:
        dotted = {key.replace("__", "."): value for key, value in overrides.items()}
        return Plan(file, dotted, tuple(policies), rates, horizons, SEEDS, OUT / section)

    done = [t for t in (*PARL, *PLRL) if t.light.exists()]
    sections = {
        "paper": [
            plan((*TRADITIONAL, *INFORMED), "paper"),
            *(plan([str(t.light)], "paper", (t.rate,)) for t in done),
            plan([str(t.light) for t in VEIL if t.kind == "waiting" and t.light.exists()], "paper"),
        ]
    }
    for count in COUNTS:
        veil = [str(t.light) for t in VEIL if t.kind == count and t.light.exists()]
        rivals = ("jsq", "ci-setr", "setr", *veil)
        sections[f"veil-{count}"] = [plan(rivals, f"veil-{count}", count=count)]
        sections[f"others-{count}"] = [
            plan(
                rivals,
                f"others-{count}/{name}",
                (None,),
                HORIZONS[:1],
                Path(f"scenarios/other/{name}.toml"),
                count=count,
            )
            for name in OTHERS
        ]
        if GEANT.exists():
            sections[f"others-{count}"].append(
                plan(
                    rivals,
                    f"others-{count}/geant",
                    (None,),
                    HORIZONS[:1],
                    Path("scenarios/other/geant.toml"),
                    count=count,
                    topology__file=str(GEANT.resolve()),
                )
            )
        for word, service in (
            ("exponential", {"distribution": "exponential"}),
            ("erlang", {"distribution": "erlang", "shape": 4}),
        ):
            name = f"{word}-{count}"
            sections[name] = [
                plan(
                    ("jsq", "sed", "ci-setr", "setr", *veil),
                    name,
                    horizons=HORIZONS[:1],
                    count=count,
                    service=service,
                )
            ]
    return sections


def do_evaluations() -> None:
    """Do the evaluations that are not done yet."""
    for section, parts in plans().items():
        for number, plan in enumerate(parts):
            _, to_do = prepare(plan)
            if to_do:
                console.print(f"{section} {number + 1}/{len(parts)}: {len(to_do)} runs")
            for _ in execute(plan, to_do):
                pass


def main() -> None:
    """Do everything that is not done yet, or one stage: parl, plrl, veil, evaluate, write."""
    stages = sys.argv[1:] or ["parl", "veil", "plrl", "evaluate", "write"]
    trainings = {"parl": PARL, "plrl": PLRL, "veil": VEIL}
    for stage in stages:
        if stage in trainings:
            do_trainings(trainings[stage])
        elif stage == "evaluate":
            do_evaluations()
        else:
            from testbed.results_page import write_page

            console.print(f"written: {write_page()}")


if __name__ == "__main__":
    main()
