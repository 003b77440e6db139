"""The clock's protocol as a state machine: who may advance how far in simulated time.

It takes the participants' messages and returns orders, without transport. Of a run it knows the
decision instants and how many workloads went where, and nothing that depends on a provider's
secret. One window of decisions goes like this:

    sources      granted first, run ahead, and announce their next emissions
    providers    granted before the agent where the policy looks at counts before it decides
                 (LOOK_BEFORE, lockstep), after it where it does not (LOOK_AFTER, pipelined)
    agent        granted with the number of workloads to expect; it waits for the counts itself,
                 which providers push to it
    the Cloud    granted with the Fog providers in windows whose aggregates are forwarded

Windows end before an instant at which Fog providers come or go; what happens at it is in `passage`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import takewhile
from math import inf, isfinite, nextafter

from fogveil.clock.passage import Passage, Waiting
from fogveil.clock.state import Demand, ProtocolError, Source, Standing, Window, grant
from fogveil.core.membership import Membership, MembershipChange
from fogveil.protocol.identity import AGENT
from fogveil.protocol.limits import LARGEST_WINDOW
from fogveil.protocol.roster import Roster
from fogveil.v1.clock_pb2 import (
    LOOK_AFTER,
    LOOK_BEFORE,
    LOOK_NEVER,
    AgentDone,
    AgentReady,
    Begin,
    JoinRequest,
    JoinResponse,
    Members,
    SourcesDone,
)

FLUSH_EVERY = 256
"""Decisions between two flushes, in which providers send results and confirm their progress."""
MOST_OPEN_FLUSHES = 2
"""Flushes that a provider may lag behind before the agent has to wait."""

Order = tuple[str, JoinResponse]
"""A receiver and its message."""


class Windows:
    """The state of one run: its episodes, and the windows of each."""

    def __init__(
        self,
        roster: Roster,
        draws: Sequence[int] | None,
        first_draw: int = 1,
        members: Sequence[MembershipChange] = (),
        *,
        tells_providers: bool = False,
    ) -> None:
        """Begin before the first episode.

        `members` is when Fog providers come and go; `tells_providers` says whether providers have
        to know of each other's coming and going, as they do where they add up to a total.
        """
        self.roster = roster
        self._tells_providers = tells_providers
        self._member_changes = members
        crashing = {change.node for change in members if change.crash}
        self._marked: set[int] = set()
        """Fog providers whose counts the agent does not read any more."""
        self._orders_kept = {roster.fogs[node] for node in crashing}
        """Who will need its orders again when it is back from a crash."""
        self.down: set[str] = set()
        """Who has crashed and is not back; nobody between episodes."""
        self._epoch = 0
        """How often others than before have added up to a total."""
        self._adding_up = tuple(range(len(roster.fogs)))
        self._demands: list[Demand] = []
        self._crashing: set[str] = set()
        """Whose process is being ended."""
        self._draws = draws
        """The draw of each episode; None counts them up until the agent wants no more."""
        self._first_draw = first_draw
        self.episode = -1
        self.decisions = 0
        """In all episodes together."""
        self.time = 0.0
        self.finished = False
        """The last episode is over."""
        self.largest = LARGEST_WINDOW
        """Decisions of a window at most; larger ones are cut."""

    # --- messages in, orders out -----------------------------------------------------------------

    def begin(self) -> list[Order]:
        """Begin the next episode, once everybody has joined."""
        self.episode += 1
        self.time = 0.0
        self._agent_finished = False
        self._ready: AgentReady | None = None
        self._not_ready = set(self.roster.all)
        self._sources = {name: Source() for name in self.roster.sources}
        self._known_until = -inf
        """All workloads up to here have been announced."""
        self._instants: deque[tuple[float, str]] = deque()
        self._published = dict.fromkeys(self.roster.sources, 0)
        self._placed = [0] * len(self.roster.fogs)
        self._window: Window | None = None
        """The window that the agent is deciding."""
        self._opened = 0
        self._flushed_at = 0
        self._flushes = dict.fromkeys((*self.roster.fogs, self.roster.cloud), 0)
        """By provider."""
        self._forwards = [0] * len(self.roster.fogs)
        """Windows that each Fog provider was to forward to the Cloud."""
        self._open_flushes = dict.fromkeys((*self.roster.fogs, self.roster.cloud), 0)
        self.members = Membership(len(self.roster.fogs), self._member_changes)
        self._passage: Passage | None = None
        """How providers come and go at the present instant."""
        self._kept: dict[str, list[JoinResponse]] = {name: [] for name in self._orders_kept}
        self._agent_busy = False
        """The agent has not answered to the members that it was told."""
        self._agent_waits = False
        self._ending = False
        draws = self._draws
        draw = self._first_draw + self.episode if draws is None else draws[self.episode]
        self._renew_epoch()
        self._begin = Begin(episode=self.episode, draw=draw)
        told = Begin(episode=self.episode, draw=draw, epoch=self._epoch)
        return [
            (name, JoinResponse(begin=told if name in self._open_flushes else self._begin))
            for name in self.roster.all
        ]

    def standing(self) -> Standing:
        """Return what to resume from in order to begin the present episode once more."""
        return Standing(
            self.episode - 1, self.decisions, self._epoch, tuple(self._adding_up), self.largest
        )

    def resume(self, standing: Standing) -> None:
        """Stand where a clock stood before it began an episode."""
        self.episode, self.decisions, self._epoch, adding_up, self.largest = standing
        self._adding_up = tuple(adding_up)

    @property
    def placed(self) -> list[int]:
        """Workloads placed on each Fog provider in this episode."""
        return list(self._placed)

    def handle(self, name: str, message: JoinRequest) -> list[Order]:
        """Handle a participant's message; return the orders that follow from it."""
        kind = message.WhichOneof("kind")
        if self.episode < 0:
            raise ProtocolError(name, f"sent {kind} before everybody had joined")
        if kind == "sources_done" and name in self._sources:
            return self._sources_done(name, message.sources_done)
        if kind == "agent_ready" and name == AGENT and self._ready is None:
            self._check(message.agent_ready)
            self._ready = message.agent_ready
            self._marked = set(self._ready.marked)
            return self._is_ready(name)
        if kind == "agent_done" and name == AGENT:
            return self._agent_done(message.agent_done)
        if name in self._open_flushes and name not in self.down:
            if kind == "provider_ready" and name in self._not_ready:
                return self._is_ready(name)
            if kind == "provider_done" and self._open_flushes[name]:
                self._open_flushes[name] -= 1
                return self._continue_after_flush()
        raise ProtocolError(name, f"sent {kind} out of turn")

    # --- the beginning of an episode -------------------------------------------------------------

    def _check(self, ready: AgentReady) -> None:
        if ready.look not in (LOOK_NEVER, LOOK_BEFORE, LOOK_AFTER):
            raise ProtocolError(AGENT, "does not declare when it looks at counts")
        largest = 1 if ready.look == LOOK_BEFORE else LARGEST_WINDOW
        if not 0 < ready.first_window <= largest or not 0 < ready.window <= largest:
            raise ProtocolError(AGENT, f"asks for windows other than 1 to {largest} decisions")

    def _is_ready(self, name: str) -> list[Order]:
        self._not_ready.discard(name)
        if self._passage:
            return self._go_on()
        if self._not_ready:
            return []
        assert self._ready is not None
        self._limit = self._ready.first_window
        return [*self._grant_sources(), *self._next_window()]

    # --- sources: they run ahead and wait for nobody ---------------------------------------------

    def _sources_done(self, name: str, done: SourcesDone) -> list[Order]:
        source = self._sources[name]
        if not source.busy:
            raise ProtocolError(name, "sent sources_done out of turn")
        source.busy = False
        source.next, source.complete = list(done.next), done.complete
        if not done.complete and len(source.next) < LARGEST_WINDOW:
            raise ProtocolError(name, "announces too few workloads")
        if not all(isfinite(time) and time >= 0 for time in source.next):
            raise ProtocolError(name, "announces workloads at invalid times")
        if source.next != sorted(source.next):
            raise ProtocolError(name, "announces workloads out of order")
        if source.next and source.next[0] <= self._known_until:
            raise ProtocolError(name, "announces workloads for a time that has passed")
        if name in self._not_ready:
            return self._is_ready(name)
        if self._ending:
            return self._end_if_drained()
        if self._passage:
            return self._go_on()
        orders = self._grant_sources()
        return orders if self._window else [*orders, *self._next_window()]

    def _grant_sources(self) -> list[Order]:
        """Let sources publish up to the last instant before which all emissions are announced."""
        sources = self._sources.values()
        if any(source.busy for source in sources) or len(self._instants) >= LARGEST_WINDOW:
            return []
        until = min((s.next[-1] for s in sources if not s.complete), default=inf)
        until = min(until, self._before_retries)
        self._known_until = until
        orders: list[Order] = []
        fresh: list[tuple[float, str]] = []
        for name, source in self._sources.items():
            due = list(takewhile(lambda time: time <= until, source.next))
            if not due:
                continue
            fresh += ((time, name) for time in due)
            del source.next[: len(due)]
            source.busy = True
            orders.append((name, grant(until=due[-1])))
        self._instants.extend(sorted(fresh))
        return orders

    @property
    def _before_retries(self) -> float:
        """The last instant before which no crash that is to come can add emissions."""
        upcoming = self.members.upcoming
        again = [c.at + c.notice for c in upcoming if c.notice is not None]
        return nextafter(min(again), -inf) if again else inf

    @property
    def _all_announced(self) -> bool:
        return all(s.complete and not s.next and not s.busy for s in self._sources.values())

    # --- windows ---------------------------------------------------------------------------------

    def _next_window(self) -> list[Order]:
        """Open the next window or end the episode; no orders if something is still missing."""
        assert self._ready is not None
        change = self.members.next_change
        known = len(self._instants)
        if change < inf:
            known = sum(1 for _ in takewhile(lambda each: each[0] < change, self._instants))
        complete = self._all_announced or (change < inf and change <= self._known_until)
        if known < self._limit and not complete:
            return []  # until sources announce more
        if max(self._open_flushes.values()) > MOST_OPEN_FLUSHES:
            self._agent_waits = True
            return []
        if not known:
            return self._pass_change() if change < inf else self._end()
        size = min(self._limit, self.largest, known)
        taken = [self._instants.popleft() for _ in range(size)]
        # What is cut off is a window of its own: windows end where they ended before.
        self._limit = self._limit - size or self._ready.window
        for _, name in taken:
            self._published[name] += 1
        until = taken[-1][0]
        instants = [time for time, _ in taken]
        # Workloads of one instant are ordered by job id, which the clock does not know: so the
        # agent must have all of them.
        expect = self._published.copy()
        for _, name in takewhile(lambda emission: emission[0] == until, self._instants):
            expect[name] += 1
        self._window = Window(instants, list(expect.values()))
        self._opened += len(taken)
        self.time = until
        orders = self._grant_sources()
        if self._ready.look == LOOK_BEFORE:
            orders += self._grant_providers(until, instants)
        order = grant(until=until, observe_at=instants, expect=self._window.expect)
        orders.append((AGENT, order))
        return orders

    # --- providers that come and go --------------------------------------------------------------

    def _pass_change(self) -> list[Order]:
        at = self.members.next_change
        changes = [change for change in self.members.upcoming if change.at == at]
        self._passage = Passage(self._steps(at, changes))
        return self._go_on()

    def _steps(self, at: float, changes: Sequence[MembershipChange]) -> Iterator[Waiting]:
        """Yield, step by step, the orders of an instant and what has to be awaited after them."""
        fogs = self.roster.fogs
        crashed = [fogs[change.node] for change in changes if change.crash]
        back = [fogs[c.node] for c in changes if c.tells and fogs[c.node] in self.down]
        self.time = at
        if crashed:  # all that it has sent must have arrived
            yield Waiting([], lambda: not any(each.busy for each in self._sources.values()))
            yield Waiting(
                self._grant_providers(at, [], flush=True),
                lambda: not any(self._open_flushes.values()),
            )
            yield Waiting(
                self._recheck_sources(at),
                lambda: not any(each.busy for each in self._sources.values()),
            )
        if back:
            self._demands += [Demand("restart", name) for name in back]
            self._not_ready.update(back)
            yield Waiting([], lambda: not self._not_ready)
        self.members.advance(at)
        renewed = self._renew_epoch()
        self._agent_busy = True
        members = Members(
            time=at,
            available=self.members.taking,
            telling=self.members.telling,
            back=[fogs.index(name) for name in back],
        )
        tell = JoinResponse(members=members)
        yield Waiting(
            [(AGENT, tell)],
            lambda: not self._agent_busy and not any(self._open_flushes.values()),
        )
        if crashed:
            self._crashing.update(crashed)
            self._demands += [Demand("crash", name) for name in crashed]
            yield Waiting([], lambda: self.down.issuperset(crashed))
        if renewed:
            adding_up = Members(time=at, telling=self._adding_up, epoch=self._epoch)
            order = JoinResponse(members=adding_up)
            present = [name for name in (*fogs, self.roster.cloud) if name not in self.down]
            yield Waiting([(name, order) for name in present], lambda: True)

    def _renew_epoch(self) -> bool:
        """Begin an epoch if others add up to the total than before; return whether one began."""
        before, self._adding_up = self._adding_up, self.members.telling
        renewed = self._tells_providers and self._adding_up != before
        self._epoch += renewed
        return renewed

    def _go_on(self) -> list[Order]:
        """Take the steps of the present instant that are due; then open the next window."""
        assert self._passage is not None
        orders = self._passage.advance()
        if not self._passage.over:
            return orders
        self._passage = None
        return [*orders, *self._grant_sources(), *self._next_window()]

    def demands(self) -> list[Demand]:
        """Return what the launcher has to do since the last call."""
        demands, self._demands = self._demands, []
        return demands

    def forget_demands(self) -> None:
        """Demand again only what the launcher has not done: the clock that asked for it is gone."""
        waiting = [name for name in self.down if name in self._not_ready]
        crashing = [Demand("crash", name) for name in sorted(self._crashing)]
        self._demands = [*crashing, *(Demand("restart", name) for name in sorted(waiting))]

    def awaits(self, name: str) -> bool:
        """Return whether somebody is expected back from a crash."""
        return name in self.down and name in self._not_ready

    def left(self, name: str) -> list[Order] | None:
        """Return the orders that follow from the crash of a provider; None for one unexpected."""
        if name not in self._crashing:
            return None
        self._crashing.discard(name)
        self.down.add(name)
        return self._go_on() if self._passage else []

    def rejoined(self, name: str) -> list[Order]:
        """Return what a provider is told that is back from a crash: all that it was told before."""
        self.down.discard(name)
        kept = self._kept[name]
        self._open_flushes[name] = sum(order.grant.flush for order in kept)
        begin = Begin(repeated_orders=len(kept), epoch=self._epoch)
        begin.MergeFrom(self._begin)
        return [(name, JoinResponse(begin=begin)), *((name, order) for order in kept)]

    def _recheck_sources(self, at: float) -> list[Order]:
        """Let sources wait for all results until now, and announce anew what they will emit."""
        orders: list[Order] = []
        for name, source in self._sources.items():
            source.busy = True
            orders.append((name, grant(until=at, expect=self._expected_flushes, flush=True)))
        return orders

    @property
    def _expected_flushes(self) -> list[int]:
        flushes = list(self._flushes.values())
        return flushes[:1] if len(set(flushes)) == 1 else flushes

    def _agent_done(self, done: AgentDone) -> list[Order]:
        if self._agent_busy and not done.placed:
            self._agent_busy = False
            return self._go_on()
        if self._ending:
            if AGENT not in self._not_ready:
                raise ProtocolError(AGENT, "sent agent_done out of turn")
            self._not_ready.discard(AGENT)
            self._agent_finished = done.enough
            return self._end_if_drained()
        window = self._window
        if window is None:
            raise ProtocolError(AGENT, "sent agent_done out of turn")
        if len(done.placed) != len(self._placed) or sum(done.placed) != len(window.instants):
            raise ProtocolError(AGENT, "did not place as many workloads as it was granted")
        self._marked.update(done.marked)
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
        self, until: float, instants: list[float], *, flush: bool = False, last: bool = False
    ) -> list[Order]:
        assert self._ready is not None
        flush = flush or last or self._flush_due
        forward = flush or (self._ready.cloud and bool(instants))
        orders: list[Order] = []
        for number, name in enumerate(self.roster.fogs):
            unread = number in self._marked
            if name in self.down or (unread and not forward):
                continue
            seen = [] if unread or number in self.members.silent else instants
            placed = self._placed[number]
            order = grant(until, seen, [placed], forward=forward, flush=flush, last=last)
            orders.append((name, order))
            self._forwards[number] += forward
            if name in self._kept:
                self._kept[name].append(order)
        if forward:
            seen = instants if self._ready.cloud else []
            expect = self._forwards if self._member_changes else ()
            cloud = grant(until, seen, expect, forward=True, flush=flush, last=last)
            orders.append((self.roster.cloud, cloud))
        if flush:
            self._flushed_at = self._opened
            for name in self._flushes.keys() - self.down:
                self._flushes[name] += 1
                self._open_flushes[name] += 1
        return orders

    def _continue_after_flush(self) -> list[Order]:
        if self._passage:
            return self._go_on()
        if self._ending:
            return self._end_if_drained()
        if self._agent_waits and max(self._open_flushes.values()) <= MOST_OPEN_FLUSHES:
            self._agent_waits = False
            return self._next_window()
        return []

    # --- the end of an episode -------------------------------------------------------------------

    def _end(self) -> list[Order]:
        """Let the system drain: everybody finishes its work."""
        self._ending = True
        orders = self._grant_providers(inf, [], last=True)
        for name in self.roster.sources:
            self._sources[name].busy = True
            expect = self._expected_flushes
            orders.append((name, grant(until=inf, expect=expect, last=True)))
        self._not_ready.add(AGENT)
        orders.append((AGENT, grant(until=inf, last=True)))
        return orders

    def _end_if_drained(self) -> list[Order]:
        busy = any(source.busy for source in self._sources.values())
        if busy or self._not_ready or any(self._open_flushes.values()):
            return []
        last = self._agent_finished if self._draws is None else self.episode + 1 == len(self._draws)
        if last:
            self.finished = True
            return []
        return self.begin()
