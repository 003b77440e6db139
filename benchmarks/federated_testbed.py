"""A federated testbed that can be held and let go, and measured while it runs.

Two testbeds, or a testbed and a bare fan-out, so take turns of a second on one machine: whatever
else the machine does, it does to both.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from agent.record import record_path
from broker.address import Address
from fogveil.identity import AGENT
from testbed.federated.launch import Testbed
from testbed.federated.split import BROKER, CLOCK, Plan
from testbed.world import World

WARM_UP = 0.2
"""Seconds from letting go to the first decision that counts."""
SETTLE = 0.1
"""Seconds in which everybody has done what there was to do when the agent was held."""
TICKS = os.sysconf("SC_CLK_TCK")
SOCKETS = re.compile(r"\S+:(\d+)\s+\S+:\d+\s*\n\s.*?bytes_sent:(\d+)(?:.*?bytes_received:(\d+))?")
"""Of `ss -tin`: the local port, and the bytes that went out and came in."""
PLANES = ("boundary", "workload", "time")


@dataclass(frozen=True)
class Stretch:
    """What happened while a testbed was let go."""

    decisions: int
    seconds: float
    cpu: Counter[str]
    """Seconds by kind of participant."""

    @property
    def rate(self) -> float:
        """Decisions per second."""
        return self.decisions / self.seconds


class Bed:
    """One running testbed: let go at the start, held after a stretch.

    Holding is stopping the agent's process: within a moment all others wait for it. That must not
    take 4 seconds, or they think that it is lost.
    """

    def __init__(self, world: World, plan: Plan) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._testbed = Testbed(world, plan, Path(self._folder.name) / "run")
        self._counted = self._offset = 0

    def __enter__(self) -> Self:
        begin = time.perf_counter()
        try:
            self._testbed.__enter__()
        except BaseException:
            self._folder.cleanup()
            raise
        self.started = time.perf_counter() - begin
        """Seconds until everybody had joined."""
        self._reports = self._testbed.reports()
        self._processes = dict(self._pids())
        self._record = record_path(self._testbed.split.folder_of(AGENT), 0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._signal(signal.SIGCONT)
        self._testbed.__exit__(kind, error, trace)
        self._folder.cleanup()

    def _pids(self) -> Iterator[tuple[int, str]]:
        split = self._testbed.split
        for name, participant in self._testbed.participants.items():
            kind = name if name in (AGENT, CLOCK) else "sources"
            if name in split.seats.fogs:
                kind = "providers"
            elif name == split.seats.cloud:
                kind = "cloud"
            yield participant.process.pid, kind
        broker = self._testbed.broker
        if broker and broker.pid:
            yield broker.pid, BROKER

    # --- turns -----------------------------------------------------------------------------------

    def stretch(self, seconds: float) -> Stretch:
        """Let the testbed run for a while and hold it again."""
        self._signal(signal.SIGCONT)
        self._wait(WARM_UP)
        begin, decisions, cpu = time.perf_counter(), self.decisions(), self.cpu()
        self._wait(seconds)
        self._signal(signal.SIGSTOP)
        spent = time.perf_counter() - begin
        time.sleep(SETTLE)
        return Stretch(self.decisions() - decisions, spent, self.cpu() - cpu)

    def hold(self) -> None:
        """Hold the testbed."""
        self._signal(signal.SIGSTOP)

    def let_go(self) -> None:
        """Let the testbed run, unmeasured."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        process = self._testbed.participants[AGENT].process
        if process.poll() is None:
            process.send_signal(number)

    def _wait(self, seconds: float) -> None:
        """Read reports, so that nobody waits for a reader; there are some every quarter second."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            next(self._reports)

    # --- what is measured ------------------------------------------------------------------------

    def decisions(self) -> int:
        """Return how many decisions the agent has recorded."""
        with self._record.open("rb") as file:
            file.seek(self._offset)
            fresh = file.read()
        self._offset += len(fresh)
        self._counted += fresh.count(b"\n")
        return self._counted

    def nodes(self) -> list[int]:
        """Return where each workload went."""
        lines = self._record.read_text(encoding="ascii").split("\n")[1:-1]
        return [int(line.split(",", 4)[3]) for line in lines]

    def cpu(self) -> Counter[str]:
        """Return the CPU seconds that participants have spent, by kind."""
        spent: Counter[str] = Counter()
        for pid, kind in self._processes.items():
            numbers = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
            spent[kind] += sum(map(int, numbers.split()[11:13])) / TICKS  # type: ignore[assignment]
        return spent

    def memory(self) -> dict[str, tuple[float, float]]:
        """Return (RSS, PSS) in MB by kind, the most that one process of the kind has.

        PSS shares what processes have in common, the libraries above all, among them.
        """
        most: dict[str, tuple[float, float]] = {}
        for pid, kind in self._processes.items():
            text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
            rss, pss = (
                int(re.findall(rf"^{word}:\s+(\d+)", text, re.MULTILINE)[0]) / 1024
                for word in ("Rss", "Pss")
            )
            most[kind] = max(most.get(kind, (0.0, 0.0)), (rss, pss))
        return most

    def bytes_per_decision(self, seconds: float) -> dict[str, float] | None:
        """Return what crosses the sockets of each plane; None where `ss` is not installed."""
        if not shutil.which("ss"):
            return None
        time.sleep(SETTLE)
        before, decisions = self._traffic(), self.decisions()
        self.stretch(seconds)
        decisions = self.decisions() - decisions
        return {plane: number / decisions for plane, number in (self._traffic() - before).items()}

    def _traffic(self) -> Counter[str]:
        """Return the bytes in and out of the sockets at the serving ends, by plane."""
        broker = self._testbed.broker
        assert broker is not None
        planes = {Address.parse(broker.address).port: "workload"}
        for name, participant in self._testbed.participants.items():
            if participant.port:
                planes[participant.port] = "time" if name == CLOCK else "boundary"
        told = subprocess.run(  # the two options of `ss` are ours
            [shutil.which("ss") or "ss", "-tinH"], capture_output=True, check=True, text=True
        ).stdout
        seen: Counter[str] = Counter()
        for port, sent, received in SOCKETS.findall(told):
            if int(port) in planes:
                seen[planes[int(port)]] += int(sent) + int(received or 0)
        return seen
