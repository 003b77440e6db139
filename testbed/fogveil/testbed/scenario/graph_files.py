"""Graphs from GraphML, GML or node-link JSON files, with the irregularities of real ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import networkx as nx

from fogveil.core.errors import InputError

LABELS = ("label", "Label", "name", "Name")
"""Attributes in which files keep the names of nodes."""


def read_graph(file: str, notes: list[str]) -> nx.Graph:
    """Read an undirected simple graph, and note what of the file was left out.

    Of parallel links the first is kept, loops are dropped. Nodes and links are in the order of the
    nodes' names, so that the same graph in another file, or another order, is the same.
    """
    path = Path(file)
    readers = {".gml": _gml, ".graphml": nx.read_graphml, ".json": _json}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: expected a graph file ending in .graphml, .gml or .json")
    try:
        content = reader(path)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}; name the graph file, as in "
            "--set topology.file=/path/to/graph.gml"
        ) from error
    except Exception as error:  # the readers raise anything, from KeyError to XML parse errors
        form = path.suffix[1:]
        raise InputError(f"{path}: cannot be parsed as {form}: {_one_line(error)}") from error
    names = node_names(content)
    place = {node: number for number, node in enumerate(sorted(content, key=names.__getitem__))}
    links: dict[tuple[int, int], tuple[Any, Any, dict[str, Any]]] = {}
    loops = parallel = 0
    for one, other, data in content.edges(data=True):
        key = min(place[one], place[other]), max(place[one], place[other])
        loops += one == other
        parallel += one != other and key in links
        if one != other:
            links.setdefault(key, (one, other, data))
    graph = nx.Graph()
    graph.add_nodes_from((node, content.nodes[node]) for node in place)
    for _, (one, other, data) in sorted(links.items(), key=lambda item: item[0]):
        # Apart, so that an attribute is used only where the scenario's [links] names it.
        graph.add_edge(*sorted((one, other), key=place.__getitem__), attributes=data)
    if parallel:
        notes.append(f"{path}: {parallel} parallel links were dropped, the first of each is kept")
    if loops:
        notes.append(f"{path}: {loops} links from a node to itself were dropped")
    if content.is_directed():
        notes.append(f"{path}: its links are directed; both directions are used")
    return graph


def node_names(graph: nx.Graph) -> dict[Any, tuple[tuple[int, int | str], ...]]:
    """Return what nodes are sorted by: their labels, if each has one of its own, else their ids."""
    labels = node_labels(graph)
    unique = len(set(labels.values())) == len(graph)
    return {
        node: tuple(
            (0, int(part)) if part.isdecimal() else (1, part)
            for part in re.split(r"(\d+)", labels[node] if unique else str(node))
        )
        for node in graph
    }


def node_labels(graph: nx.Graph) -> dict[Any, str]:
    """Return what the file calls each node: its label, else its id."""
    return {
        node: next((str(data[key]) for key in LABELS if data.get(key) not in (None, "")), str(node))
        for node, data in graph.nodes(data=True)
    }


def _gml(path: Path) -> nx.Graph:
    text = path.read_text(encoding="utf-8", errors="replace")
    # Real files have parallel links without declaring a multigraph, and labels that repeat.
    if not re.search(r"^\s*multigraph\s", text, re.MULTILINE):
        text = re.sub(r"graph\s*\[", "graph [\n  multigraph 1", text, count=1)
    return nx.parse_gml(text, label="id")


def _json(path: Path) -> nx.Graph:
    data = json.loads(path.read_text(encoding="utf-8"))
    links = "links" if "links" in data else "edges"
    return nx.node_link_graph(data, edges=links)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
