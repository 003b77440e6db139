"""`make results`: the trainings and evaluations behind docs/results.md, resumable at any point."""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from testbed.scenario import load_scenario
from testbed.training import LIGHT, train

PAPER = Path("scenarios/paper.toml")
OUT = Path("runs/results")
RATES = (100.0, 150.0, 200.0)

console = Console()


class Training(NamedTuple):
    """One training of the results."""

    agent: str
    rate: float
    seed: int
    minutes: float
    """CPU minutes it took when last measured."""

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return OUT / "training" / f"{self.agent}-{self.rate:g}-{self.seed}"


TRAININGS = [
    *(Training("parl", rate, seed, 3.0) for seed in range(1, 6) for rate in RATES),
    *(
        Training(agent, rate, seed, 2.0)
        for rate in RATES
        for seed in range(1, 4)
        for agent in ("plrl-ed", "plrl-ql", "plrl-edql")
    ),
]


def do_training(training: Training) -> None:
    """Train, or go on training."""
    overrides = {"sources.scale": training.rate, "seed": training.seed, "disclosure": "full"}
    train(load_scenario(PAPER, overrides), training.agent, training.folder)


def do_trainings(trainings: list[Training]) -> None:
    """Do what is not done yet, on all cores."""
    to_do = [training for training in trainings if not (training.folder / LIGHT).exists()]
    cores = len(os.sched_getaffinity(0))
    minutes = sum(training.minutes for training in to_do) / cores
    console.print(f"{len(to_do)} of {len(trainings)} trainings to do, about {minutes:.0f} minutes")
    with ProcessPoolExecutor(cores, initializer=_quiet) as pool:
        futures = {pool.submit(do_training, training): training for training in to_do}
        for future in as_completed(futures):
            future.result()
            console.print(f"trained {futures[future].folder.name}")


def _quiet() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def main() -> None:
    """Do everything that is not done yet."""
    chosen = sys.argv[1:]
    do_trainings([t for t in TRAININGS if not chosen or t.agent in chosen])


if __name__ == "__main__":
    main()
