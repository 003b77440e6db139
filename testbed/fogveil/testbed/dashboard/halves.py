"""The two halves of the page as data: what the agent knows, and what only the experimenter does.

`AgentHalf` is given the public facts, the agent's own decisions and what it was shown, and nothing
else: no secret can get into what it returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fogveil.agent.policy import AgentView
from fogveil.testbed.dashboard.beliefs import Beliefs
from fogveil.testbed.dashboard.run_source import RunSource, Seen
from fogveil.testbed.dashboard.timeline import Timeline
from fogveil.testbed.privacy.leakage.scoring import guess_prior, score, true_service

MOST_IN_LINE = 60
"""Jobs of a line that are drawn."""
MOST_IN_TRANSIT = 200
POINTS = 200
"""Points of a line over time."""


class AgentHalf:
    """The agent's world."""

    def __init__(self, view: AgentView) -> None:
        self._view = view
        self.beliefs = Beliefs(view)

    def at(self, timeline: Timeline, seen: Sequence[Seen], now: float) -> dict[str, Any]:
        """Return what the agent knows at a time."""
        decided = timeline.decided(now)
        nodes = len(self._view.nodes)
        shown = seen[decided - 1] if 0 < decided <= len(seen) else None
        counts = list(shown) if shown and len(shown) > 1 else None
        total = None
        if shown:
            total = sum(max(each, 0) for each in shown)
        placed = np.bincount(timeline.number("node")[:decided], minlength=nodes)
        beliefs = [each.service.mean(axis=1) for each in self.beliefs.at(decided)]
        last = None
        if decided:
            last = {
                name: int(timeline.number(name)[decided - 1])
                for name in ("job", "cluster", "category", "node")
            }
        return {
            "decisions": decided,
            "counts": counts,
            "total": total,
            "placed": placed.tolist(),
            "last": last,
            "transit": timeline.transit(now, MOST_IN_TRANSIT),
            "belief": None
            if not beliefs
            else {
                "service": [_short(value) for value in beliefs[-1]],
                "least": [_short(value) for value in np.min(beliefs, axis=0)],
                "most": [_short(value) for value in np.max(beliefs, axis=0)],
            },
        }


def _short(value: float) -> float:
    """Round to three digits: a belief is not known better, and a secret is not shown by one."""
    return float(f"{value:.3g}")


class PrivateHalf:
    """The providers' world."""

    def __init__(self, source: RunSource) -> None:
        self._source = source
        self._truth = true_service(source.world)
        self._guess = score(guess_prior(source.world), self._truth).error
        self._errors: dict[int, float] = {}
        """How wrong the agent's beliefs were after so many decisions."""

    def facts(self) -> dict[str, Any]:
        """Return what does not change: the true speeds."""
        world = self._source.world
        return {
            "ipt": [config.ipt for config in world.fogs],
            "service": self._truth.mean(axis=1).tolist(),
            "guess": self._guess,
        }

    def at(self, beliefs: Beliefs, now: float) -> dict[str, Any]:
        """Return what the providers hold at a time, and how near the agent's beliefs come."""
        source, world = self._source, self._source.world
        timeline, nodes = source.timeline, len(world.nodes)
        servers = world.scenario.fog.servers
        mean, returned = timeline.returned_mean(now)
        decided = timeline.decided(now)
        times, errors = self._errors_of(beliefs, decided)
        lines = timeline.lines(now, nodes, servers, MOST_IN_LINE)
        return {
            "lines": [line.line for line in lines],
            "serving": [line.serving for line in lines],
            "held": timeline.in_system(now, nodes),
            "utilisation": [round(x, 4) for x in timeline.utilisation(now, nodes, servers)],
            "fog_loop": mean,
            "returned": returned,
            "unserved": decided - returned,
            "history": timeline.history(now, world.scenario.horizon, POINTS),
            "error": errors[-1] if errors else None,
            "errors": {"time": times, "error": errors},
            "marks": source.marks,
            "summary": source.result
            and {
                key: source.result["summary"][key] for key in ("workloads", "fog_loop", "unserved")
            },
            "run_hash": source.result and source.result["run_hash"],
        }

    def _errors_of(self, beliefs: Beliefs, decided: int) -> tuple[list[float], list[float]]:
        """Return when the agent inferred something up to a decision, and how wrong it was."""
        emitted = self._source.timeline.time("emitted")
        times, errors = [], []
        for belief in beliefs.until(decided):
            size = belief.decisions
            if size not in self._errors:
                self._errors[size] = score(belief.service, self._truth).error
            times.append(float(emitted[size - 1]))
            errors.append(self._errors[size])
        return times, errors
