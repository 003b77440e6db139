"""The network of a scenario: its graph, who is Cloud, Fog or cluster, and what its links cost."""

from __future__ import annotations

from dataclasses import dataclass
from math import asin, cos, isfinite, radians, sin, sqrt
from typing import Any

import networkx as nx
import numpy as np

from fogveil.errors import InputError
from testbed.graph_files import read_graph
from testbed.scenario.models import (
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
RESERVED = ("agent", "sources", "clock", "broker")
"""Names of participants that are no nodes."""


@dataclass(frozen=True)
class Topology:
    """A connected graph whose links know `bandwidth` and `propagation`; nodes by graph id."""

    graph: nx.Graph
    cloud: Any
    fogs: list[Any]
    """In the order of their centrality, the most central first."""
    clusters: list[Any]
    names: dict[Any, str]
    """Names of cloud, Fog nodes and clusters; the other nodes only relay."""


def build_topology(scenario: Scenario) -> Topology:
    """Make the scenario's network, the same for the same scenario."""
    if isinstance(scenario.topology, ExplicitTopology):
        topology = _explicit(scenario.topology)
    else:
        topology = _by_centrality(scenario)
    if not nx.is_connected(topology.graph):
        parts = nx.number_connected_components(topology.graph)
        raise InputError(f"topology: the graph is not connected, it falls into {parts} parts")
    _weigh_links(topology.graph, scenario.links)
    return topology


def _explicit(given: ExplicitTopology) -> Topology:
    graph = nx.Graph()
    roles: dict[str, list[str]] = {"cloud": [], "fog": [], "cluster": [], "relay": []}
    for node in given.nodes:
        if node.name in graph:
            raise InputError(f"topology.nodes: {node.name} is there twice")
        if node.name in RESERVED:
            raise InputError(f"topology.nodes: {node.name} is the name of another participant")
        graph.add_node(node.name)
        roles[node.role].append(node.name)
    for number, link in enumerate(given.links):
        one, other = link.between
        for end in link.between:
            if end not in graph:
                raise InputError(f"topology.links.{number}: no node is called {end}")
        if one == other:
            raise InputError(f"topology.links.{number}: {one} is linked to itself")
        if graph.has_edge(one, other):
            raise InputError(f"topology.links.{number}: {one} and {other} are linked twice")
        values = {"bandwidth": link.bandwidth, "propagation": link.propagation}
        graph.add_edge(one, other, **{k: v for k, v in values.items() if v is not None})
    if len(roles["cloud"]) != 1 or not roles["fog"] or not roles["cluster"]:
        raise InputError("topology.nodes: expected one cloud, and at least one fog and one cluster")
    named = [*roles["cloud"], *roles["fog"], *roles["cluster"]]
    return Topology(
        graph, roles["cloud"][0], roles["fog"], roles["cluster"], {name: name for name in named}
    )


def _by_centrality(scenario: Scenario) -> Topology:
    """Give the roles out: the most central node is the Cloud, the next ones are Fog.

    A cluster hangs on one link. The Fog nodes with a cluster are drawn at random; each brings a
    leaf of the graph where it has one, else a new leaf is hung on it.
    """
    given, roles = scenario.topology, scenario.roles
    assert roles is not None
    if isinstance(given, FileTopology):
        graph = read_graph(given.file)
    else:
        assert given.kind == "internet_as"
        graph = nx.Graph(nx.random_internet_as_graph(given.nodes, seed=given.seed))
    if graph.number_of_nodes() < roles.fog + 1:
        raise InputError(
            f"roles.fog: {roles.fog} Fog nodes and a Cloud do not fit "
            f"into a graph of {graph.number_of_nodes()} nodes"
        )
    order = {node: number for number, node in enumerate(graph)}
    # Beyond some hundred nodes the exact value takes minutes; a fixed sample ranks them as well.
    sample = 200 if graph.number_of_nodes() > 500 else None  # noqa: PLR2004
    centrality = nx.betweenness_centrality(graph, k=sample, seed=0)
    ranked = sorted(graph, key=lambda node: (-centrality[node], order[node]))
    cloud, fogs = ranked[0], ranked[1 : roles.fog + 1]
    clusters = _hang_clusters(graph, cloud, fogs, roles, order)
    names = {cloud: "cloud"}
    names |= {node: f"fog-{number}" for number, node in enumerate(fogs, 1)}
    names |= {node: f"cluster-{number}" for number, node in enumerate(clusters, 1)}
    return Topology(graph, cloud, fogs, clusters, names)


def _hang_clusters(
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


def _weigh_links(graph: nx.Graph, links: Links) -> None:
    random = np.random.Generator(np.random.Philox(links.seed))
    for key in ("bandwidth", "propagation"):
        rule = getattr(links, key)
        places = _positions(graph, rule) if isinstance(rule, Coordinates) else {}
        for one, other, link in graph.edges(data=True):
            drawn = random.uniform(*rule.uniform) if isinstance(rule, Uniform) else None
            if key in link:
                continue
            if drawn is not None:
                link[key] = float(drawn)
            elif isinstance(rule, Attribute):
                link[key] = _attribute(link, rule, f"{one} – {other}")
            elif isinstance(rule, Coordinates):
                distance = _great_circle_km(places[one], places[other])
                link[key] = max(distance / rule.km_per_unit, rule.least)
            else:
                link[key] = float(rule)


def _attribute(link: dict[str, Any], rule: Attribute, where: str) -> float:
    raw = link.get("attributes", {}).get(rule.attribute, rule.default)
    try:
        value = float(raw) * rule.factor
    except (TypeError, ValueError):
        value = float("nan")
    if not (value > 0 and isfinite(value)):
        raise InputError(
            f"topology: link {where}: expected a positive number in attribute "
            f"{rule.attribute!r}, got {raw!r}"
        )
    return value


Position = tuple[float, float]


def _positions(graph: nx.Graph, rule: Coordinates) -> dict[Any, Position]:
    """Longitude and latitude of every node; one without any is put amid its neighbours."""
    places: dict[Any, Position] = {}
    for node, data in graph.nodes(data=True):
        try:
            place = (float(data[rule.longitude]), float(data[rule.latitude]))
        except (KeyError, TypeError, ValueError):
            continue
        if isfinite(place[0]) and isfinite(place[1]):
            places[node] = place
    if not places:
        raise InputError(
            f"topology: no node has the coordinates {rule.longitude!r} and {rule.latitude!r}"
        )
    lost = [node for node in graph if node not in places]
    while lost:
        found = {}
        for node in lost:
            near = [places[other] for other in graph[node] if other in places]
            if near:
                found[node] = (
                    sum(p[0] for p in near) / len(near),
                    sum(p[1] for p in near) / len(near),
                )
        places |= found
        lost = [node for node in lost if node not in found]
    return places


def _great_circle_km(one: Position, other: Position) -> float:
    (lon1, lat1), (lon2, lat2) = ((radians(x), radians(y)) for x, y in (one, other))
    half = sin((lat2 - lat1) / 2) ** 2 + cos(lat1) * cos(lat2) * sin((lon2 - lon1) / 2) ** 2
    return 2 * EARTH_RADIUS_KM * asin(sqrt(half))
