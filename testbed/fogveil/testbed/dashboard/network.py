"""The network of a run as the page draws it: places of nodes, links, and paths as trees."""

from __future__ import annotations

from typing import Any

from fogveil.testbed.report.topology_figure import place_nodes
from fogveil.testbed.scenario.world import World


def network(world: World) -> dict[str, Any]:
    """Return places between 0 and 1, links, roles, and of each cluster the way to each Fog node."""
    topology = world.topology
    positions = place_nodes(world, small=40)  # a page that opens does not wait for seconds
    order = list(topology.graph)
    index = {node: number for number, node in enumerate(order)}
    xs, ys = zip(*(positions[node] for node in order), strict=True)
    spans = [(min(values), max(values) - min(values) or 1.0) for values in (xs, ys)]
    places = [
        [
            round((float(value) - low) / span, 4)
            for value, (low, span) in zip(each, spans, strict=True)
        ]
        for each in zip(xs, ys, strict=True)
    ]
    return {
        "places": places,
        "links": [[index[a], index[b]] for a, b in topology.graph.edges()],
        "cloud": index[topology.cloud],
        "fogs": [index[node] for node in topology.fogs],
        "clusters": [index[node] for node in topology.clusters],
        "paths": [
            [[index[node] for node in path] for path in paths] for paths in world.paths.routes()
        ],
    }
