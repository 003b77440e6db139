"""The participants that a testbed has started, and which of their errors explains its failure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fogveil.core.errors import FogveilError, InfrastructureError, InputError
from fogveil.core.safe_text import safe_text
from fogveil.protocol.identity import BROKER, CLOCK
from fogveil.protocol.participant import NOTE
from fogveil.testbed.launch.interface import ProcessHandle

ENCLOSURE = "unshare: "
"""How a line begins that the enclosing program writes."""
NOTES_KEPT = 10
"""Lines that are kept of what a participant writes beside its error."""


@dataclass
class Participant:
    """A participant that was started, with what is known of it."""

    name: str
    role: str
    process: ProcessHandle
    state: Literal["starting", "listening", "joined", "crashed"] = "starting"
    has_reported_port: bool = False
    port: int | None = None
    """Where it listens, if anywhere."""
    health: str = ""
    """What the launcher reports of it, if it watches."""
    last_error: str = ""
    """The last line that it wrote to standard error, without the program's name, made safe."""
    notes: tuple[str, ...] = ()
    """The lines that belong to its last error, made safe."""
    accusation: str = ""
    """What it reports that another one sent against the protocol."""
    _next_notes: deque[str] = field(default_factory=lambda: deque(maxlen=NOTES_KEPT))

    def write_error(self, line: str) -> None:
        """Take a line of its standard error."""
        if line.startswith(ENCLOSURE):
            return  # what it says of a process that a signal has ended explains nothing
        if line.startswith(NOTE):
            self._next_notes.append(safe_text(line))
            return
        self.last_error = safe_text(line.partition(": ")[2] or line)
        self.notes = tuple(self._next_notes)
        self._next_notes.clear()


def explain_failure(
    participants: Mapping[str, Participant],
    lost: str | None,
    *,
    broker_alive: bool,
    cut_off: str | None = None,
) -> FogveilError:
    """Return the error to show.

    `lost` is whom the clock has reported as lost, `cut_off` whom the broker could not bear.
    """
    clock = participants[CLOCK]
    ended = [p for p in participants.values() if p.process.poll() and p.state != "crashed"]
    by_code = {participant.process.poll(): participant for participant in ended}
    if refused := by_code.get(InputError.exit_code):
        refusal = InputError(f"{refused.name}: {refused.last_error}")
        for note in refused.notes:
            refusal.add_note(note)
        return refusal
    accusations = [
        f"{participant.accusation} (reported by {participant.name})"
        for participant in ended
        if participant.accusation and participant.process.poll() == InfrastructureError.exit_code
    ]
    if accusations:
        return InfrastructureError("; ".join(accusations))
    if clock.process.poll() == InfrastructureError.exit_code:
        if cut_off:
            reason = (
                f"; the broker had closed the connection of {cut_off}, which sent or requested "
                "more than it can hold"
            )
        else:
            reason = _reason_of_loss(
                participants, lost, clock.last_error, broker_alive=broker_alive
            )
        return InfrastructureError(clock.last_error + reason)
    errors = [
        participant.last_error
        for participant in ended
        if participant.process.poll() == InfrastructureError.exit_code
    ]
    if errors:
        # The clock is gone, or it would have named whom it lost: the others ended because of it.
        of_clock = [error for error in errors if error.startswith("the clock was lost")]
        return InfrastructureError((of_clock or errors)[0])
    if not ended:
        return InfrastructureError("the run ended before every participant had joined")
    first = ended[0]
    return InfrastructureError(
        f"{first.name} failed with exit code {first.process.poll()}: "
        f"{first.last_error or 'it wrote nothing to standard error'}"
    )


def _reason_of_loss(
    participants: Mapping[str, Participant], lost: str | None, error: str, *, broker_alive: bool
) -> str:
    """Return what the lost participant wrote itself, or what is known of a broker that runs."""
    if lost == BROKER and broker_alive:
        return (
            " (its process is still there: it hangs, or has closed a participant's connection, "
            "as it does when somebody else connects with that participant's identity)"
        )
    for witness in participants.values():
        if lost and witness.name != lost and witness.last_error.startswith(f"{lost} sent "):
            return f"; {witness.name}: {witness.last_error}"
    participant = participants.get(lost or "")
    if participant is None or participant.last_error in ("", error):
        return ""
    code = participant.process.poll()
    if code is None or code <= 0:
        return ""  # it did not fail by itself, so its last line does not explain it
    return f"; its last words: {participant.last_error}"


def is_stopped(pid: int) -> bool:
    """Return whether a process of this machine was stopped by a signal (state T)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state == "T"
