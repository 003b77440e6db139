"""The figure of a scenario's network, one colour per role."""

from __future__ import annotations

from pathlib import Path

import networkx as nx

from fogveil.testbed.report.figures import figure
from fogveil.testbed.scenario.world import World

ROLES = {
    "Cloud": ("#009E73", "s", 260),
    "Fog": ("#E69F00", "o", 170),
    "IoT cluster": ("#8F5BB5", "^", 130),
    "relay": ("#CCCCCC", "o", 14),
}


def draw_topology(world: World, path: Path) -> None:
    """Draw the network as PNG and SVG; nodes with fewer links between them are nearer."""
    topology = world.topology
    graph = topology.graph
    named = {topology.cloud, *topology.fogs, *topology.clusters}
    members = {
        "Cloud": [topology.cloud],
        "Fog": topology.fogs,
        "IoT cluster": topology.clusters,
        "relay": [node for node in graph if node not in named],
    }
    # Both layouts are deterministic; the better one takes too long for large graphs.
    small = len(graph) <= 200  # noqa: PLR2004
    positions = nx.kamada_kawai_layout(graph) if small else nx.spring_layout(graph, seed=1)
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
        axis.legend(loc="upper left", frameon=False)
        axis.set_title(
            f"{world.scenario.name}: {len(topology.fogs)} Fog nodes, "
            f"{len(topology.clusters)} IoT clusters, {len(graph)} nodes in all"
        )
