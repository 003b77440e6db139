"""Several policies at once, each on a testbed of its own with the same workloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from fogveil.testbed.launch.federated_run import FederatedRun, Watch
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.launch.testbed import Testbed
from fogveil.testbed.scenario import Scenario


def run_side_by_side(
    scenario: Scenario,
    plan: Plan,
    folders: Mapping[str, Path],
    watch: Watch | None = None,
    progress: Callable[[str], None] = lambda _line: None,
    started: Callable[[Sequence[Testbed]], None] | None = None,
) -> list[dict[str, Any]]:
    """Return the content of run.json for each policy; `folders` has a folder for each of them.

    `watch` is called with the reports of the first. If one of them fails, all end.
    """
    with ExitStack() as stack:
        runs = [
            stack.enter_context(
                FederatedRun(
                    scenario,
                    replace(plan, policies=(policy,)),
                    folder,
                    folder,
                    progress,
                    alone=len(folders) == 1,
                )
            )
            for policy, folder in folders.items()
        ]
        if started:
            started([run.testbed for run in runs])
        if len(runs) == 1:
            return runs[0].finish(watch)
        pool = stack.enter_context(ThreadPoolExecutor(len(runs)))
        results = [
            pool.submit(run.finish, None if place else watch) for place, run in enumerate(runs)
        ]
        try:
            finished = wait(results, return_when=FIRST_EXCEPTION).done
            for result in finished:
                result.result()
        except BaseException:
            for run in runs:  # whose threads see it, and end
                run.testbed.give_up()
            raise
        return [one for result in results for one in result.result()]
