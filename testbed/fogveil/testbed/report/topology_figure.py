"""The figure of a scenario's network, one colour per role."""

from __future__ import annotations

from collections import Counter
from math import cos, radians
from pathlib import Path
from typing import Any

import networkx as nx

from fogveil.testbed.report.figures import figure
from fogveil.testbed.scenario.world import World

ROLES = {
    "Cloud": ("#009E73", "s", 260),
    "Fog": ("#E69F00", "o", 170),
    "IoT cluster": ("#8F5BB5", "^", 130),
    "relay": ("#CCCCCC", "o", 14),
}

BESIDE = 0.02
"""How far a node is drawn from another at the same place, as a share of the map's width."""


def _layout(graph: nx.Graph, small: int = 200) -> dict[Any, tuple[float, float]]:
    # Both layouts are deterministic; the better one takes too long for large graphs.
    positions: dict[Any, tuple[float, float]] = (
        nx.kamada_kawai_layout(graph) if len(graph) <= small else nx.spring_layout(graph, seed=1)
    )
    return positions


def _map(world: World) -> dict[Any, tuple[float, float]]:
    """Longitudes and latitudes in proportion, with nodes at the same place beside each other."""
    places = world.topology.positions
    latitudes = [latitude for _, latitude in places.values()]
    narrower = cos(radians(sum(latitudes) / len(latitudes)))
    width = max(x for x, _ in places.values()) - min(x for x, _ in places.values())
    step = BESIDE * max(width * narrower, max(latitudes) - min(latitudes), 1e-3)
    taken: Counter[tuple[float, float]] = Counter()
    positions = {}
    for node, (longitude, latitude) in places.items():
        number = taken[longitude, latitude]
        taken[longitude, latitude] += 1
        positions[node] = (
            longitude * narrower + step * number,
            latitude - step * number,
        )
    return positions


def place_nodes(world: World, small: int = 200) -> dict[Any, tuple[float, float]]:
    """Return where each node is drawn; in networks of more than `small` nodes it is found fast."""
    return _map(world) if world.topology.positions else _layout(world.topology.graph, small)


def draw_topology(world: World, path: Path) -> None:
    """Draw the network as PNG and SVG.

    It is a map where the graph file has coordinates; else nodes with fewer links between them are
    nearer.
    """
    topology = world.topology
    graph = topology.graph
    named = {topology.cloud, *topology.fogs, *topology.clusters}
    members = {
        "Cloud": [topology.cloud],
        "Fog": topology.fogs,
        "IoT cluster": topology.clusters,
        "relay": [node for node in graph if node not in named],
    }
    positions = place_nodes(world)
    with figure(path, 9, 6.5) as drawing:
        axis = drawing.subplots()
        axis.set_axis_off()
        nx.draw_networkx_edges(graph, positions, ax=axis, edge_color="#BBBBBB", width=0.7)
        for role, (colour, shape, size) in ROLES.items():
            if members[role]:
                nx.draw_networkx_nodes(
                    graph,
                    positions,
                    nodelist=members[role],
                    node_color=colour,
                    node_shape=shape,
                    node_size=size,
                    edgecolors="black",
                    linewidths=0.5,
                    label=role,
                    ax=axis,
                )
        for node, name in topology.names.items():
            x, y = positions[node]
            axis.annotate(name, (x, y), xytext=(6, 5), textcoords="offset points", fontsize=7)
        axis.legend(loc="best" if topology.positions else "upper left", frameon=False)
        axis.set_title(
            f"{world.scenario.name}: {len(topology.fogs)} Fog nodes, "
            f"{len(topology.clusters)} IoT clusters, {len(graph)} nodes in all"
        )
