"""Observations as vectors: the form in which libraries of reinforcement learning take them.

The Gymnasium environment and the policies that act by vectors share this one form.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import numpy.typing as npt

from fogveil.agent.policy import AgentView, Level, Observation, Policy

Vector = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


class ObservationVector:
    """Turns the observations of one level in one scenario into vectors of one size.

    `parts` names the slices of a vector, in their order.

    >>> from fogveil.agent.policy import CountKind
    >>> latencies = (((2.5, 4.0),),)
    >>> view = AgentView(
    ...     nodes=("fog-1", "fog-2"), cloud="cloud", clusters=("cluster-1",), categories=("light",),
    ...     count=CountKind.WAITING, disclosed=Level.COUNT, up=latencies, down=latencies,
    ...     hops=((1, 2),), bandwidth=((9.0, 9.0),), seed=0)
    >>> vectors = ObservationVector(view, Level.COUNT)
    >>> seen = Observation(time=7.5, job=0, cluster=0, category=0, counts=(3, 0), cloud_count=1)
    >>> vectors.of(seen).tolist()
    [1.0, 1.0, 2.5, 4.0, 3.0, 0.0, 1.0]
    >>> vectors.parts["counts"], vectors.size
    (slice(4, 6, None), 7)
    """

    def __init__(self, view: AgentView, level: Level) -> None:
        clusters, categories, nodes = len(view.clusters), len(view.categories), len(view.nodes)
        sizes = {"cluster": clusters, "category": categories, "latency": nodes}
        if level is Level.TOTAL:
            sizes["total"] = 1
        if level >= Level.COUNT:
            sizes |= {"counts": nodes, "cloud_count": 1}
        if level >= Level.FULL:
            sizes |= {"backlog": nodes, "service": nodes}
        self.parts: dict[str, slice] = {}
        self.size = 0
        for name, size in sizes.items():
            self.parts[name] = slice(self.size, self.size + size)
            self.size += size
        self._public = np.zeros((clusters, categories, self.size), np.float32)
        """What is public of a workload, by cluster and category; the rest is zero."""
        self._public[:, :, self.parts["cluster"]] = np.eye(clusters)[:, None]
        self._public[:, :, self.parts["category"]] = np.eye(categories)
        self.update(view)
        self._disclosed = clusters + categories + nodes
        self._all_nodes = np.ones(nodes, np.bool_)
        self._all_nodes.flags.writeable = False

    def update(self, view: AgentView) -> None:
        """Show other latencies from now on."""
        self._public[:, :, self.parts["latency"]] = view.up

    def of(self, observation: Observation) -> Vector:
        """Return the vector of an observation of this level."""
        vector: Vector = self._public[observation.cluster, observation.category].copy()
        disclosed: list[float] = []
        if observation.total is not None:
            disclosed.append(observation.total)
        if observation.counts is not None:
            assert observation.cloud_count is not None
            counts = observation.counts
            if observation.available is not None:  # a node that tells none shows none
                counts = tuple(max(count, 0) for count in counts)
            disclosed += (*counts, observation.cloud_count)
        if observation.load is not None:
            disclosed += (*observation.load.backlog, *observation.load.service)
        vector[self._disclosed :] = disclosed
        if observation.available is not None:  # nor does it show an endless backlog or service
            vector[np.isinf(vector)] = 0.0
        return vector

    def mask(self, observation: Observation) -> Mask:
        """Return which nodes can be chosen: the one place that knows of absent nodes."""
        if observation.available is None:
            return self._all_nodes
        mask = np.zeros_like(self._all_nodes)
        mask[list(observation.available)] = True
        return mask


class VectorPolicy(Policy):
    """A policy that acts by vectors: the same that the Gymnasium environment shows.

    A subclass says which level it `needs` and defines `act`.
    """

    watches_cloud = True  # the vector of level `count` holds it

    def __init__(self, view: AgentView) -> None:
        self.vectors = ObservationVector(view, type(self).needs)
        super().__init__(view)

    def update(self, view: AgentView) -> None:
        """Show other latencies from now on."""
        super().update(view)
        self.vectors.update(view)

    @abstractmethod
    def act(self, vector: Vector, mask: Mask) -> int:
        """Return the number of a node that the mask permits."""

    def place(self, observation: Observation) -> int:
        """Return the node that `act` chooses."""
        return self.act(self.vectors.of(observation), self.vectors.mask(observation))
