"""Who has said what in an episode, and has been told what: by it, whoever is lost comes back.

Around the state machine `Windows`, without transport. Whoever joins again is told all orders that
it lacks; a participant that begins anew lacks all of its episode, and says everything once more.
What was handled before is compared and dropped. An episode is not over before everybody who came
back stands where it stood.

The clock itself comes back from its own log: of all that it handled, in that order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from fogveil.clock.core import Order, Windows
from fogveil.clock.state import ProtocolError, Standing
from fogveil.protocol.identity import AGENT
from fogveil.v1.clock_pb2 import Hello, JoinRequest, JoinResponse, Missing, Repeat

SEPARATOR = b"\0"
"""Between a name and what it said, in an entry of the log; notes of our own have no name."""


class Log(Protocol):
    """Keeps what the clock handles."""

    def begin(self) -> None:
        """Forget everything: an episode begins."""

    def append(self, entry: bytes) -> None:
        """Keep an entry."""


class _Nothing:
    """A log of what is in the log already."""

    def begin(self) -> None:
        """Keep nothing."""

    def append(self, _entry: bytes) -> None:
        """Keep nothing."""


class Outbox:
    """Orders to one participant, which are kept through the episode if it may come back."""

    def __init__(self, *, keeps: bool) -> None:
        self._keeps = keeps
        self._orders: list[JoinResponse] = []
        self._sent = 0
        self.on_news: Callable[[], None] = lambda: None
        """Called when there is something to send."""

    def put(self, order: JoinResponse) -> None:
        """Add an order; that an episode begins takes the place of those of the last one."""
        if (self._sent == len(self._orders) and not self._keeps) or order.HasField("begin"):
            self._orders.clear()
            self._sent = 0
        self._orders.append(order)
        self.on_news()

    def insert(self, order: JoinResponse) -> None:
        """Send an order next, and to nobody again."""
        self._orders.insert(self._sent, order)
        self.on_news()

    def end(self, order: JoinResponse) -> None:
        """Send an order after which there is none."""
        self._orders = [order]
        self._sent = 0
        self.on_news()

    def next(self) -> JoinResponse | None:
        """Return the next order to send, if there is one."""
        if self._sent == len(self._orders):
            return None
        order = self._orders[self._sent]
        if self._keeps and order.HasField("repeat"):
            del self._orders[self._sent]
        else:
            self._sent += 1
        return order

    def go_back(self, received: int) -> None:
        """Send what follows the orders that a participant has."""
        self._orders = [order for order in self._orders if not order.HasField("repeat")]
        self._sent = min(received, len(self._orders))
        self.on_news()


@dataclass(slots=True)
class Seat:
    """One participant's place in the run, whether it is there or not."""

    outbox: Outbox
    present: bool = False
    handled: list[int] = field(default_factory=list)
    """Digests of what it said in this episode."""
    said: int = 0
    """How much of that it has said since it came last."""
    to_skip: int = 0
    """Messages of the last episode that it says again."""

    @property
    def level(self) -> bool:
        """Whether it stands where it stood before it was lost."""
        return self.present and self.said >= len(self.handled)

    def clear(self) -> None:
        """Begin anew."""
        self.handled.clear()
        self.said = 0


class Session:
    """A run that goes on when participants are lost, if it keeps a log."""

    def __init__(
        self,
        windows: Windows,
        log: Log | None = None,
        deliver: Callable[[list[Order]], None] | None = None,
    ) -> None:
        """Begin a run. `deliver` puts orders into outboxes, now or later; by default it is now."""
        self._windows, self._log = windows, log
        self._deliver = deliver or self.put
        self.seats = {name: Seat(Outbox(keeps=log is not None)) for name in windows.roster.all}
        self.episode = -1
        """The one that everybody is in, or has finished."""
        self._held: list[Order] | None = None
        """The next episode's first orders, while somebody is not where it stood."""
        self.over = False
        """The last episode is over for everybody."""

    def put(self, orders: list[Order]) -> None:
        """Put orders into the outboxes of their receivers."""
        for name, order in orders:
            self.seats[name].outbox.put(order)

    # --- the clock's own log ---------------------------------------------------------------------

    def replay(self, entries: Iterable[bytes]) -> None:
        """Handle all that the clock had handled before it was lost."""
        log, self._log = self._log, _Nothing()
        deliver, self._deliver = self._deliver, self.put
        for entry in entries:
            name, _, said = entry.partition(SEPARATOR)
            if name:
                self._handle(name.decode(), JoinRequest.FromString(said))
            else:
                self._follow_note(json.loads(said))
        self._windows.forget_demands()
        for seat in self.seats.values():
            seat.said = 0
        self._log, self._deliver = log, deliver

    def _follow_note(self, note: dict[str, Any]) -> None:
        match note:
            case {"begin": standing}:
                self._windows.resume(Standing(**standing))
                self._begin(self._windows.begin())
            case {"largest": largest}:
                self._windows.largest = largest
            case {"left": name}:
                self._deliver(self._windows.left(name) or [])
            case {"rejoined": name}:
                self._seat_anew(name)

    def _note(self, **note: Any) -> None:
        if self._log:
            self._log.append(SEPARATOR + json.dumps(note).encode())

    # --- joining and leaving ---------------------------------------------------------------------

    def join(self, name: str, hello: Hello) -> None:
        """Seat a participant, and tell it what it lacks."""
        seat = self.seats[name]
        seat.present = True
        if self._windows.awaits(name):
            self._note(rejoined=name)
            self._seat_anew(name)
        elif self._log:
            here = bool(hello.received) and hello.episode == self.episode
            seat.said, seat.to_skip = 0, 0 if here else hello.said
            seat.outbox.go_back(hello.received if here else 0)
            self._go_on_when_level()
        if self._windows.episode < 0 and all(each.present for each in self.seats.values()):
            self._begin(self._windows.begin())

    def _seat_anew(self, name: str) -> None:
        """Let a provider that is back from a crash of the scenario begin anew."""
        self.seats[name].clear()
        self._deliver(self._windows.rejoined(name))

    def _begin(self, orders: list[Order]) -> None:
        """Begin an episode: nothing of the last one is needed any more."""
        self.episode = self._windows.episode
        if self._log:
            self._log.begin()
            self._note(begin=self._windows.standing()._asdict())
        for seat in self.seats.values():
            seat.clear()
        self._deliver(orders)

    def leave(self, name: str) -> bool:
        """Let a participant go; return whether the run can go on without it for now."""
        self.seats[name].present = False
        orders = self._windows.left(name)
        if orders is not None:
            self._note(left=name)
            self._deliver(orders)
        return orders is not None

    # --- messages --------------------------------------------------------------------------------

    def take(self, name: str, message: JoinRequest) -> None:
        """Handle a message, or drop one that was handled before; ProtocolError if it differs."""
        if self._log is None:
            self._handle(name, message)
            return
        if message.HasField("missing"):
            self._ask_again(name, message.missing)
            return
        seat = self.seats[name]
        if seat.to_skip:
            seat.to_skip -= 1
            return
        content = message.SerializeToString(deterministic=True)
        if seat.said < len(seat.handled):
            if seat.handled[seat.said] != hash(content):
                raise ProtocolError(name, _difference(name))
            seat.said += 1
            self._go_on_when_level()
            return
        self._log.append(name.encode() + SEPARATOR + content)
        self._handle(name, message)

    def set_largest(self, largest: int) -> None:
        """Let windows have so many decisions at most."""
        if largest != self._windows.largest:
            self._windows.largest = largest
            self._note(largest=largest)

    def _handle(self, name: str, message: JoinRequest) -> None:
        seat, episode = self.seats[name], self._windows.episode
        if self._log:
            seat.handled.append(hash(message.SerializeToString(deterministic=True)))
            seat.said += 1
        orders = self._windows.handle(name, message)
        if self._windows.episode == episode and not self._windows.finished:
            self._deliver(orders)
            return
        self._held = orders
        self._go_on_when_level()

    def _go_on_when_level(self) -> None:
        """Begin the episode that is held back, or end the run, once nobody is behind."""
        if self._held is None or not self._all_level:
            return
        orders, self._held = self._held, None
        if self._windows.finished:
            self.over = True
        else:
            self._begin(orders)

    @property
    def _all_level(self) -> bool:
        return self._log is None or all(seat.level for seat in self.seats.values())

    def _ask_again(self, name: str, missing: Missing) -> None:
        """Pass on that somebody lacks another's messages."""
        sender = self.seats.get(missing.name)
        if sender and sender.present:
            repeat = Repeat(name=name, received=missing.received)
            sender.outbox.insert(JoinResponse(repeat=repeat))


def _difference(name: str) -> str:
    if name == AGENT:
        return "was lost, is back and decides otherwise: its policy is not deterministic"
    return "was lost, is back and says otherwise"
