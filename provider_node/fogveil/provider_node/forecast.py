"""When jobs will finish that are served in order of arrival: known as soon as they have arrived."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush, heapreplace

from fogveil.provider_node.node import Lost, Served, TimedService
from fogveil.provider_node.timetable import Effect, NodeChange


class FinishForecast:
    """Foretells what a `Node` will do that serves first come, first served.

    A job's finish follows from the jobs that arrived before it and from what the provider is told
    of its own future, so it is known, to the last bit, at the end of the window in which the job
    arrives.

    >>> forecast = FinishForecast(lambda job, category, arrival, start: 4.0)
    >>> forecast.accept(job=1, category=0, arrival=1.0)
    >>> forecast.accept(job=2, category=0, arrival=2.0)
    >>> forecast.advance(until=3.0)
    [(1, 0, 1.0, 1.0, 5.0), (2, 0, 2.0, 5.0, 9.0)]
    """

    def __init__(
        self, service: TimedService, servers: int = 1, stops: Sequence[NodeChange] = ()
    ) -> None:
        self._service = service
        self._stops = stops
        self._underway: list[tuple[float, int, int]] = []
        self._free_at = [0.0] * servers
        """A heap of the times at which each server has done all that has arrived."""
        self.lost: list[Lost] = []
        """Jobs that have arrived, or will, and that a crash will lose."""

    def accept(self, job: int, category: int, arrival: float) -> None:
        """Take a job that will arrive at the given time."""
        heappush(self._underway, (arrival, job, category))

    def advance(self, until: float) -> list[Served]:
        """Return the jobs that arrive up to and including `until`, in that order.

        A job whose finish is infinite, as no real one's is, will never be served; one that a crash
        will lose is among the lost instead.
        """
        underway, free_at = self._underway, self._free_at
        arrived: list[Served] = []
        while underway and underway[0][0] <= until:
            arrival, job, category = heappop(underway)
            started = max(arrival, free_at[0])
            finished = started + self._service(job, category, arrival, started)
            for stop in self._stops:
                loses = stop.effect is Effect.LOSE
                if finished <= stop.at or (arrival if loses else started) >= stop.back:
                    continue
                if loses:
                    self.lost.append((job, category, arrival, stop.again))
                    heapreplace(free_at, stop.back)
                    break
                started = stop.back
                finished = started + self._service(job, category, arrival, started)
            else:
                heapreplace(free_at, finished)
                arrived.append((job, category, arrival, started, finished))
        return arrived

    def take_lost(self) -> list[Lost]:
        """Return the jobs found lost since the last call."""
        lost, self.lost = self.lost, []
        return lost
