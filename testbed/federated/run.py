"""Federated runs: one warm testbed, an episode for each policy, joined afterwards."""

from __future__ import annotations

import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from fogveil.errors import FogveilError
from testbed.federated.bringing import bring_up
from testbed.federated.declared import declared
from testbed.federated.evaluate import join
from testbed.federated.launch import Report, Testbed
from testbed.federated.split import Plan, Split
from testbed.joining import Sink
from testbed.records import Records, write_json
from testbed.run import checked, describe
from testbed.scenario import Scenario
from testbed.summary import Summary
from testbed.world import World, build_world

Watch = Callable[[Testbed, str, Report], None]
"""Called with the testbed, who reports, and what."""


def run_federated(
    scenario: Scenario,
    plan: Plan,
    out: Path | None = None,
    watch: Watch | None = None,
    say: Callable[[str], None] = lambda _words: None,
) -> list[dict[str, Any]]:
    """Run every policy of the plan on one testbed; return what run.json says of each.

    With one episode its tables lie in `out` itself, with several in a folder per episode.
    """
    wall, before = time.perf_counter(), _children()
    world = build_world(scenario)
    with testbed_folder(out) as folder:
        with bring_up(world, plan, folder, say=say) as testbed:
            assert testbed.broker is not None
            for name, report in testbed.reports():
                if watch:
                    watch(testbed, name, report)
        # Containers are no children of ours: what they cost is not known here.
        cost = {"cpu_seconds": None if plan.contained else _children() - before}
        return conclude(world, plan, testbed.split, testbed.broker.kind, out, (wall, cost))


def conclude(
    world: World,
    plan: Plan,
    split: Split,
    broker: str,
    out: Path | None,
    since: tuple[float, dict[str, Any]],
) -> list[dict[str, Any]]:
    """Join what the participants recorded; return and keep what run.json says of each episode.

    `since` is when the run was begun, and what it cost.
    """
    how = {
        "broker": broker,
        "window": plan.window,
        "source_processes": plan.source_processes,
    }
    wall, cost = since
    results = []
    for episode, (policy, draw) in enumerate(plan.episodes):
        target = out if len(plan.episodes) == 1 or not out else out / f"episode-{episode:04}"
        drawn, level = world.drawn(draw), declared(policy, world).needs
        summary = Summary(drawn)
        with Records(target, drawn) if target else nullcontext() as records:
            sinks: list[Sink] = [summary, records] if records else [summary]
            run_hash = join(drawn, split, episode, sinks)
            found = checked(summary)
        result = describe(drawn, policy, level, plan.mode, run_hash, found)
        result["federated"] = {**how, "draw": draw}
        result["wall_seconds"] = time.perf_counter() - wall
        result |= cost
        if target:
            write_json(target / "run.json", result)
        results.append(result)
    return results


def _children() -> float:
    """Return the CPU seconds of all processes that this one started and that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


@contextmanager
def testbed_folder(out: Path | None) -> Iterator[Path]:
    """Give a testbed its folder: below `out`, or a temporary one that a failed run leaves."""
    if out:
        yield out
        return
    folder = Path(tempfile.mkdtemp(prefix="fogveil-"))
    try:
        yield folder
    except FogveilError as error:
        if any((folder / "participants").glob("*/*.csv")):
            error.add_note(f"what was recorded is kept in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder)
