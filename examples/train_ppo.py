"""Train a PPO of stable-baselines3 on the scenario `paper`, and compare it with other policies.

    python examples/train_ppo.py

trains for about a minute, writes the policy to runs/ppo/ppo.npz, prints a comparison and draws the
learning curve to runs/ppo/ppo-curve.png. It needs `pip install fogveil[train] stable-baselines3`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from fogveil.gym import save_sb3

ENVIRONMENTS = 8
STRETCH = 1000
"""Workloads whose delays are averaged to a point of the curve."""
RIVALS = ("jsq", "parl", "setr")
RATE = 100
"""The mean time between two workloads of a cluster: heavy load."""


class Curve(BaseCallback):
    """Keeps the delay of every workload that is placed in training, exploration included."""

    def __init__(self) -> None:
        super().__init__()
        self.delays: list[float] = []

    def _on_step(self) -> bool:
        self.delays += [info["experimenter"]["delay"] for info in self.locals["infos"]]
        return True


def train(placements: int, curve: Curve) -> PPO:
    """Return a PPO that has placed so many workloads of `paper`, seeing each node's count."""
    torch.set_num_threads(1)  # small matrices
    scenario = {
        "scenario": "paper",
        "level": "count",
        "reward": "marginal",
        "overrides": {"sources.scale": RATE},
        "seed_step": ENVIRONMENTS,  # so that no two of them play the same episode
    }
    env = make_vec_env("fogveil/Placement-v0", ENVIRONMENTS, seed=1000, env_kwargs=scenario)
    model = PPO(
        "MlpPolicy",
        VecNormalize(env, gamma=0.9),
        n_steps=256,
        batch_size=256,
        n_epochs=6,
        gamma=0.9,
        gae_lambda=0.9,
        learning_rate=1e-3,
        seed=1,
        device="cpu",
    )
    return model.learn(placements, callback=curve)


def draw(curve: Curve, rivals: dict[str, float], path: Path) -> None:
    """Draw the learning curve, and the rivals' delays as levels."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes: Axes = figure.add_subplot()
    complete = len(curve.delays) // STRETCH
    stretches = np.reshape(curve.delays[: complete * STRETCH], (complete, STRETCH))
    at = STRETCH * (np.arange(complete) + 1)
    axes.plot(at, stretches.mean(axis=1), ".-", label=f"PPO, mean of {STRETCH} workloads")
    for name, level in rivals.items():
        axes.axhline(level, color="grey", linewidth=0.8)
        axes.annotate(name, (1.005, level), xycoords=("axes fraction", "data"), va="center")
    axes.set_yscale("log")
    for formatted in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        formatted(LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.5)))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("workloads placed in training")
    axes.set_ylabel("mean delay of the Fog loop")
    axes.set_title(f"PPO at level count, scenario paper, β = {RATE}")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def compare(policy: Path, folder: Path, seeds: int) -> dict[str, float]:
    """Print `fogveil compare` of the policy and its rivals; return the rivals' mean delays."""
    command = ["compare", "paper", "--policies", ",".join([str(policy), *RIVALS])]
    command += ["--rates", str(RATE), "--seeds", str(seeds), "--out", str(folder)]
    subprocess.run([Path(sys.executable).with_name("fogveil"), *command], check=True)
    delays: dict[str, list[float]] = {name: [] for name in RIVALS}
    for path in (folder / "runs").glob("*.json"):
        run = json.loads(path.read_text(encoding="utf-8"))
        delays.get(run["policy"], []).append(run["summary"]["fog_loop"])
    return {name: float(np.mean(values)) for name, values in delays.items()}


def main() -> None:
    """Train, export, compare, draw."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--placements", type=int, default=60_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs/ppo"))
    options = parser.parse_args()
    curve = Curve()
    model = train(options.placements, curve)
    policy = save_sb3(model, options.out / "ppo.npz")
    rivals = compare(policy, options.out / "compare", options.seeds)
    draw(curve, rivals, options.out / "ppo-curve.png")
    print(f"written: {policy}, {options.out / 'ppo-curve.png'}")


if __name__ == "__main__":
    main()
