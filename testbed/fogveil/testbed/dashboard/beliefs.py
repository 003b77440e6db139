"""What a curious agent believes of the nodes' speeds as a run goes on: the leakage meter, live.

It is computed from what the agent was shown and its own placements, and from nothing else. Nobody
waits for it: it runs in a thread of the lowest priority, and lags behind a run on a busy machine.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from threading import Thread, get_native_id
from typing import NamedTuple

from fogveil.agent.inference.estimator import infer
from fogveil.agent.inference.transcript import Floats, Transcript
from fogveil.agent.policy import AgentView
from fogveil.agent.visibility import Disclosed, Visibility
from fogveil.core.disclosure import Level
from fogveil.testbed.dashboard.run_source import Seen
from fogveil.testbed.dashboard.timeline import Timeline

FIRST, GROWTH, MOST = 20, 1.3, 4000
"""Decisions after which the agent infers: the first time, each time so many times later, the last
time."""
LOWEST_PRIORITY = 19
REMEMBERED = 4
"""Beliefs whose range shows how sharp the last one is."""
COLUMNS = ("job", "cluster", "category", "node")


class Belief(NamedTuple):
    """What is believed after some decisions."""

    decisions: int
    service: Floats
    """Service times, [node, category]."""


class Beliefs:
    """The beliefs of an agent that follows one run."""

    def __init__(self, view: AgentView) -> None:
        self._view = view
        self._next = FIRST
        self._kept: list[Belief] = []
        self._thread: Thread | None = None

    def until(self, decisions: int) -> list[Belief]:
        """Return all beliefs up to a number of decisions, the newest last."""
        kept = self._kept
        return kept[: bisect_right([each.decisions for each in kept], decisions)]

    def at(self, decisions: int) -> list[Belief]:
        """Return the last beliefs up to a number of decisions, the newest last."""
        return self.until(decisions)[-REMEMBERED:]

    def advance(self, timeline: Timeline, seen: Sequence[Seen]) -> None:
        """Begin the next inference, if the run is far enough and none is under way."""
        size = min(timeline.size, len(seen))
        busy = self._thread is not None and self._thread.is_alive()
        if busy or size < self._next or self._next > MOST or seen[0] is None:
            return
        # The decisions are copied here: the run goes on meanwhile.
        transcript = self._transcript(timeline, seen, self._next)
        level = Level.TOTAL if len(seen[0]) == 1 else Level.COUNT
        self._next = int(self._next * GROWTH) + 1
        self._thread = Thread(target=self._infer, args=(level, transcript), daemon=True)
        self._thread.start()

    def _transcript(self, timeline: Timeline, seen: Sequence[Seen], size: int) -> Transcript:
        jobs = zip(*(timeline.number(name)[:size].tolist() for name in COLUMNS), strict=True)
        times = timeline.time("emitted")[:size].tolist()
        counts, totals = Visibility(Level.COUNT), Visibility(Level.TOTAL)
        nodes, taken = len(self._view.nodes), []
        for at, (job, cluster, category, node), shown in zip(times, jobs, seen, strict=False):
            assert shown is not None
            emission = at, job, cluster, category
            if len(shown) == 1:
                observation = totals.observation(emission, *Disclosed(total=shown[0]))
            else:
                observation = counts.observation(emission, shown[:nodes])
            taken.append((observation, node))
        return Transcript(self._view, tuple(taken))

    def _infer(self, level: Level, transcript: Transcript) -> None:
        os.setpriority(os.PRIO_PROCESS, get_native_id(), LOWEST_PRIORITY)
        size = len(transcript)
        estimate = infer(level, transcript, [size])[size]
        self._kept = [*self._kept, Belief(size, estimate.service)]
