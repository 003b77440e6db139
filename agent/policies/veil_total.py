"""From the total alone: probe, infer the nodes' speeds, then place as one who knows them."""

from __future__ import annotations

from bisect import insort

from agent.inference.inferring import infer
from agent.inference.probing import Bursts
from agent.inference.transcript import Transcript
from agent.policy import Level, Observation, Policy

LOOKS_PER_NODE = 20
"""Decisions per node before the speeds are inferred; fewer explain the totals in several ways."""
BURST = 4
"""Jobs at most that go to one node in a row: longer lines tell more, and take longer to serve."""
ATTEMPTS = 4
"""If what was seen is not explained, half as many decisions more; at last the best guess serves."""


class VeilTotal(Policy):
    """Learn from the totals how fast each node is; from then on place where a job is back first.

    It sees the total, public latencies and its own placements, and knows that a node is a FIFO with
    one server. Who knows how fast the nodes are and what it sent them needs no count: it knows
    their lines.
    """

    needs = Level.TOTAL

    def reset(self) -> None:
        """Begin with no knowledge of any node."""
        self._held: list[tuple[Observation, int]] = []
        """What was seen and done until the speeds are known."""
        self._bursts = Bursts(self.view, BURST)
        self._attempts = 0
        self._look_at = LOOKS_PER_NODE * len(self.view.nodes)
        self._lines: list[_Line] = []
        """One for each node, once there is a guess of their speeds."""
        self._known = False

    def place(self, seen: Observation) -> int:
        """Return the node whose turn it is, or from which this job is expected back first."""
        if not self._known and len(self._held) == self._look_at:
            self._infer()
        up = self.view.up[seen.cluster][seen.category]
        if self._known:
            node = self._soonest_back(seen)
        else:
            node = self._bursts.next(lambda: self._soonest_free(seen.time))
            self._held.append((seen, node))
        if self._lines:
            self._lines[node].send(seen.time + up[node], seen.job, seen.category)
        return node

    def _soonest_back(self, seen: Observation) -> int:
        ways = zip(
            self._lines,
            self.view.up[seen.cluster][seen.category],
            self.view.down[seen.cluster][seen.category],
            strict=True,
        )
        back = [
            line.finish(seen.time, seen.time + there, seen.category) + home
            for line, there, home in ways
        ]
        return back.index(min(back))

    def _soonest_free(self, now: float) -> int | None:
        """Return where a burst finds the shortest line, as far as can be guessed."""
        free = [line.free(now) for line in self._lines]
        return free.index(min(free)) if free else None

    def _infer(self) -> None:
        transcript = Transcript(self.view, tuple(self._held))
        found = infer(Level.TOTAL, transcript, [len(transcript)])[len(transcript)]
        self._attempts += 1
        self._known = found.explained or self._attempts == ATTEMPTS
        self._look_at += self._look_at // 2
        self._lines = [_Line(times) for times in found.service.tolist()]
        for seen, node in self._held:
            arrival = seen.time + self.view.up[seen.cluster][seen.category][node]
            self._lines[node].send(arrival, seen.job, seen.category)


class _Line:
    """What stands at a node, by what was sent there."""

    def __init__(self, service: list[float]) -> None:
        self._service = service
        self._free = 0.0
        """When it has served all that had arrived."""
        self._underway: list[tuple[float, int, int]] = []

    def send(self, arrival: float, job: int, category: int) -> None:
        """Note a job that will arrive."""
        insort(self._underway, (arrival, job, category))

    def free(self, now: float) -> float:
        """Return when all is served that has arrived by now."""
        underway = self._underway
        # Whatever is sent from now on arrives later: the order of what has arrived is certain.
        while underway and underway[0][0] <= now:
            came, _, kind = underway.pop(0)
            self._free = max(self._free, came) + self._service[kind]
        return self._free

    def finish(self, now: float, arrival: float, category: int) -> float:
        """Return when a job would be served that arrives then."""
        free = self.free(now)
        for came, _, kind in self._underway:
            if came > arrival:
                break
            free = max(free, came) + self._service[kind]
        return max(free, arrival) + self._service[category]
