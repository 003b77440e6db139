"""The node: a line of jobs and the servers behind it, without clock or transport of its own."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from heapq import heappop, heappush
from math import inf

from fogveil.provider_node.discipline import Discipline, FirstComeFirstServed, Waiting

Served = tuple[int, int, float, float, float]
"""A finished job: (job, category, arrived, started, finished)."""

ServiceTime = Callable[[int, int], float]
"""The time that (job, category) takes on this node."""


class Node:
    """Serves the jobs it accepted; `advance` moves it through simulated time.

    What it does depends on the jobs alone, not on how finely time is cut into calls of
    `advance`. At one instant the order is finish, arrival, start; equal ones by job id.

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
    ) -> None:
        self._service_time = service_time
        self._servers = servers
        self._underway: list[Waiting] = []
        self._line: Discipline = discipline()
        self._in_service: list[tuple[float, int, int, float, float]] = []
        self._waiting_work = 0.0
        self.next_event = inf
        """When the node will change by itself; infinity when it is idle and nothing comes."""

    def accept(self, job: int, category: int, arrival: float) -> None:
        """Take a job that will arrive at the given time."""
        heappush(self._underway, (arrival, job, category, self._service_time(job, category)))
        self.next_event = min(self.next_event, arrival)

    def advance(self, until: float) -> list[Served]:
        """Process every event up to and including `until`; return the jobs that finished."""
        underway, line, in_service = self._underway, self._line, self._in_service
        served: list[Served] = []
        while True:
            now = in_service[0][0] if in_service else inf
            if underway and underway[0][0] < now:
                now = underway[0][0]
            if now > until or now == inf:
                self.next_event = now
                return served
            while in_service and in_service[0][0] == now:
                finished, job, category, arrived, started = heappop(in_service)
                served.append((job, category, arrived, started, finished))
            while underway and underway[0][0] == now:
                arriving = heappop(underway)
                self._waiting_work += arriving[3]
                line.push(arriving)
            while len(in_service) < self._servers and line:
                arrived, job, category, service = line.pop()
                # Sums of floats drift; an empty line puts the running total right again.
                self._waiting_work = self._waiting_work - service if line else 0.0
                heappush(in_service, (now + service, job, category, arrived, now))

    def __copy__(self) -> Node:
        """Return a node with the same jobs, which goes through time by itself."""
        twin = Node(self._service_time, self._servers)
        twin._underway, twin._in_service = self._underway[:], self._in_service[:]
        twin._line, twin._waiting_work = copy(self._line), self._waiting_work
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
