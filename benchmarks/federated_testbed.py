"""A federated testbed that can be paused and resumed, and measured while it runs.

So two testbeds, or a testbed and a bare fan-out, can take turns of a second on one machine: other
load on the machine slows both alike.
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

from fogveil.agent.decision_record import record_path
from fogveil.broker.address import Address
from fogveil.protocol.identity import AGENT, BROKER, CLOCK
from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.scenario.world import World

WARM_UP = 0.2
"""Seconds from resuming to the first decision that counts."""
SETTLE = 0.1
"""Seconds in which the others finish their work after the agent was paused."""
TICKS = os.sysconf("SC_CLK_TCK")
SOCKETS = re.compile(r"\S+:(\d+)\s+\S+:\d+\s*\n\s.*?bytes_sent:(\d+)(?:.*?bytes_received:(\d+))?")
"""A line of `ss -tin`: the local port, the bytes sent and received."""
PLANES = ("boundary", "workload", "time")


@dataclass(frozen=True)
class Interval:
    """What a testbed did while it ran."""

    decisions: int
    seconds: float
    cpu: Counter[str]
    """CPU seconds by kind of participant."""

    @property
    def rate(self) -> float:
        """Decisions per second."""
        return self.decisions / self.seconds


class PausableTestbed:
    """One testbed, running at first; `measure` leaves it paused.

    To pause it is to stop the agent's process: within a moment all others wait for it. They take it
    for lost after 4 seconds of silence.
    """

    def __init__(self, world: World, plan: Plan) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._testbed = create_testbed(world, plan, Path(self._folder.name) / "run")
        self._counted = self._offset = 0

    def __enter__(self) -> Self:
        begin = time.perf_counter()
        try:
            self._testbed.__enter__()
        except BaseException:
            self._folder.cleanup()
            raise
        self.started = time.perf_counter() - begin
        """Seconds until all participants had joined."""
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
            if name in split.roster.fogs:
                kind = "providers"
            elif name == split.roster.cloud:
                kind = "cloud"
            yield participant.process.pid, kind
        broker = self._testbed.broker
        if broker and broker.pid:
            yield broker.pid, BROKER

    # --- turns -----------------------------------------------------------------------------------

    def measure(self, seconds: float) -> Interval:
        """Let the testbed run for some time, then pause it."""
        self._signal(signal.SIGCONT)
        self._wait(WARM_UP)
        begin, decisions, cpu = time.perf_counter(), self.decisions(), self.cpu()
        self._wait(seconds)
        self._signal(signal.SIGSTOP)
        spent = time.perf_counter() - begin
        time.sleep(SETTLE)
        return Interval(self.decisions() - decisions, spent, self.cpu() - cpu)

    def pause(self) -> None:
        """Stop the agent, and so everybody."""
        self._signal(signal.SIGSTOP)

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return Path(self._folder.name) / "run"

    def resume(self) -> None:
        """Let the testbed run, unmeasured."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        process = self._testbed.participants[AGENT].process
        if process.poll() is None:
            process.send_signal(number)

    def _wait(self, seconds: float) -> None:
        """Read reports meanwhile, so that no pipe fills up; some come every quarter of a second."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            next(self._reports)

    # --- what is measured ------------------------------------------------------------------------

    def decisions(self) -> int:
        """Return how many decisions the agent has recorded."""
        with self._record.open("rb") as file:
            file.seek(self._offset)
            added = file.read()
        self._offset += len(added)
        self._counted += added.count(b"\n")
        return self._counted

    def nodes(self) -> list[int]:
        """Return the node of each decision."""
        lines = self._record.read_text(encoding="ascii").split("\n")[1:-1]
        return [int(line.split(",", 4)[3]) for line in lines]

    def cpu(self) -> Counter[str]:
        """Return the CPU seconds used so far, by kind of participant."""
        spent: Counter[str] = Counter()
        for pid, kind in self._processes.items():
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
            spent[kind] += sum(map(int, fields.split()[11:13])) / TICKS  # type: ignore[assignment]
        return spent

    def memory(self) -> dict[str, tuple[float, float]]:
        """Return (RSS, PSS) in MB by kind of participant, of its largest process.

        PSS divides memory that processes share, mostly libraries, among them.
        """
        largest: dict[str, tuple[float, float]] = {}
        for pid, kind in self._processes.items():
            text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
            rss, pss = (
                int(re.findall(rf"^{word}:\s+(\d+)", text, re.MULTILINE)[0]) / 1024
                for word in ("Rss", "Pss")
            )
            largest[kind] = max(largest.get(kind, (0.0, 0.0)), (rss, pss))
        return largest

    def bytes_per_decision(self, seconds: float) -> dict[str, float] | None:
        """Return the bytes through the sockets of each plane; None where nothing counts them.

        `ss` reads them from the kernel, which counts TCP's and not those of Unix sockets.
        """
        if not shutil.which("ss") or self._testbed.split.site.namespaces != "none":
            return None
        time.sleep(SETTLE)
        before, decisions = self._traffic(), self.decisions()
        self.measure(seconds)
        decisions = self.decisions() - decisions
        return {plane: number / decisions for plane, number in (self._traffic() - before).items()}

    def _traffic(self) -> Counter[str]:
        """Return the bytes in and out of the servers' sockets, by plane."""
        broker = self._testbed.broker
        assert broker is not None
        planes = {Address.parse(broker.address).port: "workload"}
        for name, participant in self._testbed.participants.items():
            if participant.port:
                planes[participant.port] = "time" if name == CLOCK else "boundary"
        listing = subprocess.run(
            [shutil.which("ss") or "ss", "-tinH"], capture_output=True, check=True, text=True
        ).stdout
        crossed: Counter[str] = Counter()
        for port, sent, received in SOCKETS.findall(listing):
            if int(port) in planes:
                crossed[planes[int(port)]] += int(sent) + int(received or 0)
        return crossed
