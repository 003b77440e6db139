"""The contract of a policy: what it is given once, what it sees at a decision, what it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from fogveil.disclosure import CountKind, Level

__all__ = ["AgentView", "CountKind", "Level", "Load", "Observation", "Policy"]

PerNode = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class AgentView:
    """The public facts of a scenario: all that the agent is given before a run.

    Nodes, clusters and categories are numbered in the order of their names here. Latencies and
    paths are looked up as `table[cluster][category][node]` and `table[cluster][node]`.
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
    """Links on the way from a cluster to a node."""
    bandwidth: tuple[PerNode, ...]
    """The narrowest link on the way from a cluster to a node."""
    seed: int
    """The policy's own seed, derived one-way from the scenario's."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the scenario says to policies, by policy family."""


class Load(NamedTuple):
    """What level `full` adds: a provider's resources and load, and what it knows of the job."""

    ipt: PerNode
    ram: PerNode
    expected: tuple[PerNode, ...]
    """Mean service time, as `expected[category][node]`."""
    backlog: PerNode
    """Time until a node has done the jobs that arrived there."""
    service: PerNode
    """The time this very job would take on each node, its service factor included."""


class Observation(NamedTuple):
    """A decision to take: one workload, and of the nodes what the policy's level permits."""

    time: float
    job: int
    cluster: int
    category: int
    counts: tuple[int, ...] | None = None
    """Queued jobs per Fog node; None below level `count`."""
    cloud_count: int | None = None
    """Queued jobs at the Cloud, for a policy of level `count` that watches it."""
    total: int | None = None
    """Queued jobs at all nodes with the Cloud, for a policy of level `total`."""
    load: Load | None = None
    """None below level `full`."""

    def blind(self) -> Observation:
        """Return the same decision without what the providers disclose."""
        return Observation(*self[:4])


class Policy(ABC):
    """Chooses a Fog node for each workload.

    A policy of your own is a subclass in a file of yours: `--policy my_policy.py:MyPolicy`.
    """

    needs: ClassVar[Level] = Level.NONE
    """The level it needs; it is shown this much and no more."""
    watches_cloud: ClassVar[bool] = False
    """Whether a policy of level `count` is also shown the Cloud's count."""
    decides_ahead: ClassVar[bool] = False
    """Whether it decides without looking at what the providers disclose, and learns of it
    afterwards. So several decisions can be taken before the counts of the first arrive."""

    def __init__(self, view: AgentView) -> None:
        self.view = view
        self.reset()

    def reset(self) -> None:  # noqa: B027 (many policies remember nothing)
        """Begin a new episode: whatever was remembered of the last one is void."""

    @abstractmethod
    def place(self, seen: Observation) -> int:
        """Return the number of the node that shall serve this workload."""

    def learn(self, seen: Observation, node: int) -> None:  # noqa: B027 (only some learn)
        """Take in what was disclosed at a decision that was taken ahead."""
