"""The node: a line of jobs and the servers behind it, without clock or transport of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from copy import copy
from heapq import heapify, heappop, heappush
from math import inf

from fogveil.provider_node.discipline import Discipline, FirstComeFirstServed, Waiting
from fogveil.provider_node.timetable import Effect, NodeChange

Served = tuple[int, int, float, float, float]
"""A finished job: (job, category, arrived, started, finished)."""

ServiceTime = Callable[[int, int], float]
"""The time that (job, category) takes on this node."""
TimedService = Callable[[int, int, float, float], float]
"""The same where it changes, for (job, category, arrival, start)."""
Lost = tuple[int, int, float, float]
"""A job that a crash has lost: (job, category, arrival, when it is emitted again)."""


class Node:
    """Serves the jobs it accepted; `advance` moves it through simulated time.

    What it does depends on the jobs alone, not on how finely time is cut into calls of
    `advance`. At one instant the order is finish, change, arrival, start; equal ones by job id.

    >>> node = Node(lambda job, category: 4.0)
    >>> node.accept(job=1, category=0, arrival=1.0)
    >>> node.accept(job=2, category=0, arrival=2.0)
    >>> node.advance(until=3.0), node.waiting, node.in_system
    ([], 1, 2)
    >>> node.advance(until=9.0)
    [(1, 0, 1.0, 1.0, 5.0), (2, 0, 2.0, 5.0, 9.0)]
    """

    def __init__(
        self,
        service_time: ServiceTime,
        servers: int = 1,
        discipline: Callable[[], Discipline] = FirstComeFirstServed,
        changes: Iterable[NodeChange] = (),
        timed_service: TimedService | None = None,
    ) -> None:
        """Begin empty. Where there are changes, service times come from `timed_service`."""
        self._service_time = service_time
        self._timed_service = timed_service
        self._servers = self._open = servers
        self._underway: list[Waiting] = []
        self._discipline = discipline
        self._line: Discipline = discipline()
        self._in_service: list[tuple[float, int, int, float, float]] = []
        self._waiting_work = 0.0
        self._changes = deque(changes)
        self._change_at = self._changes[0].at if self._changes else inf
        self._priced_at = 0.0
        """Service times of jobs that have not started are those of a start at this instant."""
        self.lost: list[Lost] = []
        """Jobs that crashes have lost."""
        self.next_event = self._change_at
        """When the node will change by itself; infinity when it is idle and nothing comes."""

    def accept(self, job: int, category: int, arrival: float) -> None:
        """Take a job that will arrive at the given time."""
        heappush(self._underway, (arrival, job, category, self._service(job, category, arrival)))
        self.next_event = min(self.next_event, arrival)

    def _service(self, job: int, category: int, arrival: float) -> float:
        if self._timed_service is None:
            return self._service_time(job, category)
        return self._timed_service(job, category, arrival, self._priced_at)

    def advance(self, until: float) -> list[Served]:
        """Process every event up to and including `until`; return the jobs that finished."""
        underway, line, in_service = self._underway, self._line, self._in_service
        served: list[Served] = []
        change_at = self._change_at
        while True:
            now = change_at
            if in_service and in_service[0][0] < now:
                now = in_service[0][0]
            if underway and underway[0][0] < now:
                now = underway[0][0]
            if now > until or now == inf:
                self.next_event = now
                return served
            while in_service and in_service[0][0] == now:
                finished, job, category, arrived, started = heappop(in_service)
                served.append((job, category, arrived, started, finished))
            if now == change_at:
                self._change(now)
                change_at = self._change_at
                underway, line, in_service = self._underway, self._line, self._in_service
            while underway and underway[0][0] == now:
                arriving = heappop(underway)
                self._waiting_work += arriving[3]
                line.push(arriving)
            while len(in_service) < self._open and line:
                arrived, job, category, service = line.pop()
                # Sums of floats drift; an empty line puts the running total right again.
                self._waiting_work = self._waiting_work - service if line else 0.0
                heappush(in_service, (now + service, job, category, arrived, now))

    def _change(self, now: float) -> None:
        while self._changes and self._changes[0].at == now:
            change = self._changes.popleft()
            if change.effect is Effect.REPRICE:
                self._priced_at = now
            elif change.effect is Effect.RESUME:
                self._open = self._servers
            else:
                self._stop(change)
        self._change_at = self._changes[0].at if self._changes else inf
        self._price()

    def _stop(self, change: NodeChange) -> None:
        """End all service: what was in service waits again, or all that is here is lost."""
        self._open = 0
        here = [(arrived, job, category, 0.0) for _, job, category, arrived, _ in self._in_service]
        here = sorted([*here, *self._line])
        self._in_service, self._line = [], self._discipline()
        if change.effect is Effect.LOSE:
            here += sorted(job for job in self._underway if job[0] < change.back)
            self._underway = [job for job in self._underway if job[0] >= change.back]
            self.lost += [(job, category, at, change.again) for at, job, category, _ in here]
            here = []
        for job in here:
            self._line.push(job)

    def _price(self) -> None:
        """Compute the service times of all that has not started anew."""
        self._underway = [self._priced(job) for job in self._underway]
        heapify(self._underway)
        waiting = sorted(self._priced(job) for job in self._line)
        self._line = self._discipline()
        for job in waiting:
            self._line.push(job)
        self._waiting_work = sum(job[3] for job in waiting)

    def _priced(self, waiting: Waiting) -> Waiting:
        arrival, job, category, _ = waiting
        return arrival, job, category, self._service(job, category, arrival)

    def take_lost(self) -> list[Lost]:
        """Return the jobs that crashes have lost since the last call."""
        lost, self.lost = self.lost, []
        return lost

    def __copy__(self) -> Node:
        """Return a node with the same jobs, which goes through time by itself."""
        twin = Node(
            self._service_time, self._servers, self._discipline, self._changes, self._timed_service
        )
        twin._underway, twin._in_service = self._underway[:], self._in_service[:]
        twin._line, twin._waiting_work = copy(self._line), self._waiting_work
        twin._open, twin._priced_at = self._open, self._priced_at
        twin.next_event = self.next_event
        return twin

    @property
    def waiting(self) -> int:
        """Jobs that have arrived and not started."""
        return len(self._line)

    @property
    def in_system(self) -> int:
        """Jobs that have arrived and not finished."""
        return len(self._line) + len(self._in_service)

    def backlog(self, now: float) -> float:
        """Time until the jobs that have arrived are done, were their work shared evenly."""
        serving = sum(job[0] - now for job in self._in_service)
        return (self._waiting_work + serving) / self._servers
