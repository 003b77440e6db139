"""What an installed fogveil has to do, far from any checkout."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import yaml
from federated_support import embedded_hash, make_scenario
from packaging_support import Environment

EPISODE = """
import gymnasium

env = gymnasium.make("fogveil.gym:fogveil/Placement-v0", scenario="tiny")
env.reset(seed=1)
done = False
while not done:
    _, _, _, done, info = env.step(env.unwrapped.action_space.start)
print(info["run_hash"])
"""
POLICY = """
from fogveil.agent.policy import Level, Observation, Policy


class First(Policy):
    needs = Level.NONE

    def place(self, seen: Observation) -> int:
        return 0
"""


def summary(environment: Environment, cwd: Path, *words: str) -> dict[str, object]:
    """Run a command that ends with its summary in JSON."""
    done = environment.run("fogveil", *words, "--json", cwd=cwd)
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def shipped_scenario(environment: Environment, cwd: Path) -> None:
    found = summary(environment, cwd, "run", "paper", "--horizon", "500", "--policy", "jsq")
    expected = embedded_hash(make_scenario("paper", horizon=500, disclosure="count"), "jsq")
    assert found["run_hash"] == expected


def trained_agent(environment: Environment, cwd: Path) -> None:
    found = summary(environment, cwd, "run", "paper", "--horizon", "500", "--policy", "veil")
    expected = embedded_hash(make_scenario("paper", horizon=500, disclosure="count"), "veil")
    assert found["run_hash"] == expected


def policy_of_the_users_own(environment: Environment, cwd: Path) -> None:
    (cwd / "mine.py").write_text(POLICY, encoding="utf-8")
    found = summary(environment, cwd, "run", "tiny", "--policy", "mine.py:First")
    assert found["level"] == "none"


def gymnasium_episode(environment: Environment, cwd: Path) -> None:
    (cwd / "episode.py").write_text(EPISODE, encoding="utf-8")
    (cwd / "mine.py").write_text(POLICY, encoding="utf-8")
    done = environment.run("python", "episode.py", cwd=cwd)
    assert len(done.stdout.strip()) == 64, done.stdout


def federated_run(environment: Environment, cwd: Path) -> None:
    words = ("run", "tiny", "--policy", "jsq", "--federated", "--broker", "builtin", "--seed", "1")
    expected = embedded_hash(make_scenario("tiny", disclosure="count"), "jsq")
    assert summary(environment, cwd, *words)["run_hash"] == expected


def audit(environment: Environment, cwd: Path) -> None:
    done = environment.run("fogveil", "audit", "tiny", "--broker", "builtin", cwd=cwd)
    assert "PASS      schema" in done.stdout
    assert "none broken" in done.stdout


def listings(environment: Environment, cwd: Path) -> None:
    assert "ci-setr" in environment.run("fogveil", "policies", cwd=cwd).stdout
    assert "fog-10" in environment.run("fogveil", "scenario", "show", "paper", cwd=cwd).stdout
    assert (cwd / "runs/paper-topology.png").is_file()


def compose_files(environment: Environment, cwd: Path) -> None:
    environment.run("fogveil", "docker", "generate", "tiny", "--out", "composed", cwd=cwd)
    compose = yaml.safe_load((cwd / "composed/compose.yaml").read_text(encoding="utf-8"))
    builds = [service["build"] for service in compose["services"].values() if "build" in service]
    assert builds
    for build in builds:
        context = cwd / "composed" / build["context"]
        assert (context / "Dockerfile").is_file()
        assert (context / "constraints.txt").is_file()


TASKS: tuple[Callable[[Environment, Path], None], ...] = (
    shipped_scenario,
    trained_agent,
    policy_of_the_users_own,
    gymnasium_episode,
    federated_run,
    audit,
    listings,
    compose_files,
)
