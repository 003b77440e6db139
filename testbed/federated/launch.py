"""Bringing a federated testbed up on this machine, watching over it, and leaving nothing behind."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import selectors
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from broker.access import Participants
from broker.address import Address
from broker.starting import start_broker
from fogveil.disclosure import Level
from fogveil.errors import FogveilError, InputError, SurroundingsError
from fogveil.identity import AGENT, AUDITOR, BROKER, Identity
from testbed.federated.apart import participants_environment
from testbed.federated.split import CLOCK, LOOPBACK, Plan, Split, check
from testbed.records import writing
from testbed.world import World

GRACE = 8.0
"""Seconds that participants have to end by themselves once one of them has ended."""
TERM_GRACE = 3.0
"""Seconds between asking a process to end and making it."""
COLOURS = cycle(range(31, 37))

PAUSED = "paused"
SAID_KEPT = 1000
Report = dict[str, Any]
"""What a participant told the launcher."""


class Running(Protocol):
    """What the launcher asks of a participant that it started, be it a process or a container."""

    @property
    def pid(self) -> int:
        """Its process on this machine."""

    @property
    def returncode(self) -> int | None:
        """Its exit code, once it was found to have ended."""

    def poll(self) -> int | None:
        """Return its exit code if it has ended."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; TimeoutExpired if that takes longer."""

    def terminate(self) -> None:
        """Ask it to end."""

    def send_signal(self, sig: int, /) -> None:
        """Send it a signal."""

    def kill(self) -> None:
        """Make it end."""


class RelayingBroker(Protocol):
    """What the launcher asks of a broker, wherever it runs."""

    @property
    def kind(self) -> str:
        """Which broker it is."""

    @property
    def address(self) -> str:
        """Where participants find it."""

    @property
    def pid(self) -> int | None:
        """Its process, where it is ours."""

    @property
    def identity(self) -> Identity | None:
        """What it proves to its clients, where it is ours and the run has identities."""

    def alive(self) -> bool:
        """Say whether it runs, as far as can be told from here."""

    def stop(self) -> None:
        """End it, where it is ours."""


@dataclass
class Participant:
    """A process of the testbed."""

    name: str
    process: Running
    colour: int
    state: str = "starting"
    listening: bool = False
    """Whether it has said on which port it listens, if on any."""
    port: int | None = None
    health: str = ""
    """How a container is, as the engine tells."""
    sentence: str = ""
    """The last line it wrote to standard error."""
    partial: dict[str, bytes] = field(default_factory=lambda: {"out": b"", "err": b""})


class Testbed:
    """All processes of one federated run; a context that ends them all, whatever happens."""

    __test__ = False  # for pytest: this is no test

    def __init__(
        self,
        world: World,
        plan: Plan,
        folder: Path,
        *,
        hold: bool = False,
    ) -> None:
        check(plan, world)
        self._hold = hold
        """Everybody but the agent is started: nothing happens until `release`."""
        self._world, self._plan, self._folder = world, plan, folder
        self.participants: dict[str, Participant] = {}
        self.broker: RelayingBroker | None = None
        self.run = secrets.token_hex(16)
        self._lost: str | None = None
        """Whom the clock lost."""
        self.said: dict[str, deque[str]] = {}
        """The last lines of each participant."""
        self._selector = selectors.DefaultSelector()
        self._at_the_end: list[Callable[[], None]] = []
        """What closes the streams to and from participants."""
        self._log: Any = None
        self._waiting: list[tuple[str, Report]] = []
        """Reports that nobody has asked for yet."""

    @property
    def level(self) -> Level:
        """What the providers disclose."""
        return self._world.agent.disclosed

    # --- up --------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        with writing(self._folder):
            self._take_folder()
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def _take_folder(self) -> None:
        """Make the folder ours, with nothing in it from a run before."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path, before = self._folder / "testbed.log", self._folder / "participants"
        if before.exists() and not path.exists():
            raise InputError(f"{before} is there and no testbed's; choose another --out")
        self._log = os.fdopen(
            os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8", errors="replace"
        )
        try:
            fcntl.flock(self._log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._log.close()
            raise InputError(f"{self._folder}: another testbed is at work here") from error
        self._log.truncate()
        for left in self._left_before():  # it would be taken for ours
            shutil.rmtree(left) if left.is_dir() else left.unlink()

    def _left_before(self) -> list[Path]:
        """Return what a testbed before us left in the folder."""
        names = ("participants", AUDITOR, "run.json", "jobs.parquet", "decisions.parquet")
        left = [self._folder / name for name in names]
        return [*(path for path in left if path.exists()), *self._folder.glob("episode-[0-9]*")]

    def _start(self) -> None:
        folder = self._folder / "participants"
        for place in (folder, folder / BROKER):
            place.mkdir(exist_ok=True, mode=0o700)
        self.split = split = self._divide(folder)
        seats = split.seats
        self.broker = self._relay(folder / BROKER)
        split.broker = self.broker.address
        split.own_broker = self.broker.identity is not None
        shown = Address.parse(self.broker.address)  # without a password
        self.note("launcher", f"the broker is {self.broker.kind} at {shown}")
        self._launch(CLOCK, "testbed.federated.clock", split.clock())
        clock = self._found_at(CLOCK)
        providers = (*seats.fogs, seats.cloud)
        for name in providers:
            self._launch(name, "provider_node", split.provider(name, clock))
        for name in seats.sources:
            self._launch(name, "testbed.federated.sources", split.sources(name, clock))
        self._boundaries = {name: self._found_at(name) for name in providers}
        self.addresses = {name: self._reached_at(name) for name in (*providers, CLOCK)}
        if self._plan.record:
            split.auditor(self._folder.absolute() / AUDITOR, self.addresses)
        if not self._hold:
            self.release()

    def _divide(self, folder: Path) -> Split:
        """Prepare to write each participant's share of the scenario."""
        return Split(self._world, self._plan, folder, self.run)

    def _relay(self, folder: Path) -> RelayingBroker:
        """Start the broker."""
        seats = self.split.seats
        return start_broker(
            self._plan.broker,
            folder,
            credentials=self.split.identify(BROKER, BROKER, folder / "identity"),
            participants=Participants(self.run, seats.sources, seats.fogs, seats.cloud),
            user=self.split.users.get(BROKER),
        )

    def _found_at(self, name: str) -> str:
        """Return where the other participants find this one."""
        return f"{LOOPBACK}:{self._wait_for_port(name)}"

    def _reached_at(self, name: str) -> str:
        """Return where a server that listens is reached from here."""
        return f"{LOOPBACK}:{self._wait_for_port(name)}"

    def release(self) -> None:
        """Start the agent, and with it the run: the clock begins when everybody is there."""
        config = self.split.agent(self._found_at(CLOCK), self._boundaries)
        self._launch(AGENT, "agent", config)
        self._pump_until(lambda: self._all("joined"))

    def _launch(self, name: str, module: str, config: Path) -> None:
        self.participants[name] = started = self._begin(name, module, config)
        self.note("launcher", f"started {name} as process {started.process.pid}")

    def _begin(self, name: str, module: str, config: Path) -> Participant:
        """Start a participant, and listen to what it says."""
        process = subprocess.Popen(  # noqa: S603 (our own modules)
            [sys.executable, "-P", "-m", module, "--config", str(config)],
            stdin=subprocess.PIPE,  # its end tells the participant that the launcher is gone
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=participants_environment(),
            # Ctrl-C reaches the launcher alone, which ends the others. (Sessions of their own would
            # do that, too, but Linux shares the CPU out by sessions, and badly among many.)
            process_group=0,
        )
        participant = Participant(name, process, next(COLOURS))
        for stream, channel in ((process.stdout, "out"), (process.stderr, "err")):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, (participant, channel))
            self._at_the_end.append(stream.close)
        assert process.stdin is not None
        self._at_the_end.append(process.stdin.close)
        return participant

    def _wait_for_port(self, name: str) -> int | None:
        self._pump_until(lambda: self.participants[name].listening)
        return self.participants[name].port

    def _all(self, state: str) -> bool:
        return all(p.state == state for p in self.participants.values() if p.name != CLOCK)

    def _pump_until(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._plan.patience
        while not reached():
            self._pump(0.1)
            if any(p.process.poll() is not None for p in self.participants.values()):
                self._drain()
                if reached():  # a short run is over before it was seen to begin
                    return
                raise self._failure()
            if time.monotonic() > deadline:
                late = [p.name for p in self.participants.values() if p.state == "starting"]
                raise SurroundingsError(f"did not start in time: {', '.join(late)}")

    # --- while it runs ---------------------------------------------------------------------------

    def reports(self) -> Iterator[tuple[str, Report]]:
        """Yield what participants report until the run is over; fail if it failed."""
        waiting = self._waiting
        while any(p.process.poll() is None for p in self.participants.values()):
            self._pump(0.1)
            yield from waiting
            waiting.clear()
            if any(p.process.poll() is not None for p in self.participants.values()):
                self._let_end()
        self._drain()
        yield from waiting
        if any(p.process.returncode for p in self.participants.values()):
            raise self._failure()

    def wait(self) -> None:
        """Wait until the run is over; fail if it failed."""
        for _ in self.reports():
            pass

    def _let_end(self) -> None:
        """One participant has ended: so do the others, by themselves or by force."""
        deadline = time.monotonic() + GRACE
        while time.monotonic() < deadline:
            running = [p for p in self.participants.values() if p.process.poll() is None]
            if not running:
                return
            if all(p.health == PAUSED or p.name == self._lost for p in running):
                break  # they cannot
            self._pump(0.05)
        for participant in self.participants.values():
            if participant.process.poll() is None:
                self.note("launcher", f"{participant.name} did not end by itself")
                participant.process.kill()
                participant.process.wait()

    def _failure(self) -> FogveilError:
        """Find the sentence that says best what happened."""
        deadline = time.monotonic() + GRACE
        clock = self.participants[CLOCK]
        while clock.process.poll() is None and time.monotonic() < deadline:
            self._pump(0.1)
            if not any(p.state == "joined" for p in self.participants.values()):
                break  # nobody whose loss the clock would notice
        self._drain()
        ended = [p for p in self.participants.values() if p.process.poll()]
        by_code = {p.process.returncode: p for p in ended}
        if refused := by_code.get(InputError.exit_code):
            return InputError(f"{refused.name}: {refused.sentence}")
        if clock.process.returncode == SurroundingsError.exit_code:
            return SurroundingsError(clock.sentence + self._reason(clock.sentence))
        told = [p.sentence for p in ended if p.process.returncode == SurroundingsError.exit_code]
        if told:
            # The clock is gone, or it would have said who is lost: others left after it.
            about_it = [sentence for sentence in told if sentence.startswith("the clock was lost")]
            return SurroundingsError((about_it or told)[0])
        if not ended:
            return SurroundingsError("the run was over before it began")
        first = ended[0]
        return SurroundingsError(
            f"{first.name} failed ({first.process.returncode}): "
            f"{first.sentence or 'it said nothing'}"
        )

    def _reason(self, told: str) -> str:
        """Return what the participant that was lost said itself, if it had a word to say."""
        lost = self.participants.get(self._lost or "")
        if self._lost == BROKER and self.broker and self.broker.alive():
            return (
                " (its process is still there: it hangs, or has closed a participant's connection, "
                "as it does when somebody else connects with that participant's identity)"
            )
        if lost is None or (lost.process.poll() or -1) < 0 or lost.sentence in ("", told):
            return ""
        return f"; its last words: {lost.sentence}"

    # --- what participants say -------------------------------------------------------------------

    def _pump(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            participant, channel = key.data
            assert not isinstance(key.fileobj, int)
            try:
                data = os.read(key.fd, 65536)
            except BlockingIOError:
                continue
            if not data:
                self._selector.unregister(key.fileobj)
                self._hung_up(participant)
                continue
            self._take(participant, channel, data)
        if not self._selector.get_map():
            time.sleep(min(timeout, 0.02))

    def _hung_up(self, participant: Participant) -> None:
        """A stream of a participant has ended."""

    def _take(self, participant: Participant, channel: str, data: bytes) -> None:
        """Take what came from a participant in, line by line."""
        *lines, participant.partial[channel] = (participant.partial[channel] + data).split(b"\n")
        for line in lines:
            self._heard(participant, channel, line.decode(errors="replace"))

    def _drain(self) -> None:
        """Read what processes that have ended still said."""
        for _ in range(100):
            if not any(
                p.process.poll() is not None
                for key in self._selector.get_map().values()
                for p in (key.data[0],)
            ):
                return
            self._pump(0.02)

    def _heard(self, participant: Participant, channel: str, line: str) -> None:
        if channel == "err":
            participant.sentence = line.partition(": ")[2] or line
            self.note(participant.name, line)
            return
        try:
            report: Any = json.loads(line)
        except ValueError:
            report = None
        if not isinstance(report, dict):
            self.note(participant.name, line)  # not by us
            return
        if "listening" in report:
            participant.port, participant.listening = report["listening"], True
            if participant.state == "starting":  # else the clock's word came before its own
                participant.state = "listening"
        if "joined" in report and participant.name == CLOCK:
            self.participants[report["joined"]].state = "joined"
        if "lost" in report and participant.name == CLOCK:
            self._lost = report["lost"]
        if "refused" in report:
            self.note(participant.name, f"refused: {report['refused']}")
        self._waiting.append((participant.name, report))

    def note(self, name: str, line: str) -> None:
        """Add a line to the log of all participants, which is the launcher's own."""
        colour = self.participants[name].colour if name in self.participants else 90
        self.said.setdefault(name, deque(maxlen=SAID_KEPT)).append(line)
        now = time.strftime("%H:%M:%S")
        self._log.write(f"{now} \x1b[{colour}m{name:>10}\x1b[0m | {line}\n")
        self._log.flush()

    # --- down ------------------------------------------------------------------------------------

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End every process that is left, the broker last."""
        running = [p for p in self.participants.values() if p.process.poll() is None]
        for participant in running:
            participant.process.terminate()
        deadline = time.monotonic() + TERM_GRACE
        for participant in running:
            try:
                participant.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                participant.process.kill()
                participant.process.wait()
        for close in self._at_the_end:
            close()
        if self.broker:
            self.broker.stop()
        self._selector.close()
        if self._log:
            self._log.close()
