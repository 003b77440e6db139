"""Simulated chaos: a run of a scenario under virtual time, with the faults of a plan."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from fogveil.core.errors import FogveilError
from fogveil.testbed.chaos.check import served_once, temporary_files
from fogveil.testbed.chaos.faults import FaultPlan
from fogveil.testbed.chaos.outcome import Outcome
from fogveil.testbed.chaos.simulated_launcher import SimulatedLauncher
from fogveil.testbed.launch.join_records import join_with_decisions, mark_line
from fogveil.testbed.launch.participant_config import Plan, roster
from fogveil.testbed.launch.testbed import Testbed
from fogveil.testbed.scenario import Scenario
from fogveil.testbed.scenario.world import build_world


class Simulator:
    """Runs one scenario again and again; a context that removes its files."""

    def __init__(self, scenario: Scenario, plan: Plan, expected: str) -> None:
        """Prepare runs whose run hash must be the expected one."""
        self._world, self._plan, self._expected = build_world(scenario), plan, expected
        self.roster = roster(self._world, plan.source_processes)
        self._folder = Path(tempfile.mkdtemp(prefix="fogveil-chaos-"))
        self._steps = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self._folder)

    @property
    def steps(self) -> int:
        """How many messages an undisturbed run has; faults are placed among them."""
        if not self._steps:
            self._steps = 1
            self._steps = self.run(FaultPlan(0, ())).steps
        return self._steps

    def run(self, faults: FaultPlan) -> Outcome:
        """Run once, and return what came of it."""
        outcome, launcher = Outcome(), SimulatedLauncher(faults, self.steps)
        testbed = Testbed(self._world, self._plan, self._folder, launcher, now=launcher.now)
        with _quiet():
            try:
                with testbed:
                    for _ in testbed.reports():
                        pass
                    outcome.seconds = launcher.now()
                self._examine(testbed, outcome)
            except FogveilError as error:
                outcome.faults.append(str(error))
        if testbed.recovery:
            outcome.losses = len(testbed.recovery.losses)
        outcome.steps = launcher.network.steps
        outcome.faults += launcher.errors
        outcome.faults += [f"left over: {name}" for name in self._left_over(launcher)]
        return outcome

    def _examine(self, testbed: Testbed, outcome: Outcome) -> None:
        drawn = self._world.drawn(self._plan.draws[0])
        outcome.faults += served_once(drawn, testbed.split)
        run_hash, _, marked = join_with_decisions(drawn, testbed.split, 0, [])
        outcome.faults += [f"was honest: {mark_line(mark)}" for mark in marked]
        if run_hash != self._expected:
            outcome.faults.append(f"the run hash is {run_hash}, not {self._expected}")

    def _left_over(self, launcher: SimulatedLauncher) -> Iterator[str]:
        """Yield what the run has left: connections, processes, and files meant to be replaced."""
        for connection in launcher.network.connections:
            yield f"a connection to {connection.ends[1].name}"
        yield from temporary_files(self._folder)


@contextmanager
def _quiet() -> Iterator[None]:
    """Let participants log nothing: what faults bring about is as it should be."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
