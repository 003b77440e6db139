"""One run: a scenario and a policy in, a summary and records out."""

from __future__ import annotations

import platform
import time
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

import agent.policies as policies
from agent.policy import Level
from fogveil.errors import InputError
from testbed.embedded import Progress, simulate
from testbed.joining import Sink
from testbed.records import Records, write_json
from testbed.scenario import Scenario
from testbed.summary import Summary
from testbed.world import World, build_world

PACKAGES = ("fogveil", "numpy", "simpy", "networkx", "pyarrow")


def run_embedded(
    scenario: Scenario, policy: str, out: Path | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Run a scenario in this process and return what run.json says; write it where `out` is."""
    wall, cpu = time.perf_counter(), time.process_time()
    world = build_world(scenario)
    chosen = policies.load(policy, world.agent)
    summary = Summary(world)
    with Records(out, world) if out else nullcontext() as records:
        sinks: list[Sink] = [summary, records] if records else [summary]
        run_hash = simulate(world, chosen, sinks, progress)
        found = checked(summary)
    result = describe(world, policy, type(chosen).needs, "embedded", run_hash, found)
    result["wall_seconds"] = time.perf_counter() - wall
    result["cpu_seconds"] = time.process_time() - cpu
    if out:
        write_json(out / "run.json", result)
    return result


def checked(summary: Summary) -> dict[str, Any]:
    """Return the summary of a run in which something happened."""
    found = summary.result()
    if not found["workloads"]:
        raise InputError("no workload is emitted before the horizon")
    return found


def describe(
    world: World, policy: str, level: Level, mode: str, run_hash: str, summary: dict[str, Any]
) -> dict[str, Any]:
    """Return what run.json says of any run, but for what it cost."""
    scenario = world.scenario
    return {
        "scenario": scenario.model_dump(mode="json"),
        "name": scenario.name,
        "seed": scenario.seed,
        "policy": policy,
        "label": policies.label_of(policy),
        "level": level.word,
        "mode": mode,
        "run_hash": run_hash,
        "summary": summary,
        "nodes": list(world.nodes),
        "cloud": world.cloud,
        "clusters": list(world.clusters),
        "categories": list(world.categories),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in PACKAGES},
        },
    }
