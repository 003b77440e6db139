"""A provider: its node, its private configuration, and what follows a finished job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fogveil.core.disclosure import CountKind, Level
from fogveil.core.randomness import JobFactor, KeyedErlang, KeyedPareto, KeyedUniform, always_one
from fogveil.provider_node.discipline import DISCIPLINES, FIFO
from fogveil.provider_node.node import Node, Served
from fogveil.provider_node.timetable import Change, Timetable

Aggregate = tuple[int, int, float]
"""What goes on to the Cloud: (job, category, arrival there)."""


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """All that one provider is given: its own secrets, and the applications it serves."""

    name: str
    ipt: float
    ram: float
    servers: int
    discipline: str
    disclosure: Level
    count: CountKind
    categories: tuple[str, ...]
    instructions: tuple[float, ...]
    """Per category."""
    service_shape: int
    """Erlang shape of the service factor; 0 is deterministic, if the next is 0 as well."""
    service_tail: float
    """Pareto shape of the service factor; 0 is none."""
    demands_vary: bool
    """Whether a job brings its own demand, as a factor of its category's instructions."""
    forwards: float
    """Share of the finished jobs that goes on to the Cloud (none at the Cloud itself)."""
    cloud_latency: tuple[float, ...]
    """From here to the Cloud, per category (empty at the Cloud itself)."""
    feeds_back: float
    """Share of the finished jobs whose result goes back to their cluster."""
    seed: int
    """The environment's seed."""
    changes: tuple[Change, ...] = ()
    """What will change here, in order of time."""

    @property
    def is_cloud(self) -> bool:
        """Whether this is the Cloud, which has no way to itself."""
        return not self.cloud_latency

    @property
    def sizes_are_public(self) -> bool:
        """Whether the sizes of this provider's messages can follow from public facts alone.

        A Fog provider must know a job's finish when the job arrives, so that what follows from the
        job can be sent then. The Cloud sends everything at the end.
        """
        return self.is_cloud or self.discipline == FIFO


class Provider:
    """One provider, fog or cloud, without transport: it serves jobs and tells its count.

    Where demands vary, a job's must stand in `demands` when the job is accepted, not before.
    """

    def __init__(
        self, config: ProviderConfig, demands: Mapping[int, float] | Sequence[float] = ()
    ) -> None:
        self.config = config
        self.expected = tuple(work / config.ipt for work in config.instructions)
        """Mean service time per category."""
        self.timetable = Timetable(
            config.ipt, config.instructions, config.cloud_latency, config.changes
        )
        self._factor = _service_factor(config, demands)
        self._forward_chance = KeyedUniform(config.seed, "to the cloud")
        self._feedback_chance = KeyedUniform(config.seed, "cloud feedback")
        self.reset()

    def reset(self) -> None:
        """Begin an episode with an empty node."""
        config = self.config
        discipline, changes = DISCIPLINES[config.discipline], self.timetable.node_changes
        timed = self.timed_service if changes else None
        self.node = Node(self.service_time, config.servers, discipline, changes, timed)
        self.accept = self.node.accept
        self.advance = self.node.advance

    def service_time(self, job: int, category: int) -> float:
        """Return how long this job takes here, before any change."""
        return self._factor(job) * self.expected[category]

    def timed_service(self, job: int, category: int, arrival: float, start: float) -> float:
        """Return how long this job takes here if it arrives and starts at these instants."""
        if not self.timetable.node_changes:
            return self.service_time(job, category)
        return self._factor(job) * self.timetable.expected(category, arrival, start)

    def expected_at(self, now: float) -> tuple[float, ...]:
        """Return the mean service time per category of a job that arrives and starts now."""
        if not self.timetable.node_changes:
            return self.expected
        ipt = self.timetable.ipt.at(now)
        return tuple(work / ipt for work in self.timetable.instructions.at(now))

    @property
    def count(self) -> int:
        """The one integer that may cross the boundary: jobs that wait, or are in the system."""
        if self.config.count is CountKind.WAITING:
            return self.node.waiting
        return self.node.in_system

    def aggregates(self, served: Iterable[Served]) -> list[Aggregate]:
        """Return what the finished jobs send on to the Cloud."""
        share, chance = self.config.forwards, self._forward_chance
        ways = self.timetable.cloud_latency
        constant = ways.constant
        return [
            (job, category, finished + (constant or ways.at(finished))[category])
            for job, category, _, _, finished in served
            if chance(job) < share
        ]

    def is_fed_back(self, job: int) -> bool:
        """Return whether the result of this job goes back to its cluster."""
        return self._feedback_chance(job) < self.config.feeds_back

    def passes_on(self, job: int) -> bool:
        """Return whether a finished job goes on: to the Cloud, or from the Cloud to its cluster."""
        if self.config.is_cloud:
            return self.is_fed_back(job)
        return self._forward_chance(job) < self.config.forwards


def _service_factor(
    config: ProviderConfig, demands: Mapping[int, float] | Sequence[float]
) -> JobFactor:
    if config.demands_vary:
        return demands.__getitem__
    if config.service_tail:
        return KeyedPareto(config.seed, "service factor", config.service_tail)
    if config.service_shape == 0:
        return always_one
    return KeyedErlang(config.seed, "service factor", config.service_shape)
