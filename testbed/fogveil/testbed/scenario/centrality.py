"""Exact betweenness centrality of large graphs: Brandes' algorithm for many sources at once."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np

from fogveil.testbed.scenario.link_arrays import Floats, LinkArrays

SMALL = 500
"""Nodes up to which networkx is fast enough; there its rounding decides between equal nodes."""
BLOCK = 32
"""Sources at a time: their numbers fit into a processor's cache."""
DIGITS = 10
"""Digits that count in large graphs: what differs beyond them is rounding."""


def rank_by_centrality(graph: nx.Graph, sample: int | None = None) -> list[Any]:
    """Return the nodes of a connected graph, the most central first, equal ones in their order.

    With a `sample`, centrality is estimated from the paths of so many nodes.
    """
    if sample is not None and sample < len(graph):
        values = nx.betweenness_centrality(graph, k=sample, seed=0)
    elif len(graph) <= SMALL:
        values = nx.betweenness_centrality(graph)
    else:
        exact = betweenness(graph)
        values = {node: float(f"{value:.{DIGITS}g}") for node, value in exact.items()}
    order = {node: number for number, node in enumerate(graph)}
    return sorted(graph, key=lambda node: (-values[node], order[node]))


def betweenness(graph: nx.Graph) -> dict[Any, float]:
    """Return each node's betweenness in a connected graph: pairs of others that it is between.

    Trees that hang off the rest are counted, not searched: whatever has its ends on both sides of a
    node of a tree passes through it. What remains is searched with the weights of its trees.

    >>> betweenness(nx.path_graph(4)), betweenness(nx.cycle_graph(4))
    ({0: 0.0, 1: 2.0, 2: 2.0, 3: 0.0}, {0: 0.5, 1: 0.5, 2: 0.5, 3: 0.5})
    """
    nodes = len(graph)
    core, weights, between = _count_trees(graph)
    links = LinkArrays(graph, core)
    own = np.array([weights[node] for node in links.nodes])
    among = _betweenness_of_core(links, own)
    for node, weight, value in zip(links.nodes, own.tolist(), among.tolist(), strict=True):
        between[node] += (nodes - weight) * (weight - 1) + value
    return {node: between[node] for node in graph}


def _count_trees(graph: nx.Graph) -> tuple[list[Any], dict[Any, float], dict[Any, float]]:
    """Return what remains without trees, how many nodes hang on each node, itself included.

    And how many pairs of nodes each one separates: those of its trees alone, if it remains.
    """
    degrees = dict(graph.degree())
    weights = dict.fromkeys(graph, 1.0)
    squares = dict.fromkeys(graph, 0.0)
    """Sums of the squared sizes of the trees at each node."""
    ends = [node for node, degree in degrees.items() if degree == 1]
    cut: set[Any] = set()
    while ends:
        end = ends.pop()
        root = next((other for other in graph.adj[end] if other not in cut), None)
        if root is None:  # the last node of a graph that is a tree
            continue
        cut.add(end)
        weights[root] += weights[end]
        squares[root] += weights[end] ** 2
        degrees[root] -= 1
        if degrees[root] == 1:
            ends.append(root)
    between = {}
    for node in graph:
        below = weights[node] - 1
        pairs = (below * below - squares[node]) / 2
        between[node] = pairs + (below * (len(graph) - weights[node]) if node in cut else 0.0)
    return [node for node in graph if node not in cut], weights, between


def _betweenness_of_core(links: LinkArrays, weights: Floats) -> Floats:
    """Return per node how many pairs it is between; a node stands for as many as it weighs."""
    adjacency = links.matrix(np.ones(len(links.heads)))
    nodes = len(weights)
    total = np.zeros(nodes)
    for first in range(0, nodes, BLOCK):
        sources = np.arange(first, min(first + BLOCK, nodes))
        level = np.zeros((nodes, len(sources)))
        level[sources, np.arange(len(sources))] = 1.0
        unseen = 1.0 - level
        # Per distance the number of shortest paths to the nodes that are so far away.
        levels = [level]
        while (level := (adjacency @ level) * unseen).any():
            unseen[level > 0] = 0.0
            levels.append(level)
        behind = np.zeros_like(unseen)
        for farther, nearer in zip(levels[:1:-1], levels[-2:0:-1], strict=True):
            behind += weights[:, None]
            share = np.zeros_like(behind)
            np.divide(behind, farther, out=share, where=farther > 0)
            behind = (adjacency @ share) * nearer
            total += behind @ weights[sources]
    return total / 2
