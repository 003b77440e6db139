"""The random internet graphs of networkx, drawn in half the time."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import networkx as nx
from networkx.generators.internet_as_graphs import AS_graph_generator, choose_pref_attach


def random_as_graph(nodes: int, seed: int) -> nx.Graph:
    """Return the graph of `networkx.random_internet_as_graph`, links and their order included."""
    return _Generator(nodes, seed).generate()


class _Generator(AS_graph_generator):  # type: ignore[misc]  # networkx has no types
    """Looks degrees up, most of the work, without a view of the graph for each."""

    def choose_node_pref_attach(self, node_list: Collection[int]) -> Any:
        """Return a node, drawn by degree; the graph has no loops, which would count twice."""
        adjacency = self.G._adj  # noqa: SLF001
        return choose_pref_attach({node: len(adjacency[node]) for node in node_list}, self.seed)

    def choose_peer_pref_attach(self, node_list: Collection[int]) -> Any:
        """Return a node, drawn by its number of peers."""
        data = self.G._node  # noqa: SLF001
        return choose_pref_attach({node: data[node]["peers"] for node in node_list}, self.seed)
