"""Real chaos: a federated run whose processes or containers are killed, stopped and cut off."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

from fogveil.clock.pace import PaceOrder
from fogveil.core.errors import FogveilError
from fogveil.protocol.identity import CLOCK
from fogveil.testbed.chaos.check import served_once, temporary_files
from fogveil.testbed.chaos.faults import DISCONNECT, KILL, STALL, Fault, FaultPlan
from fogveil.testbed.chaos.hands import ContainerHands, Hands, ProcessHands
from fogveil.testbed.chaos.outcome import Outcome
from fogveil.testbed.launch.federated_run import FederatedRun
from fogveil.testbed.launch.participant_config import Plan, roster
from fogveil.testbed.launch.reports import Report
from fogveil.testbed.launch.testbed import Testbed
from fogveil.testbed.scenario import Scenario
from fogveil.testbed.scenario.world import build_world

UNDISTURBED_SECONDS = 5.0
"""What simulated time is stretched to, so that there is time for faults."""
LOOK_EVERY = 0.02
GONE_WITHIN = 5.0
"""Seconds after a run in which all of it must be gone: the sockets' folder has a remover."""


class RealRunner:
    """Runs a scenario federated, with harm done to its processes or containers."""

    def __init__(
        self,
        scenario: Scenario,
        plan: Plan,
        expected: str,
        progress: Callable[[str], None] = lambda _line: None,
    ) -> None:
        """Prepare runs whose run hash must be the expected one."""
        self._scenario, self._expected, self._progress = scenario, expected, progress
        self._plan = replace(plan, speed=scenario.horizon / UNDISTURBED_SECONDS)
        self._world = build_world(scenario).drawn(plan.draws[0])
        self.roster = roster(self._world, plan.source_processes)

    def run(self, faults: FaultPlan) -> Outcome:
        """Run once, and return what came of it."""
        outcome, begin = Outcome(), time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="fogveil-chaos-"))
        try:
            run = FederatedRun(self._scenario, self._plan, folder, None, self._progress)
            testbed = run.testbed
            hands: Hands = (
                ContainerHands(testbed) if self._plan.contained else ProcessHands(testbed)
            )
            harm = Harm(testbed, hands, faults, self._scenario.horizon)
            try:
                with harm, run:
                    (result,) = run.finish(self._keep_pace)
                outcome.faults += served_once(self._world, testbed.split)
                if result["run_hash"] != self._expected:
                    outcome.faults.append(
                        f"the run hash is {result['run_hash']}, not {self._expected}"
                    )
            except FogveilError as error:
                outcome.faults.append(str(error))
            assert testbed.recovery
            outcome.losses = len(testbed.recovery.losses)
            outcome.faults += [f"left over: {each}" for each in _left_over(hands, folder)]
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        outcome.seconds = time.monotonic() - begin
        return outcome

    def _keep_pace(self, testbed: Testbed, _name: str, report: Report) -> None:
        """Let time pass as slowly after a recovery as before it, and not catch up."""
        if "joined" in report and CLOCK in testbed.participants:
            testbed.pace(PaceOrder(self._plan.speed, held=False))


def _left_over(hands: Hands, folder: Path) -> list[str]:
    deadline = time.monotonic() + GONE_WITHIN
    while time.monotonic() < deadline and hands.left_over(folder):
        time.sleep(0.1)
    return [*hands.left_over(folder), *temporary_files(folder)]


class Harm:
    """Does what a plan says while a run lasts: a context around the run."""

    def __init__(self, testbed: Testbed, hands: Hands, plan: FaultPlan, horizon: float) -> None:
        self._testbed, self._hands, self._horizon = testbed, hands, horizon
        self._over = Event()
        self._threads = [Thread(target=self._wait_and_do, args=(each,)) for each in plan.faults]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _wait_and_do(self, fault: Fault) -> None:
        """Wait for a fault's time, and carry it out once its victim is there."""
        recovery = self._testbed.recovery
        assert recovery
        while not self._over.is_set() and (
            recovery.now < fault.at * self._horizon or self._hands.find(fault.who) is None
        ):
            self._over.wait(LOOK_EVERY)
        self._over.wait(fault.delay)
        if self._over.is_set() or (victim := self._hands.find(fault.who)) is None:
            return
        if fault.kind == KILL:
            self._hands.kill(victim)
        elif fault.kind == STALL:
            self._hands.stop(victim)
            self._over.wait(fault.seconds)
            self._hands.go_on(victim)
        elif fault.kind == DISCONNECT:
            networks = self._hands.disconnect(victim)
            self._over.wait(fault.seconds)
            self._hands.reconnect(networks)
