"""Federated runs: an episode for each policy on one testbed, their records joined afterwards."""

from __future__ import annotations

import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fogveil.core.errors import FogveilError
from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.join_records import join_episodes
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.launch.reports import Report
from fogveil.testbed.launch.resume import forget_standing, keep_standing, read_standing
from fogveil.testbed.launch.testbed import Testbed, uninterrupted
from fogveil.testbed.scenario import Scenario
from fogveil.testbed.scenario.world import build_world

Watch = Callable[[Testbed, str, Report], None]
"""Called with the testbed, who reports, and what."""


class FederatedRun:
    """A federated run in progress: entering starts the testbed, leaving ends all participants.

    Tables are written to `out` after the run, if it is given; the testbed itself is in `folder`.
    Where it is not `alone`, what its processes cost is not known.
    """

    def __init__(
        self,
        scenario: Scenario,
        plan: Plan,
        folder: Path,
        out: Path | None,
        progress: Callable[[str], None] = lambda _line: None,
        *,
        alone: bool = True,
        goes_on: str | None = None,
    ) -> None:
        self._alone, self._scenario = alone, scenario
        self._begin, self._cpu_before = time.perf_counter(), _cpu_seconds_of_children()
        self._world, self._plan, self._out = build_world(scenario), plan, out
        self.testbed = create_testbed(self._world, plan, folder, progress=progress, goes_on=goes_on)
        self._running = ExitStack()

    def __enter__(self) -> Self:
        self._running.enter_context(self.testbed)
        if self._out and self._plan.recovers:
            keep_standing(self._out, self.testbed.run, self._scenario, self._plan)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.__exit__(kind, error, trace)

    def finish(self, watch: Watch | None = None) -> list[dict[str, Any]]:
        """Wait for the end and join the records: the content of run.json for each episode."""
        testbed = self.testbed
        assert testbed.broker is not None
        for name, report in testbed.reports():
            if watch:
                watch(testbed, name, report)
        self._running.close()
        # Containers are no children of this process: their cost is not known here.
        known = self._alone and not self._plan.contained
        cpu = _cpu_seconds_of_children() - self._cpu_before if known else None
        results = join_episodes(
            *(self._world, self._plan, testbed.split, testbed.broker.kind, self._out, self._begin),
            cpu_seconds=cpu,
            losses=[loss.describe() for loss in testbed.recovery.losses]
            if testbed.recovery
            else None,
        )
        if self._out:
            forget_standing(self._out)
        return results


def resume(
    folder: Path,
    watch: Watch | None = None,
    progress: Callable[[str], None] = lambda _line: None,
) -> list[dict[str, Any]]:
    """Go on with the run in a folder, whose launcher was lost; return as `run_federated` does."""
    before = read_standing(folder)
    with FederatedRun(
        before.scenario, before.plan, folder, folder, progress, goes_on=before.run
    ) as run:
        return run.finish(watch)


def run_federated(
    scenario: Scenario,
    plan: Plan,
    out: Path | None = None,
    watch: Watch | None = None,
    progress: Callable[[str], None] = lambda _line: None,
    started: Callable[[Testbed], None] | None = None,
) -> list[dict[str, Any]]:
    """Run every policy of the plan on one testbed; return the content of run.json for each.

    The tables of a single episode are written to `out` itself, those of several to a folder each.
    `started` is called with the testbed once everybody has joined.
    """
    with testbed_folder(out) as folder, FederatedRun(scenario, plan, folder, out, progress) as run:
        if started:
            started(run.testbed)
        return run.finish(watch)


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
