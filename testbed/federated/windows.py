"""The clock's mind: who may go how far in simulated time. No transport, no clock of its own.

It takes what participants say and returns what to tell whom. Of the run it knows the decision
instants and how many workloads went where, and nothing that depends on a provider's secret.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import inf, isfinite

from fogveil.identity import AGENT, CLOUD, PROVIDER, SOURCES
from fogveil.v1.clock_pb2 import (
    LOOK_AFTER,
    LOOK_BEFORE,
    LOOK_NEVER,
    AgentDone,
    AgentReady,
    Begin,
    Grant,
    JoinRequest,
    JoinResponse,
    SourcesDone,
)

LARGEST_WINDOW = 256
"""Decisions; sources announce at least so many of their next emissions."""
FLUSH_EVERY = 256
"""Decisions between two flushes, in which providers send results and say that they are there."""
FLUSHES_OPEN = 2
"""So many flushes a provider may lag behind before the agent has to wait."""

Order = tuple[str, JoinResponse]
"""Whom to tell, and what."""


class ProtocolError(Exception):
    """A participant said what it may not say."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name} {what}")
        self.name = name


@dataclass(frozen=True)
class Seats:
    """Who takes part, in the order of the scenario."""

    sources: tuple[str, ...]
    fogs: tuple[str, ...]
    cloud: str

    @property
    def all(self) -> tuple[str, ...]:
        """Every participant."""
        return (*self.sources, AGENT, *self.fogs, self.cloud)

    def role_of(self, name: str) -> str | None:
        """Return the role that a participant's identity must have."""
        roles = dict.fromkeys(self.sources, SOURCES) | dict.fromkeys(self.fogs, PROVIDER)
        return (roles | {AGENT: AGENT, self.cloud: CLOUD}).get(name)


class _Source:
    """What the clock knows of one sources process."""

    def __init__(self) -> None:
        self.next: list[float] = []
        self.complete = False
        self.busy = True
        """It has not yet said what comes next."""


@dataclass
class _Window:
    instants: list[float]
    expect: list[int]
    """Workloads of each sources process up to the last instant."""


class Windows:
    """One run: episodes, and their windows."""

    def __init__(self, seats: Seats, draws: Sequence[int] | None, first_draw: int = 1) -> None:
        self.seats = seats
        self._draws = draws
        """Of each episode; None counts them up until the agent has enough."""
        self._first_draw = first_draw
        self.episode = -1
        self.decisions = 0
        """In all episodes together."""
        self.time = 0.0
        self.finished = False
        """The last episode is over."""

    # --- what may be told ------------------------------------------------------------------------

    def begin(self) -> list[Order]:
        """Begin the next episode, once everybody is there."""
        self.episode += 1
        self.time = 0.0
        self._enough = False
        self._ready: AgentReady | None = None
        self._missing = set(self.seats.all)
        self._sources = {name: _Source() for name in self.seats.sources}
        self._instants: deque[tuple[float, str]] = deque()
        self._published = dict.fromkeys(self.seats.sources, 0)
        self._placed = [0] * len(self.seats.fogs)
        self._window: _Window | None = None
        """The window that the agent is deciding."""
        self._opened = 0
        self._flushed_at = 0
        self._flushes = 0
        self._open_flushes = dict.fromkeys((*self.seats.fogs, self.seats.cloud), 0)
        self._held = False
        self._ending = False
        draws = self._draws
        draw = self._first_draw + self.episode if draws is None else draws[self.episode]
        begin = JoinResponse(begin=Begin(episode=self.episode, draw=draw))
        return [(name, begin) for name in self.seats.all]

    @property
    def placed(self) -> list[int]:
        """Workloads placed on each Fog provider in this episode."""
        return list(self._placed)

    def take(self, name: str, message: JoinRequest) -> list[Order]:
        """Take what a participant says and return what follows from it."""
        kind = message.WhichOneof("kind")
        if self.episode < 0:
            raise ProtocolError(name, f"said {kind} before everybody was there")
        if kind == "sources_done" and name in self._sources:
            return self._sources_done(name, message.sources_done)
        if kind == "agent_ready" and name == AGENT and self._ready is None:
            self._check(message.agent_ready)
            self._ready = message.agent_ready
            return self._arrived(name)
        if kind == "agent_done" and name == AGENT:
            return self._agent_done(message.agent_done)
        if name in self._open_flushes:
            if kind == "provider_ready" and name in self._missing:
                return self._arrived(name)
            if kind == "provider_done" and self._open_flushes[name]:
                self._open_flushes[name] -= 1
                return self._go_on_after_flush()
        raise ProtocolError(name, f"said {kind} out of turn")

    # --- the beginning ---------------------------------------------------------------------------

    def _check(self, ready: AgentReady) -> None:
        if ready.look not in (LOOK_NEVER, LOOK_BEFORE, LOOK_AFTER):
            raise ProtocolError(AGENT, "does not say when it looks")
        largest = 1 if ready.look == LOOK_BEFORE else LARGEST_WINDOW
        if not 0 < ready.first_window <= largest or not 0 < ready.window <= largest:
            raise ProtocolError(AGENT, f"asks for windows that are not of 1 to {largest} decisions")

    def _arrived(self, name: str) -> list[Order]:
        self._missing.discard(name)
        if self._missing:
            return []
        assert self._ready is not None
        self._limit = self._ready.first_window
        return [*self._grant_sources(), *self._next_window()]

    # --- sources run ahead: they wait for nobody -------------------------------------------------

    def _sources_done(self, name: str, done: SourcesDone) -> list[Order]:
        source = self._sources[name]
        if not source.busy:
            raise ProtocolError(name, "said sources_done out of turn")
        source.busy = False
        source.next, source.complete = list(done.next), done.complete
        if not done.complete and len(source.next) < LARGEST_WINDOW:
            raise ProtocolError(name, "announces too few workloads")
        if not all(isfinite(time) and time >= 0 for time in source.next):
            raise ProtocolError(name, "announces workloads at no time at all")
        if source.next != sorted(source.next):
            raise ProtocolError(name, "announces workloads out of order")
        if name in self._missing:
            return self._arrived(name)
        if self._ending:
            return self._perhaps_over()
        orders = self._grant_sources()
        return orders if self._window else [*orders, *self._next_window()]

    def _grant_sources(self) -> list[Order]:
        """Let sources publish up to the last instant at which no unannounced one can come."""
        sources = self._sources.values()
        if any(source.busy for source in sources) or len(self._instants) >= LARGEST_WINDOW:
            return []
        until = min((s.next[-1] for s in sources if not s.complete), default=inf)
        orders: list[Order] = []
        fresh: list[tuple[float, str]] = []
        for name, source in self._sources.items():
            due = list(takewhile(lambda time: time <= until, source.next))
            if not due:
                continue
            fresh += ((time, name) for time in due)
            del source.next[: len(due)]
            source.busy = True
            orders.append((name, _grant(until=due[-1])))
        self._instants.extend(sorted(fresh))
        return orders

    @property
    def _all_known(self) -> bool:
        return all(s.complete and not s.next and not s.busy for s in self._sources.values())

    # --- windows ---------------------------------------------------------------------------------

    def _next_window(self) -> list[Order]:
        """Open the next window, or end the episode, or wait for what is missing to do so."""
        assert self._ready is not None
        if len(self._instants) < self._limit and not self._all_known:
            return []  # waits for sources
        if max(self._open_flushes.values()) > FLUSHES_OPEN:
            self._held = True
            return []
        if not self._instants:
            return self._end()
        taken = [self._instants.popleft() for _ in range(min(self._limit, len(self._instants)))]
        self._limit = self._ready.window
        for _, name in taken:
            self._published[name] += 1
        until = taken[-1][0]
        instants = [time for time, _ in taken]
        # Which of the workloads of one instant come first is told by their ids, which the clock
        # does not know: so the agent must have all of them.
        expect = self._published.copy()
        for _, name in takewhile(lambda known: known[0] == until, self._instants):
            expect[name] += 1
        self._window = _Window(instants, list(expect.values()))
        self._opened += len(taken)
        self.time = until
        orders = self._grant_sources()
        if self._ready.look == LOOK_BEFORE:
            orders += self._grant_providers(until, instants)
        grant = _grant(until=until, observe_at=instants, expect=self._window.expect)
        orders.append((AGENT, grant))
        return orders

    def _agent_done(self, done: AgentDone) -> list[Order]:
        if self._ending:
            if AGENT not in self._missing:
                raise ProtocolError(AGENT, "said agent_done out of turn")
            self._missing.discard(AGENT)
            self._enough = done.enough
            return self._perhaps_over()
        window = self._window
        if window is None:
            raise ProtocolError(AGENT, "said agent_done out of turn")
        if len(done.placed) != len(self._placed) or sum(done.placed) != len(window.instants):
            raise ProtocolError(AGENT, "placed another number of workloads than it was granted")
        self._window = None
        self.decisions += len(window.instants)
        self._placed = [a + b for a, b in zip(self._placed, done.placed, strict=True)]
        assert self._ready is not None
        orders: list[Order] = []
        if self._ready.look == LOOK_AFTER:
            orders += self._grant_providers(window.instants[-1], window.instants)
        elif self._ready.look == LOOK_NEVER and self._flush_due:
            orders += self._grant_providers(window.instants[-1], [])
        return orders + self._next_window()

    @property
    def _flush_due(self) -> bool:
        return self._opened - self._flushed_at >= FLUSH_EVERY

    def _grant_providers(
        self, until: float, instants: list[float], *, last: bool = False
    ) -> list[Order]:
        assert self._ready is not None
        flush = last or self._flush_due
        forward = flush or (self._ready.cloud and bool(instants))
        orders: list[Order] = []
        for name, placed in zip(self.seats.fogs, self._placed, strict=True):
            grant = _grant(until, instants, [placed], forward=forward, flush=flush, last=last)
            orders.append((name, grant))
        if forward:
            seen = instants if self._ready.cloud else []
            cloud = _grant(until, seen, forward=True, flush=flush, last=last)
            orders.append((self.seats.cloud, cloud))
        if flush:
            self._flushed_at = self._opened
            self._flushes += 1
            for name in self._open_flushes:
                self._open_flushes[name] += 1
        return orders

    def _go_on_after_flush(self) -> list[Order]:
        if self._ending:
            return self._perhaps_over()
        if self._held and max(self._open_flushes.values()) <= FLUSHES_OPEN:
            self._held = False
            return self._next_window()
        return []

    # --- the end ---------------------------------------------------------------------------------

    def _end(self) -> list[Order]:
        """Let the system drain: everybody finishes what it has."""
        self._ending = True
        orders = self._grant_providers(inf, [], last=True)
        for name in self.seats.sources:
            self._sources[name].busy = True
            orders.append((name, _grant(until=inf, expect=[self._flushes], last=True)))
        self._missing.add(AGENT)
        orders.append((AGENT, _grant(until=inf, last=True)))
        return orders

    def _perhaps_over(self) -> list[Order]:
        busy = any(source.busy for source in self._sources.values())
        if busy or self._missing or any(self._open_flushes.values()):
            return []
        last = self._enough if self._draws is None else self.episode + 1 == len(self._draws)
        if last:
            self.finished = True
            return []
        return self.begin()


def _grant(
    until: float,
    observe_at: Sequence[float] = (),
    expect: Sequence[int] = (),
    *,
    forward: bool = False,
    flush: bool = False,
    last: bool = False,
) -> JoinResponse:
    return JoinResponse(
        grant=Grant(
            until=until,
            observe_at=observe_at,
            expect=expect,
            forward=forward,
            flush=flush,
            last=last,
        )
    )
