"""Federated runs: an episode for each policy on one testbed, their records joined afterwards."""

from __future__ import annotations

import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fogveil.core.errors import FogveilError
from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.join_records import join_episodes
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.launch.reports import Report
from fogveil.testbed.launch.testbed import Testbed, uninterrupted
from fogveil.testbed.scenario import Scenario
from fogveil.testbed.scenario.world import build_world

Watch = Callable[[Testbed, str, Report], None]
"""Called with the testbed, who reports, and what."""


def run_federated(
    scenario: Scenario,
    plan: Plan,
    out: Path | None = None,
    watch: Watch | None = None,
    progress: Callable[[str], None] = lambda _line: None,
) -> list[dict[str, Any]]:
    """Run every policy of the plan on one testbed; return the content of run.json for each.

    The tables of a single episode are written to `out` itself, those of several to a folder each.
    """
    begin, cpu_before = time.perf_counter(), _cpu_seconds_of_children()
    world = build_world(scenario)
    with testbed_folder(out) as folder:
        with create_testbed(world, plan, folder, progress=progress) as testbed:
            assert testbed.broker is not None
            for name, report in testbed.reports():
                if watch:
                    watch(testbed, name, report)
        # Containers are no children of this process: their cost is not known here.
        cpu = None if plan.contained else _cpu_seconds_of_children() - cpu_before
        kind = testbed.broker.kind
        return join_episodes(world, plan, testbed.split, kind, out, begin, cpu_seconds=cpu)


def _cpu_seconds_of_children() -> float:
    """Return the CPU seconds of all processes that this one started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@contextmanager
def testbed_folder(out: Path | None) -> Iterator[Path]:
    """Yield `out`, or a temporary folder that is kept where a failed run recorded something."""
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
            _remove(folder)
        raise
    except BaseException:
        _remove(folder)
        raise
    _remove(folder)


def _remove(folder: Path) -> None:
    with uninterrupted():
        shutil.rmtree(folder, ignore_errors=True)
