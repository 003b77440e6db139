"""The table that a person watches while a federated testbed runs, updated four times a second."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fogveil.core.disclosure import Level
from fogveil.protocol.identity import AGENT, CLOCK
from fogveil.testbed.launch.reports import Report
from fogveil.testbed.launch.testbed import Testbed

SECONDS_PER_LINE = 2.0
"""Without a terminal a line every few seconds takes the table's place."""


class LiveTable:
    """Shows the latest reports of the participants."""

    def __init__(self, console: Console, horizon: float) -> None:
        self._console, self._horizon = console, horizon
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._testbed: Testbed | None = None
        self._clock: Report = {"episode": 0, "time": 0.0, "decisions": 0, "placed": []}
        self._agent: Report = {"queued": None, "counts": None}
        self._needs: tuple[int, Level] | None = None
        """An episode, and what its policy needs."""
        self._first: tuple[float, float, int] | None = None
        """Wall time, simulated time and decisions at the first report of an episode."""
        self._shown = time.monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._live.__exit__(kind, error, trace)

    def watch(self, testbed: Testbed, name: str, report: Report) -> None:
        """Handle a report, and update the table if it is time."""
        self._testbed = testbed
        if name == CLOCK and "clock" in report:
            if self._first is None or report["clock"]["time"] < self._clock["time"]:
                clock = report["clock"]
                self._first = time.monotonic(), clock["time"], clock["decisions"]
            self._clock = report["clock"]
        if name == AGENT and "agent" in report:
            self._agent = report["agent"]
        now = time.monotonic()
        if self._console.is_terminal:
            if now - self._shown > 1 / 4:
                self._shown = now
                self._live.update(self.table(), refresh=True)
        elif now - self._shown > SECONDS_PER_LINE:
            self._shown = now
            self._console.print(self._headline(), highlight=False, soft_wrap=True)

    def _rates(self) -> tuple[float, float]:
        if self._first is None:
            return 0.0, 0.0
        wall, simulated, decisions = self._first
        seconds = max(time.monotonic() - wall, 1e-9)
        done = self._clock["decisions"] - decisions
        return (self._clock["time"] - simulated) / seconds, done / seconds

    def _headline(self) -> str:
        clock, (speed, rate) = self._clock, self._rates()
        queued = self._agent["queued"]
        seen = "no count seen yet" if queued is None else f"Σq seen {queued}"
        if self._policy_needs() is Level.NONE:
            seen = "the policy looks at no count"
        left = f"; {(self._horizon - clock['time']) / speed:,.0f} s left" if speed > 0 else ""
        return (
            f"time {clock['time']:,.0f} of {self._horizon:,.0f}, {speed:,.0f}/s{left}; "
            f"{clock['decisions']:,} decisions, {rate:,.0f}/s; {seen}"
        )

    def _policy_needs(self) -> Level:
        """Return what the policy that runs now needs."""
        assert self._testbed is not None
        episode = self._clock["episode"]
        if self._needs is None or self._needs[0] != episode:
            self._needs = episode, self._testbed.split.requirements(episode).needs
        return self._needs[1]

    def table(self) -> Group:
        """Return the headline and the table of participants."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("participant", "state", "process", "placed jobs", "queued, as seen"):
            table.add_column(
                column, justify="left" if column in ("participant", "state") else "right"
            )
        assert self._testbed is not None
        broker = self._testbed.broker
        if broker:
            running = "running" if broker.alive() else Text("lost", "red")
            pid = str(broker.pid) if broker.pid else "elsewhere"
            table.add_row(f"broker ({broker.kind})", running, pid, "", "")
        roster = self._testbed.split.roster
        placed = dict(zip(roster.fogs, self._clock["placed"], strict=False))
        seen = dict(
            zip((*roster.fogs, roster.cloud), self._agent.get("counts") or (), strict=False)
        )
        for name, participant in self._testbed.participants.items():
            code = participant.process.poll()
            state = Text("joined", "green") if participant.state == "joined" else participant.state
            if name == CLOCK:
                state = Text("running", "green")
            if name in self._agent.get("marked", ()) and participant.state == "joined":
                state = Text("marked by the agent", "yellow")
            if code is not None:
                state = Text(f"ended ({code})", "green" if code == 0 else "red")
            if participant.health and code is None:
                state = Text.assemble(state, f", {participant.health}")
            jobs = f"{placed[name]:,}" if name in placed else ""
            queued = f"{seen[name]:,}" if name in seen else ""
            table.add_row(name, state, str(participant.process.pid), jobs, queued)
        return Group(Text(self._headline()), table)
