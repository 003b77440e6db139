"""What a page shows now: the runs, the simulated time at which it looks, and its controls."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from fogveil.clock.pace import PaceOrder
from fogveil.core.errors import InputError
from fogveil.testbed.dashboard.halves import AgentHalf, PrivateHalf
from fogveil.testbed.dashboard.messages import messages_before
from fogveil.testbed.dashboard.network import network
from fogveil.testbed.dashboard.run_source import RunSource
from fogveil.testbed.dashboard.timeline import Mark
from fogveil.testbed.dashboard.training_source import TrainingSource

WATCHED_FOR = 60.0
"""Seconds that a run takes at the speed at which a page begins."""
INFERRED_EVERY = 1.0
"""Seconds between two inferences beside a run; a recorded one has nobody to disturb."""
MESSAGES = 13
"""Messages of the boundary that are shown."""
FASTEST = 1e9
"""Simulated time per second that a page may ask for."""
FASTEST_INFERRED = 200.0
"""Decisions per second up to which what the agent infers is followed: no eye follows it beyond."""


class ShownRun:
    """One run with its two halves."""

    def __init__(self, folder: Path) -> None:
        self.source = RunSource(folder)
        self.agent = AgentHalf(self.source.world.agent)
        self.private = PrivateHalf(self.source)

    @property
    def failed(self) -> bool:
        """Whether it ended before it was complete."""
        return not self.source.complete and not self.source.running

    def facts(self) -> dict[str, Any]:
        """Return what is public of the run and does not change."""
        source, world = self.source, self.source.world
        return {
            "scenario": world.scenario.name,
            "policy": source.label,
            "level": world.agent.disclosed.word,
            "count": world.scenario.count.value,
            "horizon": world.scenario.horizon,
            "nodes": world.nodes,
            "cloud": world.cloud,
            "clusters": world.clusters,
            "categories": world.categories,
        }


class Session:
    """One page: it looks at its runs at one simulated time, and may pace the clock."""

    def __init__(
        self, folders: list[Path], pace: Callable[[PaceOrder], None] | None = None
    ) -> None:
        trainings = [folder for folder in folders if TrainingSource.is_training(folder)]
        self.trainings = [TrainingSource(folder) for folder in trainings]
        self.runs = [ShownRun(folder) for folder in folders if folder not in trainings]
        self._check_alike()
        self._pace = pace
        self.held = pace is not None or self.complete
        self.opened = False
        self.horizon = max((r.source.world.scenario.horizon for r in self.runs), default=1.0)
        self.speed: float | None = self.horizon / WATCHED_FOR
        self.cursor = 0.0
        self._lock = Lock()
        """Held while the runs are read, or a state is made of them: each in a thread."""
        self._looked = time.monotonic()
        self._inferred = 0.0
        self._progress = (time.monotonic(), 0)
        self.rate = 0.0
        """Decisions per second of the wall clock."""

    def _check_alike(self) -> None:
        """Refuse runs that cannot be synchronised: those with other workloads."""
        for run in self.runs[1:]:
            first, world = self.runs[0].source.world, run.source.world
            same = all(
                getattr(first, name) == getattr(world, name)
                for name in ("nodes", "clusters", "categories", "sources")
            )
            if not same:
                raise InputError(
                    f"{run.source.folder}: has other workloads than {self.runs[0].source.folder}; "
                    "side by side stand runs of one scenario with one seed"
                )

    @property
    def complete(self) -> bool:
        """Whether all runs are over."""
        return all(run.source.complete for run in self.runs)

    @property
    def live(self) -> bool:
        """Whether the page shows the present of a run."""
        return not self.complete

    @property
    def failed(self) -> bool:
        """Whether a run ended before it was complete."""
        return any(run.failed for run in self.runs)

    @property
    def front(self) -> float:
        """The simulated time up to which all runs are known."""
        return min((run.source.timeline.front for run in self.runs), default=0.0)

    # --- controls --------------------------------------------------------------------------------

    def open(self) -> None:
        """Let a run begin that waits for its page."""
        if not self.opened:
            self.opened = True
            self._looked = time.monotonic()
            if self._pace and self.live:
                self.control({"held": False})

    def control(self, wish: dict[str, Any]) -> None:
        """Follow a wish of the page: hold or go on, another speed, a step, another time."""
        if "held" in wish:
            self.held = bool(wish["held"])
        if "speed" in wish:
            speed = wish["speed"]
            self.speed = None if speed is None else min(max(float(speed), 1e-6), FASTEST)
        if "time" in wish and self.complete:
            self.cursor = min(max(float(wish["time"]), 0.0), self.front)
        step = bool(wish.get("step"))
        if step:
            self.held = True
        if self.live:
            if self._pace:
                self._pace(PaceOrder(self.speed, self.held, int(step)))
        elif step:
            self._step()

    def _step(self) -> None:
        """Move to the next decision of any run."""
        later = []
        for run in self.runs:
            emitted = run.source.timeline.time("emitted")
            place = int(np.searchsorted(emitted, self.cursor, "right"))
            later += [float(emitted[place])] if place < len(emitted) else []
        self.cursor = min(later, default=self.front)

    # --- time ------------------------------------------------------------------------------------

    def look(self) -> None:
        """Read what is new, and move with the time."""
        with self._lock:
            self._look()

    def _look(self) -> None:
        now = time.monotonic()
        elapsed, self._looked = now - self._looked, now
        was_live = self.live
        for run in self.runs:
            run.source.update()
        for training in self.trainings:
            training.update()
        if self.live or was_live:
            self.cursor = self.front
            self.held = self.held or not self.live
        elif not self.held:
            self.cursor = min(self.front, self.cursor + elapsed * (self.speed or self.horizon))
            self.held = self.cursor >= self.front
        if not self.live or now - self._inferred > INFERRED_EVERY:
            self._inferred = now
            self._measure_rate(now)
            if self.rate < FASTEST_INFERRED:
                for run in self.runs:
                    run.agent.beliefs.advance(run.source.timeline, run.source.seen)

    def _measure_rate(self, now: float) -> None:
        decisions = sum(run.source.timeline.size for run in self.runs)
        before, earlier = self._progress
        self._progress = now, decisions
        self.rate = (decisions - earlier) / max(now - before, 1e-9) if self.live else 0.0

    # --- what is shown ---------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """Return the public facts: runs and network."""
        return {
            "runs": [run.facts() for run in self.runs],
            "network": network(self.runs[0].source.world) if self.runs else None,
            "paced": self._pace is not None,
            "trainings": [training.name for training in self.trainings],
        }

    def status(self) -> dict[str, Any]:
        """Return where the page is."""
        return {
            "time": self.cursor,
            "front": self.front,
            "held": self.held,
            "speed": self.speed,
            "live": self.live,
            "failed": self.failed,
            "rate": self.rate,
        }

    def agent_half(self) -> dict[str, Any]:
        """Return what the agents know, and the messages that crossed."""
        with self._lock:
            return self._agent_half()

    def _agent_half(self) -> dict[str, Any]:
        runs = []
        for run in self.runs:
            source = run.source
            half = run.agent.at(source.timeline, source.seen, self.cursor)
            nodes = source.world.nodes
            half["messages"] = messages_before(source.recorded, nodes, self.cursor, MESSAGES)
            runs.append(half)
        return {**self.status(), "runs": runs}

    def private_half(self) -> dict[str, Any]:
        """Return what only the experimenter knows."""
        with self._lock:
            return {
                **self.status(),
                "runs": [self._private_state(run) for run in self.runs],
                "trainings": [training.state() for training in self.trainings],
            }

    def _private_state(self, run: ShownRun) -> dict[str, Any]:
        state = run.private.at(run.agent.beliefs, self.cursor)
        if run.failed:
            state["marks"] = [*state["marks"], Mark(run.source.timeline.front, "the run failed")]
        return state
