"""Runs the participants of a testbed in a simulation, and does to them what a plan says."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fogveil.agent.process as agent
import fogveil.clock.process as clock
import fogveil.provider_node.process as provider
import fogveil.sources.process as sources
from fogveil.agent.settings import AgentSettings
from fogveil.clock.settings import ClockSettings
from fogveil.core.errors import InfrastructureError
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import AGENT, BROKER, CLOCK, CLOUD, PROVIDER, SOURCES, Identity
from fogveil.protocol.input_log import FRAME
from fogveil.protocol.roster import Roster
from fogveil.protocol.settings import Settings, read_settings
from fogveil.provider_node.settings import ProviderSettings
from fogveil.sources.settings import SourcesSettings
from fogveil.testbed.chaos.faults import KILL, ON_MESSAGES, REORDER, STALL, TORN, Fault, FaultPlan
from fogveil.testbed.chaos.network import Network
from fogveil.testbed.chaos.relay import SimulatedBroker
from fogveil.testbed.chaos.simulated_process import SimulatedProcess, track_tasks
from fogveil.testbed.chaos.virtual_time import VirtualTimeLoop
from fogveil.testbed.launch.interface import Event, OutputLine, Stream
from fogveil.testbed.launch.participant_config import Site

Serve = Callable[[Any], Coroutine[Any, Any, None]]
SERVED: dict[str, tuple[type[Settings], Serve]] = {
    AGENT: (AgentSettings, agent.serve),
    CLOCK: (ClockSettings, clock.serve),
    CLOUD: (ProviderSettings, provider.serve),
    PROVIDER: (ProviderSettings, provider.serve),
    SOURCES: (SourcesSettings, sources.serve),
}
"""What a participant of each role runs: what its real process runs, too."""
STARTS_WITHIN = (0.05, 0.4)
"""Seconds until a process has started."""
LONGEST_RUN = 900.0
"""Virtual seconds after which a run is taken for one that never ends."""


class SimulatedSite(Site):
    """A network in which a participant's name is its address."""

    def listen(self, name: str) -> str:
        """Return where a participant listens."""
        return name


class SimulatedLauncher:
    """Runs every participant in this process, under virtual time."""

    def __init__(self, plan: FaultPlan, steps: int) -> None:
        """Begin; an undisturbed run has so many steps."""
        self.loop = VirtualTimeLoop()
        self.loop.set_task_factory(track_tasks)
        self.loop.set_exception_handler(self._note_error)
        self.network = network = Network(plan.seed, self.loop)
        network.on_step = self._step
        self._due = deque(
            sorted((round(fault.at * steps), n) for n, fault in enumerate(plan.faults))
        )
        self._plan = plan
        self._lines: deque[tuple[SimulatedProcess, Stream, str]] = deque()
        self._news = asyncio.Event()
        self._processes: list[SimulatedProcess] = []
        self._run = ""
        self.errors: list[str] = []
        """What went wrong in tasks that nobody waits for."""

    # --- the launching interface -----------------------------------------------------------------

    def now(self) -> float:
        """Return the virtual time."""
        return self.loop.time()

    def prepare(self, run: str, _roster: Roster, _folder: Path) -> Site:
        """Return a network in which names are addresses."""
        self._run = run
        return SimulatedSite()

    def start_broker(
        self,
        _folder: Path,
        _run: str,
        _roster: Roster,
        _credentials: Credentials | None,
        _user: int | None,
    ) -> BrokerHandle:
        """Start the broker."""
        return BrokerHandle(SimulatedBroker(self.network))

    def restart_broker(self) -> BrokerHandle:
        """End what is left of the broker, and start it again."""
        self.network.machines[BROKER].kill()
        return BrokerHandle(SimulatedBroker(self.network))

    def start(self, name: str, role: str, config: Path, _user: int | None) -> SimulatedProcess:
        """Start a participant."""
        kind, serve = SERVED[role]
        settings = read_settings(config, kind)
        if name == CLOCK:  # callers are who they are: a second stream of one is its own
            settings = replace(settings, secure=True)
        process = SimulatedProcess(
            self.network, Identity(self._run, role, name), config.parent, self._write
        )
        self._processes.append(process)
        delay = self.network.chance.uniform(*STARTS_WITHIN)
        self.loop.call_later(delay, lambda: process.begin(serve(settings)))
        return process

    def fixed_port(self, _name: str) -> int:
        """Return a port: addresses are names."""
        return 1

    def dial_address(self, name: str, _port: int | None) -> str:
        """Return its name."""
        return name

    def reach_address(self, name: str, _port: int | None) -> str:
        """Return its name."""
        return name

    def events(self, timeout: float) -> Iterable[Event]:
        """Let the simulation go on, and return what participants wrote."""
        if not self._lines:
            self._news.clear()
            self.loop.run_until_complete(self._wait(timeout))
        if self.now() > LONGEST_RUN:
            raise InfrastructureError(f"the run did not end within {LONGEST_RUN:g} virtual seconds")
        while self._lines:
            process, stream, text = self._lines.popleft()
            process.unread -= 1
            yield OutputLine(process.name, stream, text)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass

    def close(self) -> None:
        """End what is left."""
        left = [process for process in self._processes if process.alive]
        for process in left:
            process.kill()
            process.wait()
        self.loop.run_until_complete(self._all_gone())
        self.loop.close()

    async def _all_gone(self) -> None:
        for process in self._processes:
            await process.gone()

    def _write(self, process: SimulatedProcess, stream: Stream, text: str) -> None:
        self._lines.append((process, stream, text))
        self._news.set()

    def _note_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.errors.append(f"{context['message']}: {context.get('exception')!r}")

    # --- faults ----------------------------------------------------------------------------------

    def _step(self, steps: int) -> None:
        while self._due and self._due[0][0] <= steps:
            fault = self._plan.faults[self._due.popleft()[1]]
            nobody = contextvars.Context()
            self.loop.call_later(fault.delay, self._carry_out, fault, context=nobody)

    def _carry_out(self, fault: Fault) -> None:
        if fault.kind in ON_MESSAGES:
            self._meddle(fault)
            return
        machine = self.network.machines.get(fault.who)
        if machine is None or not machine.alive:
            return
        if fault.kind == KILL:
            machine.kill()
        elif fault.kind == TORN:
            machine.kill()
            self.loop.call_soon(tear_log, machine.folder / clock.INPUT_LOG)
        elif fault.kind == STALL:
            self.network.freeze(machine, fault.seconds)
        else:
            for connection in self.network.connections_of(machine, fault.stream):
                connection.lose(in_flight=self.network.chance.random() < 0.5)  # noqa: PLR2004

    def _meddle(self, fault: Fault) -> None:
        pending = self.network.meddling.setdefault(fault.who, deque())
        for _ in range(fault.number):
            share = self.network.chance.random() if fault.kind == REORDER else 1.0
            pending.append((fault.kind, fault.seconds * share))


def tear_log(path: Path) -> None:
    """Leave a part of a record at the end of a log, as one who dies while it writes does."""
    if path.exists():
        with path.open("ab") as file:
            file.write(FRAME.pack(100, 0) + b"torn")


class BrokerHandle:
    """The broker, as a testbed sees it."""

    kind, address, reach_address = "builtin", "mqtt://simulated:1883", "mqtt://simulated:1883"
    pid = identity = None

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker

    def alive(self) -> bool:
        """Return whether it runs."""
        return self._broker.alive
