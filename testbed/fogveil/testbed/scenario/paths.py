"""The fastest paths of a scenario's network: their latencies, hops and bandwidths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import networkx as nx

from fogveil.core.errors import InputError
from fogveil.testbed.scenario.models import Application
from fogveil.testbed.scenario.topology import Topology

Table = tuple[tuple[float, ...], ...]


class FastestPaths:
    """Latencies between clusters, Fog nodes and Cloud; a link costs bytes/bandwidth + propagation.

    The fastest path depends on the bytes to send, so it is found for each category.
    """

    def __init__(self, topology: Topology, applications: list[Application]) -> None:
        self._topology = topology
        fogs, clusters, cloud = topology.fogs, topology.clusters, topology.cloud
        sizes_up = [application.bytes_up for application in applications]
        sizes_down = [application.bytes_down for application in applications]
        self.up = tuple(self._latencies(cluster, fogs, sizes_up) for cluster in clusters)
        """From a cluster to a Fog node: [cluster][category][node]."""
        self.down = tuple(self._latencies(cluster, fogs, sizes_down) for cluster in clusters)
        """From a Fog node back to a cluster: [cluster][category][node]."""
        self.fog_to_cloud = self._latencies(cloud, fogs, sizes_up)
        """[category][node]."""
        self.cloud_to_cluster = self._latencies(cloud, clusters, sizes_down)
        """[category][cluster]."""
        if min(*map(min, self.fog_to_cloud), *(min(map(min, up)) for up in self.up)) <= 0:
            raise InputError("links: expected a positive latency on every path to a node")
        self._mean_size = sum(sizes_up) / len(sizes_up)
        self.hops, self.bandwidth = self._hops_and_bandwidth()
        """Links, and bandwidth of the narrowest link, for a mean workload: [cluster][node]."""

    def _latencies(self, source: Any, targets: Sequence[Any], sizes: Sequence[float]) -> Table:
        rows = []
        for size in sizes:
            latency = nx.single_source_dijkstra_path_length(
                self._topology.graph, source, weight=_link_cost(size)
            )
            rows.append(tuple(float(latency[target]) for target in targets))
        return tuple(rows)

    def routes(self) -> Iterator[list[list[Any]]]:
        """Yield for each cluster the nodes on the path of a mean workload to each Fog node."""
        cost = _link_cost(self._mean_size)
        for cluster in self._topology.clusters:
            paths = nx.single_source_dijkstra_path(self._topology.graph, cluster, weight=cost)
            yield [paths[fog] for fog in self._topology.fogs]

    def _hops_and_bandwidth(self) -> tuple[tuple[tuple[int, ...], ...], Table]:
        graph, hops, narrowest = self._topology.graph, [], []
        for paths in self.routes():
            hops.append(tuple(len(path) - 1 for path in paths))
            narrowest.append(
                tuple(
                    min(graph.edges[link]["bandwidth"] for link in nx.utils.pairwise(path))
                    for path in paths
                )
            )
        return tuple(hops), tuple(narrowest)


def _link_cost(size: float) -> Callable[[Any, Any, dict[str, float]], float]:
    def cost(_one: Any, _other: Any, link: dict[str, float]) -> float:
        return size / link["bandwidth"] + link["propagation"]

    return cost
