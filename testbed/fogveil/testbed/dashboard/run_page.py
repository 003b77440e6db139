"""The page of testbeds that this process runs: its process, and what the page tells their clocks.

Several testbeds get the same orders. Workloads do not depend on the policy, so that a step is the
same decision in each of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Self

from fogveil.clock.pace import PaceOrder
from fogveil.core.errors import InfrastructureError
from fogveil.testbed.dashboard.run_source import announce
from fogveil.testbed.launch.testbed import Testbed
from fogveil.testbed.scenario import Scenario

ENDS_WITHIN = 20.0
"""Seconds in which a page shows how a run ended, on a busy machine."""


class RunPage:
    """A context that ends the page's process; `show` starts it once the testbeds run."""

    def __init__(
        self, scenario: Scenario, folders: Mapping[str, Path], on_link: Callable[[str], None]
    ) -> None:
        self._scenario, self._folders = scenario, folders
        self._on_link = on_link
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def show(self, testbeds: Sequence[Testbed]) -> None:
        """Start the page of the testbeds, one for each policy, and print its link."""
        for policy, folder in self._folders.items():
            announce(folder, self._scenario, policy)
        command = [sys.executable, "-m", "fogveil.testbed.dashboard.process"]
        self._process = process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
        )
        assert process.stdin is not None
        assert process.stdout is not None
        users = sorted({user for testbed in testbeds for user in testbed.split.users.values()})
        folders = [str(folder.resolve()) for folder in self._folders.values()]
        settings = {"folders": folders, "refused_users": users}
        process.stdin.write(json.dumps(settings) + "\n")
        process.stdin.flush()
        first = process.stdout.readline()
        answer = json.loads(first) if first else {}
        if "link" not in answer:
            raise InfrastructureError(f"the page did not start: {answer.get('error', 'see above')}")
        self._on_link(answer["link"])
        Thread(target=self._pass_on, args=(process, testbeds), daemon=True).start()

    def _pass_on(self, process: subprocess.Popen[str], testbeds: Sequence[Testbed]) -> None:
        """Pass the page's orders on to the clocks."""
        assert process.stdout is not None
        for line in process.stdout:
            order = PaceOrder.parse(json.dumps(json.loads(line).get("pace")).encode())
            for testbed in testbeds if order else ():
                assert order is not None
                testbed.pace(order)

    def wait(self) -> None:
        """Wait until the page's process ends."""
        if self._process:
            self._process.wait()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if (process := self._process) is None:
            return
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
