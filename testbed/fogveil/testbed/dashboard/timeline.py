"""A run as a table of jobs that grows, and its state at any simulated time that is known."""

from __future__ import annotations

from math import inf, nan
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

COLUMNS = ("emitted", "arrived", "started", "finished", "returned")
CLOUD_COLUMNS = ("cloud_arrived", "cloud_started", "cloud_finished")
NUMBERS = ("job", "cluster", "category", "node")


class Mark(NamedTuple):
    """Something that happens in a run, or will."""

    time: float
    text: str


class AtNode(NamedTuple):
    """What a node holds at an instant."""

    line: list[int]
    """Categories of the jobs there in the order of their arrival."""
    serving: int
    """How many of them are in service; they stand first."""


class Timeline:
    """The jobs of a run in the order of their decisions."""

    def __init__(self) -> None:
        self.size = 0
        self.front = 0.0
        """Everything up to here is known."""
        self._numbers: dict[str, Ints] = {name: np.zeros(1024, np.int64) for name in NUMBERS}
        self._times: dict[str, Floats] = {
            name: np.full(1024, nan) for name in (*COLUMNS, *CLOUD_COLUMNS)
        }
        self._place: dict[int, int] = {}
        """Where each job stands."""

    # --- filling ---------------------------------------------------------------------------------

    def add(
        self, job: int, cluster: int, category: int, node: int, emitted: float, arrived: float
    ) -> None:
        """Add a decision."""
        if self.size == len(self._numbers["job"]):
            self._numbers = {k: np.resize(v, 2 * self.size) for k, v in self._numbers.items()}
            for name, column in self._times.items():
                grown = np.full(2 * self.size, nan)
                grown[: self.size] = column
                self._times[name] = grown
        values = (job, cluster, category, node)
        for name, value in zip(NUMBERS, values, strict=True):
            self._numbers[name][self.size] = value
        self._times["emitted"][self.size] = emitted
        self._times["arrived"][self.size] = arrived
        self._place[job] = self.size
        self.size += 1

    def served(self, job: int, started: float, finished: float, down: float) -> None:
        """Add when a Fog provider served a job; `down` is the latency of its result."""
        if (place := self._place.get(job)) is not None:
            self._times["started"][place] = started
            self._times["finished"][place] = finished
            self._times["returned"][place] = finished + down

    def cluster_and_category(self, job: int) -> tuple[int, int] | None:
        """Return where a job comes from, and its application."""
        if (place := self._place.get(job)) is None:
            return None
        return int(self._numbers["cluster"][place]), int(self._numbers["category"][place])

    def node_of(self, job: int) -> int:
        """Return where a job was placed."""
        return int(self._numbers["node"][self._place[job]])

    def fill(self, columns: dict[str, Any]) -> None:
        """Take a whole run at once."""
        self.size = len(columns["job"])
        self._numbers = {name: np.asarray(columns[name], np.int64) for name in NUMBERS}
        self._times = {
            name: np.asarray(columns[name], np.float64) for name in (*COLUMNS, *CLOUD_COLUMNS)
        }
        self._place = {}
        ends = [np.nanmax(each, initial=0.0) for each in self._times.values() if self.size]
        self.front = float(max(ends, default=0.0))

    # --- reading ---------------------------------------------------------------------------------

    def number(self, name: str) -> Ints:
        """Return a column of numbers."""
        return self._numbers[name][: self.size]

    def time(self, name: str) -> Floats:
        """Return a column of times; NaN is not known, or did not happen."""
        return self._times[name][: self.size]

    def decided(self, now: float) -> int:
        """Return how many decisions were taken up to a time."""
        return int(np.searchsorted(self.time("emitted"), now, "right"))

    def lines(self, now: float, nodes: int, servers: int, most: int) -> list[AtNode]:
        """Return what each Fog node holds at a time, at most so many jobs each."""
        known = self.decided(now)
        arrived, finished = self.time("arrived")[:known], self.time("finished")[:known]
        there = np.flatnonzero((arrived <= now) & ~(finished <= now))
        there = there[np.argsort(arrived[there], kind="stable")]
        node = self.number("node")[there]
        category = self.number("category")[there]
        started = self.time("started")[there]
        # Of a job in service its provider has no record yet: the first in line are those.
        lines = []
        for number in range(nodes):
            mine = node == number
            begun = int((started[mine] <= now).sum())
            waiting = int(mine.sum())
            if np.isnan(started[mine]).any():
                begun = min(waiting, servers)
            order = np.argsort(~(started[mine] <= now), kind="stable")
            lines.append(AtNode(category[mine][order][:most].tolist(), begun))
        return lines

    def in_system(self, now: float, nodes: int) -> list[int]:
        """Return how many jobs each Fog node holds at a time."""
        known = self.decided(now)
        there = (self.time("arrived")[:known] <= now) & ~(self.time("finished")[:known] <= now)
        held: list[int] = np.bincount(self.number("node")[:known][there], minlength=nodes).tolist()
        return held

    def utilisation(self, now: float, nodes: int, servers: int) -> list[float]:
        """Return the share of the time so far that each node's servers were busy."""
        if now <= 0:
            return [0.0] * nodes
        started, finished = self.time("started"), self.time("finished")
        known = started <= now
        busy = np.minimum(finished[known], now) - started[known]
        sums = np.bincount(self.number("node")[known], busy, nodes)
        shares: list[float] = (sums / now / servers).tolist()
        return shares

    def transit(self, now: float, most: int) -> list[tuple[int, int, int, float]]:
        """Return jobs on their way to a node: cluster, node, category, share of the way."""
        known = self.decided(now)
        emitted, arrived = self.time("emitted")[:known], self.time("arrived")[:known]
        moving = np.flatnonzero((arrived > now) & (arrived > emitted))[-most:]
        share = (now - emitted[moving]) / (arrived[moving] - emitted[moving])
        columns = (self.number(name)[moving].tolist() for name in ("cluster", "node", "category"))
        return list(zip(*columns, share.round(3).tolist(), strict=True))

    def returned_mean(self, now: float) -> tuple[float | None, int]:
        """Return the mean Fog loop of the jobs that are back by now, and how many they are."""
        returned = self.time("returned")
        back = returned <= now
        if not back.any():
            return None, 0
        loops = returned[back] - self.time("emitted")[back]
        return float(loops.mean()), int(back.sum())

    def history(self, now: float, horizon: float, points: int) -> dict[str, list[float | None]]:
        """Return delays and jobs in the system over simulated time, in bins of equal length."""
        edges = np.linspace(0.0, max(horizon, self.front, 1e-9), points + 1)
        edges = edges[: max(2, int(np.searchsorted(edges, now, "right")) + 1)]
        emitted, returned = self.time("emitted"), self.time("returned")
        back = returned <= now
        loop = (returned - emitted)[back]
        place = np.clip(np.digitize(emitted[back], edges) - 1, 0, len(edges) - 2)
        counts = np.bincount(place, minlength=len(edges) - 1)
        sums = np.bincount(place, loop, len(edges) - 1)
        at = np.minimum(edges[1:], now)
        done = np.sort(np.where(np.isnan(returned), inf, returned))
        waiting = np.searchsorted(emitted, at, "right") - np.searchsorted(done, at, "right")
        means = [None if not n else float(s / n) for s, n in zip(sums, counts, strict=True)]
        return {"time": at.tolist(), "delay": means, "unserved": waiting.tolist()}
