"""The network of a scenario: its graph, the roles of its nodes, and its links' properties."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import asin, cos, isfinite, radians, sin, sqrt
from typing import Any

import networkx as nx
import numpy as np

from fogveil.core.errors import InputError
from fogveil.testbed.scenario.as_graph import random_as_graph
from fogveil.testbed.scenario.centrality import rank_by_centrality
from fogveil.testbed.scenario.graph_files import node_labels, read_graph
from fogveil.testbed.scenario.models import (
    Attribute,
    Coordinates,
    ExplicitTopology,
    FileTopology,
    Links,
    Roles,
    Scenario,
    Uniform,
)

EARTH_RADIUS_KM = 6371.0
LARGEST_LONGITUDE, LARGEST_LATITUDE = 180.0, 90.0
NAMED = 5
"""Nodes that a note names."""
RESERVED = ("agent", "sources", "clock", "broker")
"""Names of participants other than nodes."""

Position = tuple[float, float]


@dataclass(frozen=True)
class Topology:
    """A connected graph whose links have `bandwidth` and `propagation`; nodes are graph ids."""

    graph: nx.Graph
    cloud: Any
    fogs: list[Any]
    """The most central first."""
    clusters: list[Any]
    names: dict[Any, str]
    """Names of cloud, Fog nodes and clusters; the other nodes only relay."""
    labels: dict[str, str] = field(default_factory=dict)
    """What the user's file calls them, by name; a cluster that was added is none of its nodes."""
    positions: dict[Any, Position] = field(default_factory=dict)
    """Longitude and latitude of every node, where the file has coordinates."""
    notes: tuple[str, ...] = ()
    """What of the user's file was changed or left out: one line each."""


def build_topology(scenario: Scenario) -> Topology:
    """Build the network; the same scenario always gives the same one."""
    notes: list[str] = []
    if isinstance(scenario.topology, ExplicitTopology):
        topology = _explicit_topology(scenario.topology)
    else:
        topology = _topology_by_centrality(scenario, notes)
    if not nx.is_connected(topology.graph):
        parts = nx.number_connected_components(topology.graph)
        raise InputError(
            f"topology: the graph is not connected, it has {parts} parts; add links between them"
        )
    rule = scenario.links.propagation
    positions: dict[Any, Position] = {}
    if isinstance(rule, Coordinates):
        positions = _positions(topology, rule, notes)
    elif isinstance(scenario.topology, FileTopology):  # for the picture alone
        with suppress(InputError):
            positions = _positions(topology, Coordinates(km_per_unit=1.0), [])
    _set_link_properties(topology.graph, scenario.links, positions)
    return replace(topology, positions=positions, notes=tuple(notes))


def _explicit_topology(table: ExplicitTopology) -> Topology:
    graph = nx.Graph()
    roles: dict[str, list[str]] = {"cloud": [], "fog": [], "cluster": [], "relay": []}
    for node in table.nodes:
        if node.name in graph:
            raise InputError(f"topology.nodes: two nodes are called {node.name}; rename one")
        if node.name in RESERVED:
            raise InputError(
                f"topology.nodes: {node.name} is the name of another participant; rename the node"
            )
        graph.add_node(node.name)
        roles[node.role].append(node.name)
    for number, link in enumerate(table.links):
        one, other = link.between
        for end in link.between:
            if end not in graph:
                raise InputError(
                    f"topology.links.{number}: no node is called {end}; list it in topology.nodes"
                )
        if one == other:
            raise InputError(f"topology.links.{number}: {one} is linked to itself")
        if graph.has_edge(one, other):
            raise InputError(f"topology.links.{number}: {one} and {other} are linked twice")
        values = {"bandwidth": link.bandwidth, "propagation": link.propagation}
        graph.add_edge(one, other, **{k: v for k, v in values.items() if v is not None})
    if len(roles["cloud"]) != 1 or not roles["fog"] or not roles["cluster"]:
        raise InputError(
            "topology.nodes: expected one node of role cloud, and at least one each of fog and "
            "cluster"
        )
    named = [*roles["cloud"], *roles["fog"], *roles["cluster"]]
    return Topology(
        graph, roles["cloud"][0], roles["fog"], roles["cluster"], {name: name for name in named}
    )


def _topology_by_centrality(scenario: Scenario, notes: list[str]) -> Topology:
    """Assign the roles: the most central node is the Cloud, the next ones are Fog.

    A cluster has one link. The Fog nodes with a cluster are drawn at random; the cluster is a leaf
    of the graph next to the Fog node if there is one, else a new leaf.
    """
    table, roles = scenario.topology, scenario.roles
    assert roles is not None
    if isinstance(table, FileTopology):
        graph = read_graph(table.file, notes)
    else:
        assert table.kind == "internet_as"
        graph = nx.Graph(random_as_graph(table.nodes, table.seed))
    if graph.number_of_nodes() < roles.fog + 1:
        raise InputError(
            f"roles.fog: {roles.fog} Fog nodes and a Cloud do not fit "
            f"into a graph of {graph.number_of_nodes()} nodes"
        )
    ranked = rank_by_centrality(graph, roles.sample)
    order = {node: number for number, node in enumerate(graph)}
    cloud, fogs = ranked[0], ranked[1 : roles.fog + 1]
    known = node_labels(graph) if isinstance(table, FileTopology) else {}
    clusters = _attach_clusters(graph, cloud, fogs, roles, order)
    names = {cloud: "cloud"}
    names |= {node: f"fog-{number}" for number, node in enumerate(fogs, 1)}
    names |= {node: f"cluster-{number}" for number, node in enumerate(clusters, 1)}
    labels = {name: known[node] for node, name in names.items() if node in known}
    return Topology(graph, cloud, fogs, clusters, names, labels)


def _attach_clusters(
    graph: nx.Graph, cloud: Any, fogs: list[Any], roles: Roles, order: dict[Any, int]
) -> list[Any]:
    random = np.random.Generator(np.random.Philox(roles.seed))
    drawn = random.permutation(len(fogs))[: roles.clusters].tolist()
    hosts = [fogs[place] for place in sorted(drawn)]
    clusters: list[Any] = []
    taken = {cloud, *fogs}
    for number in range(roles.clusters):
        host = hosts[number % len(hosts)]
        leaves = [n for n in graph[host] if graph.degree(n) == 1 and n not in taken]
        leaf = min(leaves, key=order.__getitem__) if leaves else f"leaf {number}"
        if not leaves:
            graph.add_edge(host, leaf)
            graph.nodes[leaf].update(graph.nodes[host])
            order[leaf] = len(order)
        taken.add(leaf)
        clusters.append(leaf)
    return clusters


def _set_link_properties(graph: nx.Graph, links: Links, positions: Mapping[Any, Position]) -> None:
    random = np.random.Generator(np.random.Philox(links.seed))
    for key in ("bandwidth", "propagation"):
        rule = getattr(links, key)
        for one, other, link in graph.edges(data=True):
            drawn = random.uniform(*rule.uniform) if isinstance(rule, Uniform) else None
            if key in link:
                continue
            if drawn is not None:
                link[key] = float(drawn)
            elif isinstance(rule, Attribute):
                link[key] = _attribute_value(link, rule, f"{one} – {other}")
            elif isinstance(rule, Coordinates):
                distance = _great_circle_km(positions[one], positions[other])
                link[key] = max(distance / rule.km_per_unit, rule.least)
            else:
                link[key] = float(rule)


def _attribute_value(link: dict[str, Any], rule: Attribute, where: str) -> float:
    raw = link.get("attributes", {}).get(rule.attribute, rule.default)
    try:
        value = float(raw) * rule.factor
    except (TypeError, ValueError):
        value = float("nan")
    if not (value > 0 and isfinite(value)):
        raise InputError(
            f"topology: link {where}: expected a positive number in attribute "
            f"{rule.attribute!r}, got {raw!r}; links may have a `default` for it"
        )
    return value


def _positions(topology: Topology, rule: Coordinates, notes: list[str]) -> dict[Any, Position]:
    """Longitude and latitude of every node; one without any gets the mean of its neighbours'."""
    graph = topology.graph
    positions: dict[Any, Position] = {}
    for node, data in graph.nodes(data=True):
        try:
            position = (float(data[rule.longitude]), float(data[rule.latitude]))
        except (KeyError, TypeError, ValueError):
            continue
        if isfinite(position[0]) and isfinite(position[1]):
            if abs(position[0]) > LARGEST_LONGITUDE or abs(position[1]) > LARGEST_LATITUDE:
                raise InputError(
                    f"topology: node {node_labels(graph)[node]} has longitude {position[0]:g} and "
                    f"latitude {position[1]:g}: expected degrees from -180 to 180 and -90 to 90; "
                    "correct the file, or name other attributes in links.propagation"
                )
            positions[node] = position
    if not positions:
        raise InputError(
            f"topology: no node has the coordinates {rule.longitude!r} and {rule.latitude!r}; name "
            "its attributes in links.propagation.longitude and latitude"
        )
    missing = [node for node in graph if node not in positions]
    added = {node for node in topology.clusters if topology.names[node] not in topology.labels}
    lost = [node for node in missing if node not in added]
    if lost:
        labels = node_labels(graph)
        shown = ", ".join(labels[node] for node in lost[:NAMED])
        more = f" and {len(lost) - NAMED} more" if len(lost) > NAMED else ""
        notes.append(
            f"topology: without coordinates in the file, so placed amid their neighbours: "
            f"{shown}{more}"
        )
    while missing:
        inferred = {}
        for node in missing:
            near = [positions[other] for other in graph[node] if other in positions]
            if near:
                inferred[node] = (
                    sum(p[0] for p in near) / len(near),
                    sum(p[1] for p in near) / len(near),
                )
        positions |= inferred
        missing = [node for node in missing if node not in inferred]
    return positions


def _great_circle_km(one: Position, other: Position) -> float:
    (lon1, lat1), (lon2, lat2) = ((radians(x), radians(y)) for x, y in (one, other))
    half = sin((lat2 - lat1) / 2) ** 2 + cos(lat1) * cos(lat2) * sin((lon2 - lon1) / 2) ** 2
    return 2 * EARTH_RADIUS_KM * asin(sqrt(half))
