"""A graph's links as arrays, for compiled algorithms that answer as networkx does."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class LinkArrays:
    """The links of an undirected graph in both directions, in the order of its adjacency.

    Nodes without a second link lead nowhere: they are left out, unless they are to be kept.
    """

    def __init__(self, graph: nx.Graph, keep: Collection[Any]) -> None:
        self.nodes = _without_dead_ends(graph, keep)
        self.place = {node: number for number, node in enumerate(self.nodes)}
        """A node's number."""
        place = self.place
        links = [
            (number, place[other], link)
            for number, node in enumerate(self.nodes)
            for other, link in graph.adj[node].items()
            if other in place
        ]
        self.tails: Ints = np.array([tail for tail, _, _ in links], np.int64)
        self.heads: Ints = np.array([head for _, head, _ in links], np.int64)
        self._links = [link for _, _, link in links]

    def attribute(self, name: str) -> Floats:
        """Return an attribute of each link."""
        return np.array([link[name] for link in self._links], np.float64)

    def matrix(self, weights: Floats) -> csr_array:
        """Return the matrix of these weights, one of each link."""
        nodes = len(self.nodes)
        starts = np.searchsorted(self.tails, np.arange(nodes + 1))
        return csr_array((weights, self.heads, starts), shape=(nodes, nodes))


def _without_dead_ends(graph: nx.Graph, keep: Collection[Any]) -> list[Any]:
    kept, degrees = set(keep), dict(graph.degree())
    ends = [node for node, degree in degrees.items() if degree <= 1 and node not in kept]
    dropped = set(ends)
    while ends:
        for other in graph.adj[ends.pop()]:
            degrees[other] -= 1
            if degrees[other] == 1 and other not in kept and other not in dropped:
                dropped.add(other)
                ends.append(other)
    return [node for node in graph if node not in dropped]
