"""The contract of a policy: the public facts, what it observes at a decision, what it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, ClassVar, NamedTuple

from fogveil.core.disclosure import CountKind, Level

__all__ = ["AgentView", "CountKind", "Level", "Load", "Observation", "Policy"]

PerNode = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class AgentView:
    """The public facts of a scenario: all that the agent receives before a run.

    Nodes, clusters and categories are numbered in the order of their names here. Latencies are
    indexed as `table[cluster][category][node]`, paths as `table[cluster][node]`.
    """

    nodes: tuple[str, ...]
    """The Fog nodes: the actions. The Cloud is never one."""
    cloud: str
    clusters: tuple[str, ...]
    categories: tuple[str, ...]
    count: CountKind
    disclosed: Level
    """What every provider of the run discloses."""
    up: tuple[tuple[PerNode, ...], ...]
    """Latency of a workload from its cluster to a node."""
    down: tuple[tuple[PerNode, ...], ...]
    """Latency of the feedback from a node to the cluster."""
    hops: tuple[tuple[int, ...], ...]
    """Links on the path from a cluster to a node."""
    bandwidth: tuple[PerNode, ...]
    """The narrowest link on the path from a cluster to a node."""
    seed: int
    """The policy's seed, derived one-way from the scenario's."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The scenario's settings for policies, by policy family."""


@dataclass(frozen=True, slots=True)
class LatencyChange:
    """The latencies and paths from an instant on, where links change or clusters move."""

    at: float
    up: tuple[tuple[PerNode, ...], ...]
    down: tuple[tuple[PerNode, ...], ...]
    hops: tuple[tuple[int, ...], ...]
    bandwidth: tuple[PerNode, ...]

    def applied_to(self, view: AgentView) -> AgentView:
        """Return a view with these latencies."""
        return replace(view, up=self.up, down=self.down, hops=self.hops, bandwidth=self.bandwidth)


class Load(NamedTuple):
    """What level `full` adds: the providers' resources and load, and this job's service times.

    A node that has crashed or is gone tells nothing: its speed is 0, its times are infinite.
    """

    ipt: PerNode
    ram: PerNode
    expected: tuple[PerNode, ...]
    """Mean service time, as `expected[category][node]`."""
    backlog: PerNode
    """Time until a node has served the jobs that arrived there."""
    service: PerNode
    """Service time of this very job at each node, its service factor included."""

    def hiding(self, silent: Collection[int]) -> Load:
        """Return the same without what some nodes do not tell."""

        def told(values: PerNode, else_: float) -> PerNode:
            return tuple(else_ if node in silent else each for node, each in enumerate(values))

        return Load(
            told(self.ipt, 0.0),
            told(self.ram, 0.0),
            tuple(told(row, inf) for row in self.expected),
            told(self.backlog, inf),
            told(self.service, inf),
        )


class Observation(NamedTuple):
    """One decision to take: a workload, and of the nodes what the policy's level permits."""

    time: float
    job: int
    cluster: int
    category: int
    counts: tuple[int, ...] | None = None
    """Queued jobs per Fog node, -1 where a node tells none: it has crashed or is gone. None below
    level `count`."""
    cloud_count: int | None = None
    """Queued jobs at the Cloud, for a policy of level `count` that watches it."""
    total: int | None = None
    """Queued jobs at all nodes, the Cloud included, for a policy of level `total`."""
    load: Load | None = None
    """None below level `full`."""
    available: tuple[int, ...] | None = None
    """The numbers of the nodes that take jobs; None where all do. A job for another node ends the
    run."""
    attempt: int = 1
    """2 and more: the job was lost in a crash, and its cluster emits it again."""

    def without_disclosure(self) -> Observation:
        """Return the same decision without anything that the providers disclosed."""
        return Observation(*self[:4], None, None, None, None, self.available, self.attempt)


class Policy(ABC):
    """Chooses a Fog node for each workload.

    Write your own as a subclass in any file and run it with `--policy my_policy.py:MyPolicy`.
    """

    needs: ClassVar[Level] = Level.NONE
    """The disclosure level it needs; its observations hold this much and no more."""
    watches_cloud: ClassVar[bool] = False
    """Whether the observations of a policy of level `count` hold the Cloud's count, too."""
    decides_ahead: ClassVar[bool] = False
    """Whether `place` works without anything disclosed, and `learn` receives it afterwards. Then
    several decisions can be taken before the counts of the first one arrive."""
    answers_within: ClassVar[float] = 30.0
    """Seconds in which `place` and `learn` return; a run under a policy that hangs is ended."""

    def __init__(self, view: AgentView) -> None:
        self.view = view
        self.reset()

    def reset(self) -> None:  # noqa: B027 (many policies keep no state)
        """Begin a new episode: drop all state of the previous one."""

    def update(self, view: AgentView) -> None:
        """Receive the public facts anew: latencies have changed. Names never change in a run."""
        self.view = view

    @abstractmethod
    def place(self, observation: Observation) -> int:
        """Return the number of the node that shall serve this workload."""

    def learn(self, observation: Observation, node: int) -> None:  # noqa: B027 (only some learn)
        """Receive what was disclosed at a decision that `place` took ahead."""
