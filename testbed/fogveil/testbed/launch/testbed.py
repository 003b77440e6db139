"""A federated run from its first process to its last: starting, reports, failures, the end."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import current_thread, main_thread
from types import TracebackType
from typing import Any, Self

from fogveil.broker.address import Address
from fogveil.broker.launcher import cut_off_clients
from fogveil.clock.pace import PaceOrder
from fogveil.core.disclosure import Level
from fogveil.core.errors import FogveilError, InfrastructureError
from fogveil.core.safe_text import safe_text
from fogveil.protocol.identity import AGENT, AUDITOR, BROKER, CLOCK, SOURCES, Identity
from fogveil.protocol.participant import LAUNCHER
from fogveil.testbed.launch.interface import PAUSED, BrokerHandle, Interposer, Launcher, OutputLine
from fogveil.testbed.launch.participant_config import Plan, Split, check, roster
from fogveil.testbed.launch.participants import Participant, explain_failure, is_stopped
from fogveil.testbed.launch.recovery import AgentLostError, Recovery, is_loss
from fogveil.testbed.launch.reports import Report, parse_report
from fogveil.testbed.launch.run_folder import LONGEST_LINE, RunFolder
from fogveil.testbed.records.output import reporting_write_errors
from fogveil.testbed.scenario.world import World

GRACE = 30.0
"""Seconds that participants have to end by themselves once one of them has ended: more than the
clock gives them."""
TOLD_WITHIN = 10.0
"""Seconds in which a run that went well ends for those whom a clock that is gone did not tell."""
TERM_GRACE = 3.0
"""Seconds between asking a process to end and ending it by force."""
HELD_FOR = 3600.0
"""Seconds that a run may be held before its agent starts; the clock waits so much longer."""
LINES_KEPT = 1000
"""Lines of each participant that stay in memory."""
PENDING_REPORTS = 10_000
"""Reports that may wait to be handled: many times those of an honest run."""
LOOKS = 10
"""Looks at the output of all participants after which everything that they had written is read."""


class Testbed:
    """All participants of one federated run; a context that ends them all, whatever happens.

    With `hold` everybody but the agent is started, and nothing happens until `release`. An
    `interposer` chooses the addresses at which participants are told to dial each other;
    `goes_on` names the run that this one goes on with, in the same folder.
    """

    __test__ = False  # for pytest: this is no test

    def __init__(
        self,
        world: World,
        plan: Plan,
        folder: Path,
        launcher: Launcher,
        *,
        hold: bool = False,
        interposer: Interposer | None = None,
        goes_on: str | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        check(plan, world)
        self._now = now
        self._world, self._plan, self._hold = world, plan, hold
        self._interposer = interposer
        self._folder = RunFolder(folder)
        self.launcher = launcher
        self._goes_on = goes_on is not None
        self.run = goes_on or secrets.token_hex(16)
        self.participants: dict[str, Participant] = {}
        self.broker: BrokerHandle | None = None
        self.addresses: dict[str, str] = {}
        """Where this process reaches the providers and the clock."""
        self.output: dict[str, deque[str]] = {}
        """The last lines in the log of each participant."""
        self._split: Split | None = None
        self._boundaries: dict[str, str] = {}
        """Where the agent dials the providers."""
        self._admitted: set[str] = set()
        """Whom the clock has reported to have joined, started or not."""
        self._lost: str | None = None
        """Whom the clock has reported as lost."""
        self._reports: list[tuple[str, Report]] = []
        """Reports that `reports` has not yielded yet."""
        self._finished = False
        """The clock has ended the run well."""
        self._pace: PaceOrder | None = None
        self.recovery = Recovery(self, now) if plan.recovers else None
        """What starts the lost again, where the run goes on after a loss."""

    @property
    def level(self) -> Level:
        """What the providers disclose."""
        return self._world.agent.disclosed

    @property
    def split(self) -> Split:
        """Each participant's share of the scenario; there is none before the testbed starts."""
        assert self._split is not None
        return self._split

    # --- starting --------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._folder.claim(goes_on=self._goes_on)
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self) -> None:
        """Start the broker, the clock, then everybody who dials them; the agent comes last."""
        taking_part = roster(self._world, self._plan.source_processes)
        site = self.launcher.prepare(self.run, taking_part, self._folder.path)
        folder = self._folder.participants
        with reporting_write_errors(folder):
            folder.mkdir(exist_ok=True, mode=0o700)
        plan = self._plan
        if self._hold:  # whoever holds the run decides how long the others wait for the agent
            plan = replace(plan, patience=plan.patience + HELD_FOR)
        self._split = split = Split(self._world, plan, folder, self.run, site)
        if self._interposer:
            self._interposer.attach(split)
            split.interpose = self._interposer.interpose
        self._start_broker(split)
        self._start_participant(CLOCK, CLOCK, split.clock())
        clock = self._dial_address(CLOCK)
        providers = (*taking_part.fogs, taking_part.cloud)
        for name in providers:
            role = taking_part.role_of(name) or name
            self._start_participant(name, role, split.provider(name, clock))
        for name in taking_part.sources:
            self._start_participant(name, SOURCES, split.sources(name, clock))
        self._boundaries = {name: self._dial_address(name) for name in providers}
        for name in (*providers, CLOCK):
            port = self._wait_for_port(name)
            self.addresses[name] = self.launcher.reach_address(name, port)
        if self._plan.record:
            split.auditor(self._folder.path.absolute() / AUDITOR, self.addresses)
        if not self._hold:
            self.release()

    def _start_broker(self, split: Split) -> None:
        folder = split.folder_of(BROKER)
        with reporting_write_errors(folder):
            folder.mkdir(exist_ok=True, mode=0o700)
        broker = self.launcher.start_broker(
            folder,
            self.run,
            split.roster,
            split.identify(BROKER, BROKER, folder / "identity"),
            split.users.get(BROKER),
        )
        self.broker = broker
        split.broker, split.own_broker = broker.address, broker.identity is not None
        without_password = Address.parse(broker.reach_address)
        self.log(LAUNCHER, f"the broker is {broker.kind} at {without_password}")

    def _start_participant(self, name: str, role: str, config: Path) -> None:
        process = self.launcher.start(name, role, config, self.split.users.get(name))
        self.participants[name] = Participant(name, role, process)
        self.log(LAUNCHER, f"started {name} as process {process.pid}")

    def release(self, meanwhile: Callable[[], None] | None = None) -> None:
        """Start the agent, and with it the run: the clock begins when everybody has joined.

        `meanwhile` is called as soon as the agent's process has started.
        """
        config = self.split.agent(self._dial_address(CLOCK), self._boundaries)
        self._start_participant(AGENT, AGENT, config)
        if meanwhile:
            meanwhile()
        self._wait_until(self._all_joined)

    def _dial_address(self, name: str) -> str:
        """Return where other participants dial this one, which need not listen yet."""
        port = self.launcher.fixed_port(name) or self._wait_for_port(name)
        return self.launcher.dial_address(name, port)

    def _wait_for_port(self, name: str) -> int | None:
        # It may be lost meanwhile, and another one be started in its place.
        self._wait_until(lambda: self.participants[name].has_reported_port)
        return self.participants[name].port

    def _all_joined(self) -> bool:
        return all(p.state == "joined" for p in self.participants.values() if p.name != CLOCK)

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        """Handle events until a condition holds; fail if somebody ends before, or it takes long."""
        deadline = self._now() + self._plan.patience
        while not condition():
            self._handle_events(0.1)
            if self.recovery:
                self.recovery.look()
            if condition():  # a short run may be over before it was seen to begin
                return
            if self._ended():
                raise self._failure()
            if self._now() > deadline:
                late = [p.name for p in self.participants.values() if p.state == "starting"]
                raise InfrastructureError(f"did not start in time: {', '.join(late)}")

    # --- running ---------------------------------------------------------------------------------

    def reports(self) -> Iterator[tuple[str, Report]]:
        """Yield who reports what until the run is over; fail if it failed."""
        while self._running():
            self._handle_events(0.1)
            yield from self._new_reports()
            if self.recovery:
                self.recovery.look()
            if ended := self._ended():
                if self.recovery:
                    self.recovery.ended(ended)
                self._wait_for_the_others()
        yield from self._new_reports()
        if any(self._failed(p) for p in self.participants.values()):
            raise self._failure()

    def wait(self) -> None:
        """Wait until the run is over; fail if it failed."""
        for _ in self.reports():
            pass

    def pace(self, order: PaceOrder) -> None:
        """Tell the clock how fast to go, where the plan lets it be paced."""
        self._pace = order
        self.participants[CLOCK].process.send_line(order.line())

    def has_admitted(self, name: str) -> bool:
        """Return whether the clock has admitted somebody under a name, started or not."""
        with suppress(InfrastructureError):  # it has admitted whom nobody started
            for _ in range(LOOKS):
                self._handle_events(0.0)
        return name in self._admitted

    def _new_reports(self) -> Iterator[tuple[str, Report]]:
        reports, self._reports = self._reports, []
        yield from reports

    def _running(self) -> list[Participant]:
        return [p for p in self.participants.values() if p.process.poll() is None]

    def _ended(self) -> list[str]:
        return [name for name, each in self.participants.items() if self._ends_run(each)]

    def _ends_run(self, participant: Participant) -> bool:
        """Return whether a participant has ended who is not started again."""
        code = participant.process.poll()
        if code is None or participant.state == "crashed":
            return False
        return not (self.recovery and not self.recovery.over and is_loss(code))

    def _failed(self, participant: Participant) -> bool:
        """Return whether a participant's end is no good one."""
        code = participant.process.poll()
        if participant.state == "crashed" or (self._finished and is_loss(code)):
            return False
        return bool(code)

    # --- losses ----------------------------------------------------------------------------------

    def restart(self, name: str) -> None:
        """End what is left of a participant, or of the broker, and start it again."""
        if name == BROKER:
            self.broker = self.launcher.restart_broker()
            if self.recovery:
                self.recovery.returned(name)
            return
        if name == AGENT and self._plan.training:
            raise AgentLostError("the agent was lost in training")
        before = self.participants[name]
        if before.process.poll() is None:
            before.process.kill()
            before.process.wait()
        self._start_participant(name, before.role, self.split.settle_port(name, before.port))
        self.participants[name].port = before.port

    def give_up(self) -> None:
        """Ask everybody to end, and start nobody again."""
        if self.recovery:
            self.recovery.over = True
        for participant in self.participants.values():
            participant.process.terminate()

    def broker_is_lost(self) -> bool:
        """Return whether the broker's process has ended."""
        return self.broker is not None and not self.broker.alive()

    def tell_clock(self, **order: str) -> None:
        """Send the clock a line."""
        self.participants[CLOCK].process.send_line((json.dumps(order) + "\n").encode())

    def _follow_clock(self, recovery: Recovery, report: Report) -> None:
        """Follow what the clock reports, where the run goes on after a loss."""
        recovery.follow(report)
        if "finished" in report:
            self._finished = report["finished"]
        if "listening" in report and self._pace:
            self.pace(self._pace)

    # --- crashes of the scenario -----------------------------------------------------------------

    def _crash(self, name: str) -> None:
        """End a provider's process, as an event of the scenario says."""
        participant = self._crashing(name)
        participant.state = "crashed"
        participant.process.kill()
        participant.process.wait()
        self.log(LAUNCHER, f"ended {name}: it crashes in the scenario")
        if self.recovery:
            self.tell_clock(gone=name)

    def _restart(self, name: str) -> None:
        """Start a provider again that has crashed."""
        before = self._crashing(name)
        if before.state != "crashed" and self.recovery:
            return  # a clock that was lost had asked for it before
        if before.state != "crashed":
            raise InfrastructureError(f"the clock asked for {name} again, which has not crashed")
        config = self.split.settle_port(name, before.port)
        self._start_participant(name, before.role, config)

    def _crashing(self, name: str) -> Participant:
        """Return a provider that crashes in the scenario; the clock may name no other."""
        nodes = {self._world.nodes[change.node] for change in self._world.members if change.crash}
        if name not in nodes:
            raise InfrastructureError(
                f"the clock asked for the crash of '{safe_text(name)}', which has none in the "
                "scenario"
            )
        return self.participants[name]

    def _wait_for_the_others(self) -> None:
        """One participant has ended: so do the others, by themselves or by force."""
        begin = self._now()
        deadline = begin + GRACE
        while self._now() < deadline:
            running = self._running()
            if not running:
                return
            if all(p.health == PAUSED or is_stopped(p.process.pid) for p in running):
                break  # they cannot
            if self._finished and self.recovery and CLOCK not in [p.name for p in running]:
                deadline = min(deadline, begin + TOLD_WITHIN)  # nobody tells those any more
            self._handle_events(0.05)
        for participant in self._running():
            self.log(LAUNCHER, f"{participant.name} did not end by itself")
            participant.process.kill()
            participant.process.wait()

    def _failure(self) -> FogveilError:
        """Wait for the clock, which names whom it has lost, and return the error to show."""
        deadline = self._now() + GRACE
        clock = self.participants[CLOCK]
        while clock.process.poll() is None and self._now() < deadline:
            self._handle_events(0.1)
            if not any(p.state == "joined" for p in self.participants.values()):
                break  # nobody whose loss the clock would notice
        broker_alive = self.broker is not None and self.broker.alive()
        return explain_failure(
            self.participants, self._lost, broker_alive=broker_alive, cut_off=self._cut_off()
        )

    def _cut_off(self) -> str | None:
        """Return whose connection the broker closed first, for more than it can hold."""
        for client in cut_off_clients(self.split.folder_of(BROKER)) if self._split else ():
            for name in self.split.roster.all:
                role = self.split.roster.role_of(name) or name
                if client == Identity(self.run, role, name).common_name:
                    return name
            return client
        return None

    # --- what participants write and report ------------------------------------------------------

    def _handle_events(self, timeout: float) -> None:
        for event in self.launcher.events(timeout):
            if isinstance(event, OutputLine):
                self._handle_line(event)
                continue
            if event.name in self.participants:
                self.participants[event.name].health = event.health
            self.log("engine", f"{event.name}: {event.health}")

    def _handle_line(self, line: OutputLine) -> None:
        participant = self.participants[line.name]
        report = None
        if line.stream == "stderr":
            participant.write_error(line.text)
        else:
            report = parse_report(participant.name, participant.role, line.text)
        if report is None:
            self.log(line.name, line.text)
        else:
            self._handle_report(participant, report)

    def _handle_report(self, participant: Participant, report: Report) -> None:
        if "listening" in report:
            participant.port, participant.has_reported_port = report["listening"], True
            if participant.state == "starting":  # else the clock's report of it arrived first
                participant.state = "listening"
        if (joined := report.get("joined")) is not None:
            self._admitted.add(joined)
            if joined not in self.participants:
                raise InfrastructureError(
                    f"{participant.name} reported that '{safe_text(joined)}' has joined, whom "
                    "nobody started"
                )
            self.participants[joined].state = "joined"
        self._lost = report.get("lost", self._lost)
        if self.recovery and participant.name == CLOCK:
            self._follow_clock(self.recovery, report)
        if crash := report.get("crash"):
            self._crash(crash)
        if restart := report.get("restart"):
            self._restart(restart)
        if "accused" in report:
            participant.accusation = safe_text(report.get("sentence", ""))
        if "refused" in report:
            self.log(participant.name, f"refused: {report['refused']}")
        if len(self._reports) == PENDING_REPORTS:
            raise InfrastructureError(
                f"{participant.name} sent the launcher a report when {PENDING_REPORTS:,} were "
                "waiting already, far more than a run needs"
            )
        self._reports.append((participant.name, report))

    def log(self, name: str, line: str) -> None:
        """Add a line to the log of all participants, which only the launcher's user can read."""
        self.output.setdefault(name, deque(maxlen=LINES_KEPT)).append(safe_text(line, LONGEST_LINE))
        self._folder.log(name, line)

    # --- the end ---------------------------------------------------------------------------------

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End every participant that is left, then the broker, and remove what was created."""
        with uninterrupted():
            try:
                self._end_participants()
            finally:
                try:
                    self.launcher.close()
                finally:
                    self._folder.close()

    def _end_participants(self) -> None:
        running = self._running()
        for participant in running:
            participant.process.terminate()
        deadline = self._now() + TERM_GRACE
        for participant in running:
            try:
                participant.process.wait(max(0.0, deadline - self._now()))
            except subprocess.TimeoutExpired:
                participant.process.kill()
                participant.process.wait()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C and SIGTERM during a clean-up of some seconds, which must not stop half-way."""
    if current_thread() is not main_thread():
        yield
        return
    handlers: dict[Any, Any] = {
        number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
