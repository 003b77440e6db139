"""Who is lost while a run goes on, is started again: as often as makes sense.

A process that was ended by a signal is lost, and one that hangs or is cut off; a hung one is ended
first. Whoever ends by itself, with a sentence, ends the run.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fogveil.core.errors import InfrastructureError
from fogveil.protocol.identity import BROKER, CLOCK
from fogveil.protocol.participant import ENDED_BY_SIGNAL
from fogveil.testbed.launch.participants import Participant
from fogveil.testbed.launch.reports import Report

ENCLOSED = 1
"""The exit code of an enclosure whose process a signal has ended; no participant ends with it."""
MOST_LOSSES = 3
WITHIN = 10.0
"""Seconds in which so many losses of one participant end the run."""
REJOIN_WITHIN = 2.0
"""Seconds in which a participant that lost its connection may join again by itself."""
JOIN_CLOCK_WITHIN = 10.0
"""Seconds in which everybody has joined a clock again that was lost."""
PING_EVERY = 2.0
CLOCK_ANSWERS_WITHIN = 10.0
"""Seconds in which a clock must have given a sign of life, of which it is asked for several."""
SUSPECT_AGAIN = 5.0
"""Seconds after a start in which nobody is suspected to hang: reports may be older than it."""
SUSPECT_BROKER_AGAIN = 30.0
"""The same for a broker that was started again: a client whose look-up of its name hangs takes
long to find it, and would never do so were it started again meanwhile."""


class AgentLostError(InfrastructureError):
    """An agent in training is lost: its training goes on from its last checkpoint."""


def is_loss(code: int | None) -> bool:
    """Return whether an exit code is that of a process which something else ended."""
    return code is not None and (code < 0 or code == ENCLOSED or code > ENDED_BY_SIGNAL)


def loss_line(loss: Mapping[str, Any]) -> str:
    """Return a sentence on a loss, as run.json has it."""
    seconds = loss["recovered_after_seconds"]
    after = "and was not back when the run ended" if seconds is None else f"back after {seconds} s"
    return (
        f"{loss['who']} was lost at simulated time {loss['simulated_time']:.6g} "
        f"({loss['how']}), {after}"
    )


@dataclass
class Loss:
    """A loss, and how long it took until the participant was back."""

    who: str
    how: str
    simulated: float
    wall: float
    """Seconds since the testbed was started."""
    noticed: float
    seconds: float | None = None

    def describe(self) -> dict[str, Any]:
        """Return it as run.json has it."""
        return {
            "who": self.who,
            "how": self.how,
            "simulated_time": self.simulated,
            "wall_seconds": round(self.wall, 3),
            "recovered_after_seconds": None if self.seconds is None else round(self.seconds, 3),
        }


class Restarts(Protocol):
    """What a testbed does for recovery."""

    participants: dict[str, Participant]

    def restart(self, name: str) -> None:
        """End what is left of a participant, or of the broker, and start it again."""

    def broker_is_lost(self) -> bool:
        """Return whether the broker's process has ended."""

    def tell_clock(self, **order: str) -> None:
        """Send the clock a line."""

    def log(self, name: str, line: str) -> None:
        """Add a line to the log."""


class Recovery:
    """Notices losses, and has the lost started again."""

    def __init__(self, testbed: Restarts, now: Callable[[], float] = time.monotonic) -> None:
        self._testbed, self._wall = testbed, now
        self._begin = now()
        self.losses: list[Loss] = []
        self.over = False
        """The run is over, or has failed: nobody is started again."""
        self.now = 0.0
        """Simulated time, as the clock last reported it."""
        self._due: dict[str, float] = {}
        """Until when somebody has to join again whose stream the clock has lost."""
        self._started: defaultdict[str, float] = defaultdict(lambda: self._begin)
        self._clock_seen = self._begin
        self._pinged = self._begin

    # --- what is reported ------------------------------------------------------------------------

    def follow(self, report: Report) -> None:
        """Take a report of the clock."""
        self.saw_clock()
        participants = self._testbed.participants
        if "clock" in report:
            self.now = report["clock"]["time"]
        if "finished" in report:
            self.over = True
        left = participants.get(report.get("left", ""))
        if left and left.state == "joined":  # else it is being started again already
            self.left(left.name)
        if "joined" in report:
            self.returned(report["joined"])
        if (lost := report.get("lost")) in (*participants, BROKER):
            self.suspect(lost)
        if "listening" in report:
            self.returned(CLOCK)
            for each in participants.values():
                if each.state == "joined":  # the clock that is back knows nothing of its stream
                    self._due.setdefault(each.name, self._wall() + JOIN_CLOCK_WITHIN)

    def left(self, name: str) -> None:
        """Take the news that a participant's stream to the clock has ended."""
        self._due.setdefault(name, self._wall() + REJOIN_WITHIN)

    def saw_clock(self) -> None:
        """Take any news of the clock: it is alive."""
        self._clock_seen = self._wall()

    def suspect(self, name: str) -> None:
        """Take the news that somebody waits for a participant, or the broker, in vain."""
        restarted = name == BROKER and any(loss.who == BROKER for loss in self.losses)
        patience = SUSPECT_BROKER_AGAIN if restarted else SUSPECT_AGAIN
        if self._wall() > self._started[name] + patience:
            self._lose(name, "does not answer")

    def returned(self, name: str) -> None:
        """Take the news that a participant has joined, that the clock listens, or the broker."""
        self._due.pop(name, None)
        now = self._wall()
        for loss in self.losses:
            if loss.who == name and loss.seconds is None:
                loss.seconds = now - loss.noticed
                self._testbed.log(
                    "launcher", f"{name} is back after {loss.seconds:.2f} s ({loss.how})"
                )

    def ended(self, names: list[str]) -> None:
        """Take the news that participants have ended by themselves, which ends the run."""
        if not self.over:
            self.over = True
            for name in names:
                self._testbed.tell_clock(lose=name)

    # --- what is done ----------------------------------------------------------------------------

    def look(self) -> None:
        """Start again whoever is lost."""
        if self.over:
            return
        now = self._wall()
        if self._testbed.broker_is_lost():
            self._lose(BROKER, "ended")
        for name, participant in list(self._testbed.participants.items()):
            code = participant.process.poll()
            if participant.state == "crashed":
                continue
            if is_loss(code):
                self._lose(name, f"ended with exit code {code}")
            elif code is None and now > self._due.get(name, now):
                self._lose(name, "was cut off, or hung")
        clock = self._testbed.participants.get(CLOCK)
        if clock and clock.has_reported_port and clock.process.poll() is None:
            self._ping_clock(now)
        else:
            self.saw_clock()

    def _ping_clock(self, now: float) -> None:
        """Ask the clock for a sign of life now and then: nobody else tells that it hangs."""
        if now > self._pinged + PING_EVERY:
            if now > self._pinged + 2 * PING_EVERY:  # it is we who did not run
                self._clock_seen = now
            self._pinged = now
            self._testbed.tell_clock(ping=CLOCK)
        if now > self._clock_seen + CLOCK_ANSWERS_WITHIN:
            self._clock_seen = now
            self._lose(CLOCK, "does not answer")

    def _lose(self, name: str, how: str) -> None:
        if self.over:
            return
        now = self._wall()
        loss = Loss(name, how, self.now, now - self._begin, now)
        self.losses.append(loss)
        self._due.pop(name, None)
        self._testbed.log("launcher", f"{name} is lost at simulated time {self.now:.6g}: it {how}")
        recent = [each for each in self.losses if each.who == name and each.noticed > now - WITHIN]
        if len(recent) >= MOST_LOSSES:
            self._give_up(name)
            return
        self._started[name] = now
        self._testbed.restart(name)

    def _give_up(self, name: str) -> None:
        self.over = True
        self._testbed.log("launcher", f"{name} was lost {MOST_LOSSES} times in {WITHIN:g} s")
        if name == CLOCK:
            raise InfrastructureError(
                f"the clock was lost {MOST_LOSSES} times in {WITHIN:g} s, the last time at "
                f"simulated time {self.now:.6g}"
            )
        self._testbed.tell_clock(lose=name)
