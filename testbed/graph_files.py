"""Reading a user's own graph: GraphML, GML or node-link JSON, as real files have it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import networkx as nx

from fogveil.errors import InputError


def read_graph(file: str) -> nx.Graph:
    """Read an undirected simple graph; of parallel links the first stays, loops are dropped."""
    path = Path(file)
    readers = {".gml": _gml, ".graphml": nx.read_graphml, ".json": _json}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: expected a graph file ending in .graphml, .gml or .json")
    try:
        found = reader(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except Exception as error:  # the readers raise anything, from KeyError to XML parse errors
        raise InputError(f"{path}: is not a graph in {path.suffix[1:]} form: {error}") from error
    graph = nx.Graph()
    graph.add_nodes_from(found.nodes(data=True))
    for one, other, data in found.edges(data=True):
        if one != other and not graph.has_edge(one, other):
            # What the file says of a link is kept apart: only a rule that asks for it reads it.
            graph.add_edge(one, other, attributes=data)
    return graph


def _gml(path: Path) -> nx.Graph:
    text = path.read_text(encoding="utf-8", errors="replace")
    # Parallel links are common in real files that do not announce them, and ids are the only
    # labels that do not repeat.
    if not re.search(r"^\s*multigraph\s", text, re.MULTILINE):
        text = re.sub(r"graph\s*\[", "graph [\n  multigraph 1", text, count=1)
    return nx.parse_gml(text, label="id")


def _json(path: Path) -> nx.Graph:
    data = json.loads(path.read_text(encoding="utf-8"))
    links = "links" if "links" in data else "edges"
    return nx.node_link_graph(data, edges=links)
