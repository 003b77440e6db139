"""One embedded run: a scenario and a policy in, a summary and records out."""

from __future__ import annotations

import platform
import time
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

import fogveil.agent.policies as policies
from fogveil.agent.policy import Level
from fogveil.core.errors import InputError
from fogveil.core.version import VERSION
from fogveil.testbed.engine.embedded import Progress, simulate
from fogveil.testbed.records.join import Sink
from fogveil.testbed.records.output import write_json
from fogveil.testbed.records.run_records import RunRecords
from fogveil.testbed.records.summary import Summary
from fogveil.testbed.scenario import Scenario
from fogveil.testbed.scenario.world import World, build_world

PACKAGES = ("numpy", "simpy", "networkx", "pyarrow")


def run_embedded(
    scenario: Scenario, policy: str, out: Path | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Run a scenario in this process and return run.json's content; write records to `out`."""
    wall, cpu = time.perf_counter(), time.process_time()
    world = build_world(scenario)
    chosen = policies.load(policy, world.agent)
    summary = Summary(world)
    with RunRecords(out, world) if out else nullcontext() as records:
        sinks: list[Sink] = [summary, records] if records else [summary]
        run_hash = simulate(world, chosen, sinks, progress)
        figures = checked(summary)
    result = describe(world, policy, type(chosen).needs, "embedded", run_hash, figures)
    result["wall_seconds"] = time.perf_counter() - wall
    result["cpu_seconds"] = time.process_time() - cpu
    if out:
        write_json(out / "run.json", result)
    return result


def checked(summary: Summary) -> dict[str, Any]:
    """Return the summary's figures; refuse a run without any workload."""
    figures = summary.result()
    if not figures["workloads"]:
        raise InputError("no workload is emitted before the horizon")
    return figures


def describe(
    world: World, policy: str, level: Level, mode: str, run_hash: str, summary: dict[str, Any]
) -> dict[str, Any]:
    """Return the content of run.json without the run's cost, for any mode."""
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
        "labels": world.topology.labels,
        "versions": {
            "python": platform.python_version(),
            "fogveil": VERSION,  # not by its metadata, which an image's copy of the code lacks
            **{name: version(name) for name in PACKAGES},
        },
    }
