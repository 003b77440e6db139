"""One embedded run: a scenario and a policy in, a summary and records out."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import fogveil.agent.policies as policies
from fogveil.agent.policy import Level, Policy
from fogveil.core.errors import InputError
from fogveil.testbed.engine.embedded import Progress, simulate
from fogveil.testbed.records.join import Sink
from fogveil.testbed.records.output import write_json
from fogveil.testbed.records.provenance import library_versions, provenance
from fogveil.testbed.records.run_records import RunRecords
from fogveil.testbed.records.summary import Summary
from fogveil.testbed.scenario import Scenario
from fogveil.testbed.scenario.world import World, build_world


def run_embedded(
    scenario: Scenario,
    policy: str | type[Policy] | Policy,
    out: Path | None = None,
    progress: Progress | None = None,
    watchers: Iterable[Sink] = (),
) -> dict[str, Any]:
    """Run a scenario in this process and return run.json's content; write records to `out`.

    The policy is a spec of `fogveil.agent.policies`, a class, or an object, which is given the
    scenario's view and begins anew. The joined rows go to the watchers, too.
    """
    wall, cpu = time.perf_counter(), time.process_time()
    world = build_world(scenario)
    chosen = policies.load(policy, world.agent)
    summary = Summary(world)
    with RunRecords(out, world) if out else nullcontext() as records:
        sinks: list[Sink] = [summary, *watchers, *([records] if records else [])]
        run_hash = simulate(world, chosen, sinks, progress)
        figures = checked(summary)
    name = policy if isinstance(policy, str) else type(chosen).__name__
    result = describe(world, name, type(chosen).needs, "embedded", run_hash, figures)
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
        "versions": library_versions(),
        "provenance": provenance(),
    }
