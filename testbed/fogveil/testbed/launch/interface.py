"""The launching interface: what a testbed asks of whatever runs its participants.

A `Launcher` runs participants in one kind of place: `LocalLauncher` as processes of this machine,
`DockerLauncher` as containers. A testbed calls it in this order:

    prepare        builds images, creates networks: whatever must exist before the first start
    start_broker   once, and restart_broker where it is lost
    start          once for each participant, and again where it is lost
    events         again and again while the run lasts
    close          always, also after a failure: nothing that was started or created remains

Who starts when, what the participants report and what a failure means is the testbed's business.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import AGENT, CLOCK, CLOUD, PROVIDER, SOURCES, Identity
from fogveil.protocol.roster import Roster
from fogveil.testbed.launch.participant_config import Site, Split

PROGRAMS = {
    AGENT: "fogveil.agent",
    CLOCK: "fogveil.clock",
    CLOUD: "fogveil.provider_node",
    PROVIDER: "fogveil.provider_node",
    SOURCES: "fogveil.sources",
}
"""The module that a participant of each role runs, with `--config FILE`."""
PAUSED = "paused"
"""The health of a participant that cannot run until somebody resumes it."""

Stream = Literal["stdout", "stderr"]


class OutputLine(NamedTuple):
    """A line that a participant wrote to one of its standard streams."""

    name: str
    stream: Stream
    text: str


class HealthChange(NamedTuple):
    """What a launcher that watches over its participants noticed of one of them."""

    name: str
    health: str


Event = OutputLine | HealthChange


class ProcessHandle(Protocol):
    """A participant that was started."""

    @property
    def pid(self) -> int:
        """Its process id on the machine that runs it."""

    def poll(self) -> int | None:
        """Return its exit code once it has ended and `events` has returned all its output."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code; `subprocess.TimeoutExpired` if too late."""

    def terminate(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """End it by force, even if it is paused."""

    def send_signal(self, number: int, /) -> None:
        """Send it a signal."""

    def send_line(self, line: bytes, /) -> None:
        """Write a line to its standard input."""


class BrokerHandle(Protocol):
    """The broker of a run, wherever it runs."""

    @property
    def kind(self) -> str:
        """Which broker it is: mosquitto, builtin or external."""

    @property
    def address(self) -> str:
        """Where participants dial it."""

    @property
    def reach_address(self) -> str:
        """Where this process reaches it."""

    @property
    def pid(self) -> int | None:
        """Its process id; None where it is not ours."""

    @property
    def identity(self) -> Identity | None:
        """What it proves to its clients, where it is ours and the run has identities."""

    def alive(self) -> bool:
        """Return whether it runs; an external broker always seems to."""


class Launcher(Protocol):
    """Runs the participants and the broker of one testbed."""

    def prepare(self, run: str, roster: Roster, folder: Path) -> Site:
        """Create what participants need; return where they listen and whom they wait for."""

    def start_broker(
        self,
        folder: Path,
        run: str,
        roster: Roster,
        credentials: Credentials | None,
        user: int | None,
    ) -> BrokerHandle:
        """Start the broker with its files in `folder`; with credentials it controls access."""

    def restart_broker(self) -> BrokerHandle:
        """End what is left of the broker, and start it again where it was."""

    def start(self, name: str, role: str, config: Path, user: int | None) -> ProcessHandle:
        """Start a participant, whose folder is that of its configuration."""

    def fixed_port(self, name: str) -> int | None:
        """Return where a participant will listen; None if it chooses a port and reports it."""

    def dial_address(self, name: str, port: int | None) -> str:
        """Return the gRPC address at which other participants dial one that listens on a port."""

    def reach_address(self, name: str, port: int | None) -> str:
        """Return the gRPC address at which this process reaches it."""

    def events(self, timeout: float) -> Iterable[Event]:
        """Return what has happened, waiting up to `timeout` seconds for the first event."""

    def close(self) -> None:
        """End the broker and remove everything that was created; safe at any time."""


class Interposer(Protocol):
    """Stands between the participants of a run, as an auditor's wire tap does."""

    def attach(self, split: Split) -> None:
        """Learn of the run's identities, before anybody is told an address."""

    def interpose(self, caller: str, callee: str, address: str) -> str:
        """Return the address to tell the caller in place of the callee's."""
