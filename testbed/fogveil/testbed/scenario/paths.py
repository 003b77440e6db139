"""The fastest paths of a scenario's network: their latencies, hops and bandwidths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.sparse.csgraph import dijkstra

from fogveil.core.errors import InputError
from fogveil.testbed.scenario.link_arrays import Floats, Ints, LinkArrays
from fogveil.testbed.scenario.models import Application
from fogveil.testbed.scenario.topology import Topology

Table = tuple[tuple[float, ...], ...]


class FastestPaths:
    """Latencies between clusters, Fog nodes and Cloud; a link costs bytes/bandwidth + propagation.

    The fastest path depends on the bytes to send, so it is found for each category.
    """

    def __init__(self, topology: Topology, applications: list[Application]) -> None:
        self._links = links = LinkArrays(topology.graph, topology.names)
        self._bandwidth = links.attribute("bandwidth")
        self._propagation = links.attribute("propagation")
        self._fogs = self._places(topology.fogs)
        self._clusters = clusters = self._places(topology.clusters)
        cloud = self._places([topology.cloud])
        sizes_up = [application.bytes_up for application in applications]
        sizes_down = [application.bytes_down for application in applications]
        self.up = self._latencies(clusters, self._fogs, sizes_up)
        """From a cluster to a Fog node: [cluster][category][node]."""
        self.down = self._latencies(clusters, self._fogs, sizes_down)
        """From a Fog node back to a cluster: [cluster][category][node]."""
        (self.fog_to_cloud,) = self._latencies(cloud, self._fogs, sizes_up)
        """[category][node]."""
        (self.cloud_to_cluster,) = self._latencies(cloud, clusters, sizes_down)
        """[category][cluster]."""
        if min(*map(min, self.fog_to_cloud), *(min(map(min, up)) for up in self.up)) <= 0:
            raise InputError("links: expected a positive latency on every path to a node")
        self._mean_size = sum(sizes_up) / len(sizes_up)
        self.hops, self.bandwidth = self._hops_and_bandwidth()
        """Links, and bandwidth of the narrowest link, for a mean workload: [cluster][node]."""

    def _places(self, nodes: Sequence[Any]) -> Ints:
        return np.array([self._links.place[node] for node in nodes], np.int64)

    def _costs(self, size: float) -> Floats:
        with np.errstate(over="ignore"):  # an infinite latency is refused with the world
            costs: Floats = size / self._bandwidth + self._propagation
        return costs

    def _distances(self, sources: Ints, costs: Floats) -> Floats:
        """Return the latencies [source, node], each summed from the source on."""
        distances: Floats = dijkstra(self._links.matrix(costs), indices=sources)
        return distances

    def _latencies(self, sources: Ints, targets: Ints, sizes: Sequence[float]) -> tuple[Table, ...]:
        rows = [self._distances(sources, self._costs(size))[:, targets].tolist() for size in sizes]
        return tuple(tuple(map(tuple, per_size)) for per_size in zip(*rows, strict=True))

    def routes(self) -> Iterator[list[list[Any]]]:
        """Yield for each cluster the nodes on the path of a mean workload to each Fog node."""
        nodes, tails = self._links.nodes, self._links.tails.tolist()
        for last_links in self._last_links():
            routes = []
            for fog in self._fogs.tolist():
                route = [fog]
                while (link := last_links[route[-1]]) >= 0:
                    route.append(tails[link])
                routes.append([nodes[place] for place in reversed(route)])
            yield routes

    def _hops_and_bandwidth(self) -> tuple[tuple[tuple[int, ...], ...], Table]:
        hops, narrowest = [], []
        for last_links in self._last_links():
            places, on_way = self._fogs, np.arange(len(self._fogs))
            links = np.zeros(len(places), np.int64)
            width = np.full(len(places), np.inf)
            while len(on_way):
                last = last_links[places]
                on_way, last = on_way[last >= 0], last[last >= 0]
                links[on_way] += 1
                width[on_way] = np.minimum(width[on_way], self._bandwidth[last])
                places = self._links.tails[last]
            hops.append(tuple(links.tolist()))
            narrowest.append(tuple(width.tolist()))
        return tuple(hops), tuple(narrowest)

    def _last_links(self) -> Iterator[Ints]:
        """Yield for each cluster the last link of the path to each node; -1 where there is none."""
        costs = self._costs(self._mean_size)
        for source in self._clusters:
            distances = self._distances(source, costs)
            yield self._predecessors(distances, costs)

    def _predecessors(self, distances: Floats, costs: Floats) -> Ints:
        """Return for each node the link by which the algorithm of Dijkstra has reached it.

        Of equally fast paths, that is the one whose last node but one was settled first: nearer
        nodes are settled first, of equally near ones those that were found first.
        """
        tails, heads = self._links.tails, self._links.heads
        fastest = np.flatnonzero(
            (distances[tails] + costs == distances[heads]) & np.isfinite(distances[heads])
        )
        heads_of, tails_of = heads[fastest], tails[fastest]
        last = np.full(len(distances), -1)
        settled = np.unique(distances, return_inverse=True)[1]
        while True:
            order = np.lexsort((fastest, settled[tails_of], heads_of))
            first = order[np.flatnonzero(np.diff(heads_of[order], prepend=-1))]
            last[heads_of[first]] = fastest[first]
            found = np.where(last >= 0, settled[tails[last]], -1)
            again = np.empty_like(settled)
            again[np.lexsort((last, found, distances))] = np.arange(len(settled))
            if np.array_equal(again, settled):
                return last
            settled = again
