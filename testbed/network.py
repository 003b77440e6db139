"""The emulated network: what it costs to send bytes over the fastest path."""

from __future__ import annotations

from typing import Any

import networkx as nx

from fogveil.errors import InputError
from testbed.scenario.models import Application
from testbed.topology import Topology

Table = tuple[tuple[float, ...], ...]


class Network:
    """Latencies of the fastest paths; a link costs bytes / bandwidth + propagation."""

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
            raise InputError("links: expected a positive latency on every way to a node")
        self.hops, self.bandwidth = self._paths(sum(sizes_up) / len(sizes_up))

    def _latencies(self, source: Any, targets: list[Any], sizes: list[float]) -> Table:
        rows = []
        for size in sizes:
            reach = nx.single_source_dijkstra_path_length(
                self._topology.graph, source, weight=_link_cost(size)
            )
            rows.append(tuple(float(reach[target]) for target in targets))
        return tuple(rows)

    def _paths(self, size: float) -> tuple[tuple[tuple[int, ...], ...], Table]:
        """Links and narrowest link on the way of a mean workload, [cluster][node]."""
        graph, hops, narrowest = self._topology.graph, [], []
        for cluster in self._topology.clusters:
            ways = nx.single_source_dijkstra_path(graph, cluster, weight=_link_cost(size))
            paths = [ways[fog] for fog in self._topology.fogs]
            hops.append(tuple(len(path) - 1 for path in paths))
            narrowest.append(
                tuple(
                    min(graph.edges[link]["bandwidth"] for link in nx.utils.pairwise(path))
                    for path in paths
                )
            )
        return tuple(hops), tuple(narrowest)


def _link_cost(size: float) -> Any:
    def cost(_one: Any, _other: Any, link: dict[str, float]) -> float:
        return size / link["bandwidth"] + link["propagation"]

    return cost
