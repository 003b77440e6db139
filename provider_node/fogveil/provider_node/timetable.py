"""What changes at a provider over simulated time: its speed, the work of jobs, its way, crashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import NamedTuple

from fogveil.core.steps import Steps


@dataclass(frozen=True, slots=True)
class Change:
    """What a provider is told of one instant of its future; what is None stays as it is."""

    at: float
    ipt: float | None = None
    """Its speed, for jobs that it starts from then on."""
    instructions: tuple[float, ...] | None = None
    """The work of each category, for jobs that arrive from then on."""
    cloud_latency: tuple[float, ...] | None = None
    """From here to the Cloud, per category, for what is sent from then on."""
    back: float | None = None
    """It crashes, and is back at this instant."""
    notice: float | None = None
    """A crash loses all jobs; this long after it their clusters emit them again."""


class Effect(Enum):
    """What a change means for the jobs at a node."""

    REPRICE = "their service times may differ"
    STOP = "nothing is served; what was in service waits again"
    LOSE = "nothing is served, and all jobs are lost"
    RESUME = "jobs are served again"


class NodeChange(NamedTuple):
    """The effect of a change on a node; of one instant, after finishes and before arrivals."""

    at: float
    effect: Effect
    back: float = inf
    """Of a stop: when the node resumes."""
    again: float = inf
    """Of a loss: when the jobs are emitted again."""


class Timetable:
    """A provider's properties as functions of simulated time."""

    def __init__(
        self,
        ipt: float,
        instructions: tuple[float, ...],
        cloud_latency: tuple[float, ...],
        changes: Sequence[Change],
    ) -> None:
        self.ipt = Steps(ipt, [(c.at, c.ipt) for c in changes if c.ipt is not None])
        self.instructions = Steps(
            instructions, [(c.at, c.instructions) for c in changes if c.instructions is not None]
        )
        self.cloud_latency = Steps(
            cloud_latency,
            [(c.at, c.cloud_latency) for c in changes if c.cloud_latency is not None],
        )
        self.node_changes = tuple(_node_changes(changes))
        """In order of time."""
        self.stops = tuple(
            each for each in self.node_changes if each.effect in (Effect.STOP, Effect.LOSE)
        )

    def expected(self, category: int, arrival: float, start: float) -> float:
        """Return the mean service time of a job by when it arrives and starts."""
        return self.instructions.at(arrival)[category] / self.ipt.at(start)


def _node_changes(changes: Sequence[Change]) -> list[NodeChange]:
    effects: list[NodeChange] = []
    for change in changes:
        if change.ipt is not None or change.instructions is not None:
            effects.append(NodeChange(change.at, Effect.REPRICE))
        if change.back is not None:
            if change.notice is None:
                effects.append(NodeChange(change.at, Effect.STOP, change.back))
            else:
                again = change.at + change.notice
                effects.append(NodeChange(change.at, Effect.LOSE, change.back, again))
            effects.append(NodeChange(change.back, Effect.RESUME))
    return sorted(effects, key=lambda each: each.at)  # stable: of one instant in their order
